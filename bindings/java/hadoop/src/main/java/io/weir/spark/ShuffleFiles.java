package io.weir.spark;

import io.weir.hadoop.WeirFileSystem;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.SparkConf;
import org.apache.spark.deploy.SparkHadoopUtil;

/** The files of an application's shuffles, and the connection to their store. One for each application in a process. */
final class ShuffleFiles implements AutoCloseable {
  /** Where applications keep their shuffles: a path of a store. */
  static final String ROOT = "spark.weir.shuffle.root";
  /** Classes of the files, best first, with commas between them. */
  static final String CLASSES = "spark.weir.shuffle.classes";
  /** Copies of each block, 1 to 4. */
  static final String COPIES = "spark.weir.shuffle.copies";
  /** An application whose driver has not shown itself for so long is dead. */
  static final String TTL = "spark.weir.shuffle.ttl";

  /** Ends the name of every application's directory: nothing else in the root is removed. */
  private static final String SUFFIX = ".shuffle";
  private static final short DIRECTORY_MODE = 0700;
  private static final short FILE_MODE = 0600;
  /** Partitions whose places are kept in memory, of all map outputs: 32 MiB. */
  private static final int KEPT = 4 << 20;

  private static final Map<String, ShuffleFiles> OPEN = new HashMap<>();

  private final FileSystem store;
  private final Path root;
  private final Path directory;
  private final Map<Path, MapOutput> outputs = new LinkedHashMap<>(16, 0.75f, true);
  private long kept;

  private ShuffleFiles(FileSystem store, Path root, Path directory) {
    this.store = store;
    this.root = root;
    this.directory = directory;
  }

  /**
   * Of the application that has this configuration.
   *
   * @throws IOException where no store answers, or a setting is missing or wrong
   */
  static ShuffleFiles of(SparkConf conf) throws IOException {
    Path root = root(conf);
    Path directory = new Path(root, conf.get("spark.app.id") + "-" + conf.get("spark.app.startTime") + SUFFIX);
    synchronized (OPEN) {
      ShuffleFiles files = OPEN.get(directory.toString());
      if (files == null) {
        files = new ShuffleFiles(connect(root.toUri(), conf), root, directory);
        OPEN.put(directory.toString(), files);
      }
      return files;
    }
  }

  /** The root that is configured. */
  static Path root(SparkConf conf) {
    String root = conf.get(ROOT, "").trim();
    if (!root.startsWith(WeirFileSystem.SCHEME + "://")) {
      String found = root.isEmpty() ? "is not set" : "is " + root;
      throw new IllegalArgumentException(ROOT + " " + found + ": set it to a directory of a store, as weir://HOST:PORT/spark-shuffle");
    }
    return new Path(root);
  }

  private static FileSystem connect(URI uri, SparkConf conf) throws IOException {
    Configuration hadoop = new Configuration(SparkHadoopUtil.get().newConfiguration(conf));
    if (conf.contains(CLASSES)) {
      hadoop.set("fs.weir.class", conf.get(CLASSES));
    }
    if (conf.contains(COPIES)) {
      hadoop.set("fs.weir.copies", conf.get(COPIES));
    }
    FileSystem store = new WeirFileSystem();
    store.initialize(uri, hadoop);
    return store;
  }

  /** The application's directory. */
  Path directory() {
    return directory;
  }

  /** Makes the application's directory. */
  void makeDirectory() throws IOException {
    store.mkdirs(directory, new FsPermission(DIRECTORY_MODE));
  }

  /** Says that the application lives. */
  void touch(long nowMillis) throws IOException {
    store.setTimes(directory, nowMillis, -1);
  }

  /**
   * Removes the directories of applications that have not been touched since then.
   *
   * @return how many
   */
  int removeDead(long sinceMillis) throws IOException {
    int removed = 0;
    for (FileStatus found : store.listStatus(root)) {
      boolean isApplication = found.isDirectory() && found.getPath().getName().endsWith(SUFFIX);
      if (isApplication && found.getModificationTime() < sinceMillis && store.delete(found.getPath(), true)) {
        removed++;
      }
    }
    return removed;
  }

  /** Removes the application's directory with all that is in it. */
  void removeDirectory() throws IOException {
    store.delete(directory, true);
  }

  private Path shuffle(int shuffleId) {
    return new Path(directory, Integer.toString(shuffleId));
  }

  /** The file of an attempt of a map task. */
  Path map(int shuffleId, long mapId) {
    return new Path(shuffle(shuffleId), Long.toString(mapId));
  }

  /** Makes the directory of a shuffle. */
  void makeShuffle(int shuffleId) throws IOException {
    store.mkdirs(shuffle(shuffleId), new FsPermission(DIRECTORY_MODE));
  }

  /** Removes a shuffle with its files. A task that still runs cannot write there any more. */
  void removeShuffle(int shuffleId) throws IOException {
    store.delete(shuffle(shuffleId), true);
  }

  /** Forgets where the partitions of a shuffle lie. */
  void forgetShuffle(int shuffleId) {
    Path parent = shuffle(shuffleId);
    synchronized (outputs) {
      outputs.entrySet().removeIf(entry -> {
        boolean isOfIt = entry.getKey().getParent().equals(parent);
        kept -= isOfIt ? entry.getValue().partitions() : 0;
        return isOfIt;
      });
    }
  }

  /** A new file for an attempt of a map task. */
  FSDataOutputStream create(int shuffleId, long mapId) throws IOException {
    Path path = map(shuffleId, mapId);
    EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
    try {
      return store.createNonRecursive(path, new FsPermission(FILE_MODE), flags, 0, (short) 1, 0, null);
    } catch (FileNotFoundException e) {
      String why = path + ": its directory is gone: shuffle " + shuffleId + " has been removed, or its driver did not answer for as long as "
          + TTL + " says";
      throw (IOException) new FileNotFoundException(why).initCause(e);
    }
  }

  /** Removes the file of an attempt that has failed. */
  void remove(int shuffleId, long mapId) throws IOException {
    store.delete(map(shuffleId, mapId), false);
  }

  /** A map output's file. */
  FSDataInputStream open(Path path) throws IOException {
    return store.open(path);
  }

  /** Where the partitions of a map output lie. */
  MapOutput output(Path path) throws IOException {
    synchronized (outputs) {
      MapOutput output = outputs.get(path);
      if (output != null) {
        return output;
      }
    }
    MapOutput output;
    long size = store.getFileStatus(path).getLen();
    try (FSDataInputStream file = store.open(path)) {
      output = MapOutput.read(file::readFully, size);
    }
    keep(path, output);
    return output;
  }

  private void keep(Path path, MapOutput output) {
    synchronized (outputs) {
      if (outputs.put(path, output) == null) {
        kept += output.partitions();
      }
      var oldest = outputs.entrySet().iterator();
      while (kept > KEPT && outputs.size() > 1) {
        kept -= oldest.next().getValue().partitions();
        oldest.remove();
      }
    }
  }

  /** Ends the connection. */
  @Override
  public void close() throws IOException {
    synchronized (OPEN) {
      OPEN.remove(directory.toString());
    }
    store.close();
  }
}
