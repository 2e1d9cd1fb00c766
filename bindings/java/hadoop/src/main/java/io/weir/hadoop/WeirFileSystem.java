package io.weir.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.PathCapabilitiesSupport;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A Weir store as a file system of Hadoop: {@code weir://HOST:PORT/path}, or {@code weir:///path} for the store that
 * {@code fs.weir.address} names.
 *
 * <pre>
 *   fs.weir.address        of the metadata service for weir:///: HOST:PORT or unix:PATH
 *   fs.weir.address.NAME   the same for weir://NAME/
 *   fs.weir.class          classes of new files, best first, with commas between them  [the directory's, or the store's]
 *   fs.weir.copies         copies of each block of new files, 1 to 4                   [the replication asked for, or 1]
 *   fs.weir.block          bytes of a block of new files, 64K to 4M                    [the store's]
 *   fs.weir.split.size     what getBlockSize says, which jobs split their input by     [64M]
 *   fs.weir.deadline       how long an operation may take                              [30s]
 *   fs.weir.location       where this client is, as the store's locations are          [none]
 *   fs.weir.vectored.threads  ranges of vectored reads that are read at once           [8]
 * </pre>
 */
public class WeirFileSystem extends FileSystem {
  /** Of its paths. */
  public static final String SCHEME = "weir";

  private static final String PREFIX = "fs.weir.";
  private static final long SPLIT_SIZE = 64L << 20;
  private static final int MODE_BITS = 07777;

  private final AtomicBoolean isClosed = new AtomicBoolean();
  private URI uri;
  private Path workingDirectory;
  private long store;
  private ExecutorService vectoredReads;

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public URI getUri() {
    return uri;
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    String authority = name.getAuthority();
    uri = URI.create(SCHEME + "://" + (authority == null ? "/" : authority));
    workingDirectory = getHomeDirectory();
    Native.require();
    String address = address(authority, conf);
    long deadline = conf.getTimeDuration(PREFIX + "deadline", 30_000, TimeUnit.MILLISECONDS);
    String client = "hadoop:" + ProcessHandle.current().pid();
    try {
      store = Native.connect(address, client, conf.getTrimmed(PREFIX + "location", ""), deadline);
    } catch (ConnectException e) {
      throw (IOException) new ConnectException(
          uri + ": no store answers at " + address + ": " + e.getMessage() + "; is the node up (weir up --store)?").initCause(e);
    }
    int threads = Math.max(conf.getInt(PREFIX + "vectored.threads", 8), 1);
    vectoredReads = Executors.newFixedThreadPool(threads, task -> {
      Thread thread = new Thread(task, "weir vectored read");
      thread.setDaemon(true);
      return thread;
    });
  }

  /** The address of the metadata service that an authority means. */
  private static String address(String authority, Configuration conf) throws IOException {
    String key = PREFIX + "address" + (authority == null ? "" : "." + authority);
    String address = conf.getTrimmed(key, "");
    if (!address.isEmpty()) {
      return address;
    }
    if (authority != null && authority.matches(".*:[0-9]+")) {
      return authority;
    }
    String example = authority == null ? "weir://HOST:PORT/" : "weir://" + authority + ":PORT/";
    throw new IOException("weir: no address of a metadata service: set " + key + " to HOST:PORT or unix:PATH, or use " + example);
  }

  @Override
  public void close() throws IOException {
    if (isClosed.compareAndSet(false, true)) {
      try {
        super.close();
      } finally {
        if (vectoredReads != null) {
          vectoredReads.shutdown();
        }
        if (store != 0) {
          Native.disconnect(store);
        }
      }
    }
  }

  /** The path as the store has it. */
  private byte[] bytes(Path path) throws IOException {
    checkPath(path);
    String text = makeQualified(path).toUri().getPath();
    try {
      ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      return Arrays.copyOf(encoded.array(), encoded.limit());
    } catch (CharacterCodingException e) {
      throw new PathIOException(path.toString(), "half of a pair of surrogates is no text: the store's names are UTF-8 here");
    }
  }

  private Entry stat(Path path) throws IOException {
    return Entry.of(Native.stat(store, bytes(path)));
  }

  /** The inode, or null where nothing has that path. */
  private Entry statOrNull(Path path) throws IOException {
    try {
      return stat(path);
    } catch (FileNotFoundException | ParentNotDirectoryException e) {
      return null;
    }
  }

  private FileStatus status(Entry entry, Path path) {
    boolean isDirectory = entry.isDirectory();
    return new FileStatus(
        isDirectory ? 0 : entry.size,
        isDirectory,
        isDirectory ? 0 : entry.copies,
        isDirectory ? 0 : getDefaultBlockSize(path),
        entry.modified,
        entry.modified,
        new FsPermission((short) (entry.mode & MODE_BITS)),
        Owners.USERS.name(entry.uid),
        Owners.GROUPS.name(entry.gid),
        makeQualified(path));
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    try {
      return status(stat(path), path);
    } catch (ParentNotDirectoryException e) {
      throw notFound(e);
    }
  }

  private static FileNotFoundException notFound(IOException cause) {
    FileNotFoundException error = new FileNotFoundException(cause.getMessage());
    error.initCause(cause);
    return error;
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    statistics.incrementReadOps(1);
    try {
      long reader = Native.openReader(store, bytes(path));
      return new FSDataInputStream(new WeirInputStream(path.toString(), reader, statistics, vectoredReads));
    } catch (ParentNotDirectoryException e) {
      throw notFound(e);
    }
  }

  @Override
  public FSDataOutputStream create(
      Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize, Progressable progress)
      throws IOException {
    return create(path, permission, overwrite, true, replication);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    if (flags.contains(CreateFlag.APPEND)) {
      return append(path, bufferSize, progress);
    }
    return create(path, permission, flags.contains(CreateFlag.OVERWRITE), false, replication);
  }

  /**
   * Copies of a new file. {@code fs.weir.copies} is an order: a store that cannot keep it says so when blocks are written. A program's
   * replication is a wish, as most programs that have one have it of HDFS: at most as many copies as the store offers are made.
   */
  private int copies(short replication, String classes) throws IOException {
    int ordered = getConf().getInt(PREFIX + "copies", 0);
    if (ordered != 0 || replication <= 1) {
      return ordered != 0 ? ordered : 1;
    }
    int offered = Native.copiesOffered(store, classes);
    if (replication > offered) {
      LOG.debug("replication {} is wished for, and {} offers {}", replication, uri, offered);
    }
    return Math.min(replication, offered);
  }

  private FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, boolean parents, short replication)
      throws IOException {
    statistics.incrementWriteOps(1);
    Configuration conf = getConf();
    int block = (int) conf.getLongBytes(PREFIX + "block", 0);
    String classes = conf.getTrimmed(PREFIX + "class", "");
    int copies = copies(replication, classes);
    int mode = masked(permission, FsPermission.getFileDefault());
    byte[] name = bytes(path);
    long writer;
    try {
      writer = Native.create(store, name, mode, classes, copies, block, !overwrite, parents);
    } catch (FileNotFoundException e) {
      Entry there = statOrNull(path);
      if (there != null && there.isDirectory()) {
        throw (IOException) new FileAlreadyExistsException(path + " is a directory").initCause(e);
      }
      throw e;
    }
    return new FSDataOutputStream(new WeirOutputStream(path.toString(), writer, statistics), statistics);
  }

  private int masked(FsPermission permission, FsPermission otherwise) {
    FsPermission wanted = permission == null ? otherwise : permission;
    return wanted.applyUMask(FsPermission.getUMask(getConf())).toShort() & MODE_BITS;
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
    statistics.incrementWriteOps(1);
    long writer = Native.append(store, bytes(path));
    return new FSDataOutputStream(new WeirOutputStream(path.toString(), writer, statistics), statistics, Native.begin(writer));
  }

  @Override
  public boolean truncate(Path path, long length) throws IOException {
    statistics.incrementWriteOps(1);
    long size = getFileStatus(path).getLen();
    if (length < 0 || length > size) {
      throw new PathIOException(path.toString(), "it has " + size + " bytes and cannot be cut to " + length);
    }
    Native.truncate(store, bytes(path), length);
    return true;
  }

  /**
   * As HDFS: what is at a directory's path goes into it. False where there is no source, where something is at the destination, or where
   * its directory is missing.
   */
  @Override
  public boolean rename(Path source, Path destination) throws IOException {
    statistics.incrementWriteOps(1);
    Path from = makeQualified(source);
    Path to = makeQualified(destination);
    Entry moved = statOrNull(from);
    if (moved == null || from.isRoot()) {
      return false;
    }
    if (from.equals(to)) {
      return !moved.isDirectory();
    }
    Entry there = statOrNull(to);
    if (there != null && there.isDirectory()) {
      to = new Path(to, from.getName());
    } else if (there != null) {
      return false;
    }
    try {
      Native.rename(store, bytes(from), bytes(to), false);
      return true;
    } catch (FileNotFoundException | FileAlreadyExistsException | Failure.IntoItselfException e) {
      LOG.debug("rename of {} to {}", from, to, e);
      return false;
    }
  }

  /** In one step, also where it takes the place of a file or of an empty directory. */
  @Override
  @Deprecated
  protected void rename(Path source, Path destination, Options.Rename... options) throws IOException {
    statistics.incrementWriteOps(1);
    boolean overwrite = Arrays.asList(options).contains(Options.Rename.OVERWRITE);
    if (makeQualified(source).equals(makeQualified(destination))) {
      getFileStatus(source);
      throw new FileAlreadyExistsException("the source " + source + " and the destination are the same");
    }
    Native.rename(store, bytes(source), bytes(destination), overwrite);
  }

  /** The root stays: false for it. */
  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    statistics.incrementWriteOps(1);
    byte[] name = bytes(path);
    if (makeQualified(path).isRoot()) {
      if (!recursive && listStatusIterator(path).hasNext()) {
        throw new PathIsNotEmptyDirectoryException(path.toString());
      }
      return false;
    }
    try {
      Native.remove(store, name, recursive);
      return true;
    } catch (FileNotFoundException | ParentNotDirectoryException e) {
      return false;
    }
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    List<FileStatus> found = new ArrayList<>();
    for (RemoteIterator<FileStatus> entries = listStatusIterator(path); entries.hasNext(); ) {
      found.add(entries.next());
    }
    return found.toArray(new FileStatus[0]);
  }

  /** In pages, as they are asked for. */
  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    statistics.incrementReadOps(1);
    Entry entry;
    try {
      entry = stat(path);
    } catch (ParentNotDirectoryException e) {
      throw notFound(e);
    }
    return new Listing(path, entry);
  }

  /** The names of a directory, or a file alone. */
  private final class Listing implements RemoteIterator<FileStatus> {
    private final Path directory;
    private final long inode;
    private Iterator<FileStatus> page;
    private byte[] after = new byte[0];
    private boolean isLast;

    Listing(Path path, Entry entry) {
      directory = makeQualified(path);
      inode = entry.inode;
      isLast = !entry.isDirectory();
      List<FileStatus> alone = isLast ? List.of(status(entry, path)) : List.of();
      page = alone.iterator();
    }

    @Override
    public boolean hasNext() throws IOException {
      while (!page.hasNext() && !isLast) {
        Entry.Page next = new Entry.Page(Native.list(store, inode, after));
        isLast = next.isLast || next.entries.isEmpty();
        List<FileStatus> found = new ArrayList<>(next.entries.size());
        for (Entry entry : next.entries) {
          after = entry.rawName();
          found.add(named(entry));
        }
        page = found.iterator();
      }
      return page.hasNext();
    }

    private FileStatus named(Entry entry) throws IOException {
      String name;
      try {
        name = entry.name();
      } catch (CharacterCodingException e) {
        throw new PathIOException(
            directory.toString(),
            "a name in it is not UTF-8, so Java cannot spell it: " + Arrays.toString(entry.rawName()) + "; rename it with weir fs mv");
      }
      // A colon in a name is no scheme.
      String parent = directory.isRoot() ? "/" : directory.toUri().getPath() + "/";
      Path path = new Path(SCHEME, uri.getAuthority(), parent + name);
      Entry target = entry.isSymlink() ? statOrNull(path) : null;
      return status(target == null ? entry : target, path);
    }

    @Override
    public FileStatus next() throws IOException {
      if (!hasNext()) {
        throw new NoSuchElementException(directory + " has no more names");
      }
      return page.next();
    }
  }

  @Override
  public void setWorkingDirectory(Path directory) {
    workingDirectory = makeQualified(directory);
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    statistics.incrementWriteOps(1);
    Native.makeDirectory(store, bytes(path), true, masked(permission, FsPermission.getDirDefault()));
    return true;
  }

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    statistics.incrementWriteOps(1);
    Native.setAttributes(store, bytes(path), permission.toShort() & MODE_BITS, -1, -1, -1);
  }

  @Override
  public void setOwner(Path path, String user, String group) throws IOException {
    statistics.incrementWriteOps(1);
    Native.setAttributes(store, bytes(path), -1, Owners.USERS.number(user), Owners.GROUPS.number(group), -1);
  }

  /** The store keeps no times of access: that is ignored. */
  @Override
  public void setTimes(Path path, long modified, long accessed) throws IOException {
    statistics.incrementWriteOps(1);
    Native.setAttributes(store, bytes(path), -1, -1, -1, modified < 0 ? -1 : modified * 1_000_000);
  }

  /** A file keeps the copies that it was made with: true where these are so many, else false; false for a directory too. */
  @Override
  public boolean setReplication(Path path, short replication) throws IOException {
    statistics.incrementReadOps(1);
    FileStatus status = getFileStatus(path);
    return status.isFile() && status.getReplication() == replication;
  }

  /**
   * The hosts of the drives that the bytes lie on. There is one location where all drives of the store are on one host, and else one for
   * each run of blocks on the same drives; its names are the drives' addresses.
   */
  @Override
  public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length) throws IOException {
    if (file == null) {
      return null;
    }
    if (start < 0 || length < 0) {
      throw new IllegalArgumentException(file.getPath() + ": there are no " + length + " bytes at " + start);
    }
    if (file.getLen() <= start) {
      return new BlockLocation[0];
    }
    statistics.incrementReadOps(1);
    long bytes = Math.min(length, file.getLen() - start);
    return Locations.of(Native.locations(store, bytes(file.getPath()), start, bytes));
  }

  @Override
  public FsStatus getStatus(Path path) throws IOException {
    long[] room = Native.room(store);
    return new FsStatus(room[0], room[0] - room[1], room[1]);
  }

  @Override
  @Deprecated
  public long getDefaultBlockSize() {
    return getConf().getLongBytes(PREFIX + "split.size", SPLIT_SIZE);
  }

  @Override
  @Deprecated
  public short getDefaultReplication() {
    return (short) getConf().getInt(PREFIX + "copies", 1);
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    switch (PathCapabilitiesSupport.validatePathCapabilityArgs(makeQualified(path), capability)) {
      case CommonPathCapabilities.FS_APPEND:
      case CommonPathCapabilities.FS_PERMISSIONS:
      case CommonPathCapabilities.FS_TRUNCATE:
        return true;
      default:
        return super.hasPathCapability(path, capability);
    }
  }
}
