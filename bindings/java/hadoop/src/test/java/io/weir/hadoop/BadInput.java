package io.weir.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.util.DiskChecker.DiskOutOfSpaceException;

/**
 * What goes wrong, and the exception that says it, at the store whose address is the system property {@code weir.address}. The last line
 * is {@code bad input: all said}.
 */
public final class BadInput {
  private static int wrong;

  private BadInput() {}

  /** What is tried. */
  private interface Attempt {
    void run() throws IOException;
  }

  /** Holds an attempt to an exception, and to words of its message. */
  private static void refused(String what, Class<? extends Throwable> expected, String words, Attempt attempt) {
    try {
      attempt.run();
      tell(false, what + ": nothing was thrown");
    } catch (IOException | RuntimeException e) {
      tell(expected.isInstance(e) && String.valueOf(e.getMessage()).contains(words), what + ": " + e);
    }
  }

  private static void tell(boolean isRight, String line) {
    System.out.println((isRight ? "ok    " : "WRONG ") + line);
    wrong += isRight ? 0 : 1;
  }

  private static void write(FileSystem fs, Path path, String text) throws IOException {
    try (FSDataOutputStream out = fs.create(path, true)) {
      out.writeBytes(text);
    }
  }

  /**
   * See the class.
   *
   * @param arguments none
   * @throws IOException what was not expected
   */
  public static void main(String[] arguments) throws IOException {
    Configuration conf = new Configuration();
    conf.set("fs.weir.address", System.getProperty("weir.address"));
    conf.set("fs.AbstractFileSystem.weir.impl", WeirFs.class.getName());
    FileSystem fs = FileSystem.get(URI.create("weir:///"), conf);
    Path file = new Path("/bad/file");
    write(fs, file, "some bytes");
    names(fs, file);
    writers(conf, file);
    fileIsDeleted(fs, file);
    services(conf);
    rooms(conf);
    copies(conf);
    renamed(conf);
    fs.delete(new Path("/bad"), true);
    System.out.println(wrong == 0 ? "bad input: all said" : "bad input: " + wrong + " are wrong");
    System.exit(wrong == 0 ? 0 : 1);
  }

  private static void names(FileSystem fs, Path file) {
    refused("open of nothing", FileNotFoundException.class, "/bad/none: no such file", () -> fs.open(new Path("/bad/none")));
    refused("open of a directory", FileNotFoundException.class, "it is a directory", () -> fs.open(new Path("/bad")));
    refused("status below a file", FileNotFoundException.class, "not a directory", () -> fs.getFileStatus(new Path(file, "x")));
    refused("make over a file", FileAlreadyExistsException.class, "exists already", () -> fs.create(file, false));
    refused("make over a directory", FileAlreadyExistsException.class, "is a directory", () -> fs.create(new Path("/bad"), true));
    refused("make below a file", ParentNotDirectoryException.class, "not a directory", () -> fs.create(new Path(file, "x")));
    refused("directory over a file", FileAlreadyExistsException.class, "exists already", () -> fs.mkdirs(file));
    refused("delete of a full directory", PathIsNotEmptyDirectoryException.class, "/bad", () -> fs.delete(new Path("/bad"), false));
    refused("half a pair", PathIOException.class, "surrogates", () -> fs.create(new Path("/bad/\ud800")));
    refused("a long name", PathIOException.class, "longer than 255 bytes", () -> fs.mkdirs(new Path("/bad/" + "n".repeat(256))));
    refused("a stream after its end", IOException.class, "closed", () -> {
      FSDataInputStream in = fs.open(file);
      in.close();
      in.read();
    });
  }

  private static void writers(Configuration conf, Path file) throws IOException {
    try (FileSystem one = FileSystem.newInstance(URI.create("weir:///"), conf);
        FileSystem other = FileSystem.newInstance(URI.create("weir:///"), conf)) {
      try (FSDataOutputStream out = one.append(file)) {
        out.writeBytes(" and more");
        out.hflush();
        refused("a second writer appends", PathIOException.class, "another client has the file open", () -> other.append(file));
        refused("a second writer makes", PathIOException.class, "another client has the file open", () -> other.create(file, true));
        tell(other.getFileStatus(file).getLen() == 19, "what was flushed is seen: " + other.getFileStatus(file).getLen());
      }
    }
  }

  /** A file that is deleted while it is read is read to its end, and found no more. */
  private static void fileIsDeleted(FileSystem fs, Path file) throws IOException {
    try (FSDataInputStream in = fs.open(file)) {
      tell(fs.delete(file, false), "a file that is read is deleted");
      ByteBuffer direct = ByteBuffer.allocateDirect(10);
      in.readFully(0, direct);
      tell(direct.get(0) == 's', "what is open is read after that");
      refused("open of what was deleted", FileNotFoundException.class, "no such file", () -> fs.open(file));
      refused("more than there is", IOException.class, "19", () -> in.readFully(0, new byte[20]));
    }
  }

  private static void services(Configuration conf) {
    Configuration none = new Configuration(conf);
    none.set("fs.weir.deadline", "2s");
    none.set("fs.weir.address", "127.0.0.1:1");
    refused("no service", ConnectException.class, "no store answers at 127.0.0.1:1", () -> FileSystem.newInstance(URI.create("weir:///"), none));
    refused("what to do then", ConnectException.class, "is the node up (weir up --store)?", () -> FileSystem.newInstance(URI.create("weir:///"), none));
    none.set("fs.weir.address", "unix:/nowhere/meta.sock");
    refused("no socket", ConnectException.class, "unix:/nowhere/meta.sock", () -> FileSystem.newInstance(URI.create("weir:///"), none));
    none.unset("fs.weir.address");
    refused("none of several services", ConnectException.class, "127.0.0.1:1: Connection refused", () -> FileSystem.newInstance(URI.create("weir://127.0.0.1:1,127.0.0.1:2/"), none));
    refused("nor the other one", ConnectException.class, "127.0.0.1:2: Connection refused", () -> FileSystem.newInstance(URI.create("weir://127.0.0.1:1,127.0.0.1:2/"), none));
    refused("no address", IOException.class, "set fs.weir.address", () -> FileSystem.newInstance(URI.create("weir:///"), none));
    refused("no port", IOException.class, "fs.weir.address.name", () -> FileSystem.newInstance(URI.create("weir://name/"), none));
  }

  private static void rooms(Configuration conf) throws IOException {
    Configuration unknown = new Configuration(conf);
    unknown.set("fs.weir.class", "gold");
    try (FileSystem fs = FileSystem.newInstance(URI.create("weir:///"), unknown)) {
      refused("no such class", IOException.class, "no class \"gold\"; it has", () -> fs.create(new Path("/bad/gold")));
    }
    Configuration full = new Configuration(conf);
    full.set("fs.weir.class", "dram");
    try (FileSystem fs = FileSystem.newInstance(URI.create("weir:///"), full)) {
      byte[] bytes = new byte[1 << 20];
      refused("a full class", DiskOutOfSpaceException.class, "no class of the file has room", () -> {
        try (FSDataOutputStream out = fs.create(new Path("/bad/full"))) {
          for (int i = 0; i < 1024; i++) {
            out.write(bytes);
          }
        }
      });
      fs.delete(new Path("/bad/full"), false);
    }
  }

  /** A program's replication is a wish, and {@code fs.weir.copies} an order. */
  private static void copies(Configuration conf) throws IOException {
    FileSystem fs = FileSystem.get(URI.create("weir:///"), conf);
    Path wished = new Path("/bad/wished");
    fs.create(wished, true, 4096, (short) 3, 1 << 20).close();
    tell(fs.getFileStatus(wished).getReplication() == 1, "a store of one node keeps one copy where three are wished for");
    tell(fs.getDefaultReplication(wished) == 1, "one is the default");
    tell(fs.setReplication(wished, (short) 1), "a file with one copy has one");
    tell(!fs.setReplication(wished, (short) 3), "and gets no more");
    tell(!fs.setReplication(new Path("/bad"), (short) 1), "a directory has none");
    refused("replication of nothing", FileNotFoundException.class, "no such file", () -> fs.setReplication(new Path("/bad/none"), (short) 1));
    Configuration ordered = new Configuration(conf);
    ordered.set("fs.weir.copies", "2");
    try (FileSystem two = FileSystem.newInstance(URI.create("weir:///"), ordered)) {
      tell(two.getDefaultReplication(wished) == 2, "what is ordered is the default");
      refused("more copies than nodes", DiskOutOfSpaceException.class, "none on a further node", () -> {
        try (FSDataOutputStream out = two.create(new Path("/bad/ordered"), true, 4096, (short) 1, 1 << 20)) {
          out.write(new byte[1 << 20]);
        }
      });
      fs.delete(new Path("/bad/ordered"), false);
    }
  }

  /** {@code FileContext} renames in one step, and over a file where that is asked for. */
  private static void renamed(Configuration conf) throws IOException {
    FileContext context = FileContext.getFileContext(URI.create("weir:///"), conf);
    FileSystem fs = FileSystem.get(URI.create("weir:///"), conf);
    Path from = new Path("weir:///bad/from");
    Path to = new Path("weir:///bad/to");
    write(fs, from, "from");
    write(fs, to, "to");
    refused("rename over a file", FileAlreadyExistsException.class, "/bad/to", () -> context.rename(from, to));
    context.rename(from, to, Options.Rename.OVERWRITE);
    tell(fs.getFileStatus(to).getLen() == 4 && !fs.exists(from), "rename takes the place of a file where it is asked to");
  }
}
