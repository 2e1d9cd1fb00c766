package io.weir.hadoop;

import java.io.IOException;
import java.io.StringWriter;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.log4j.Logger;
import org.apache.log4j.SimpleLayout;
import org.apache.log4j.WriterAppender;

/**
 * Streams that are never closed go with a warning when nothing refers to them, at the store whose address is the system property
 * {@code weir.address}. The last line is {@code leaked streams: all gone}.
 */
public final class LeakedStreams {
  private static final long LIMIT_NANOS = TimeUnit.SECONDS.toNanos(60);
  private static final int STREAMS = 50;

  private LeakedStreams() {}

  private static void require(boolean holds, String what) {
    if (!holds) {
      System.out.println("WRONG " + what);
      System.exit(1);
    }
    System.out.println("ok    " + what);
  }

  /** Opens streams: those that read have read, and the one that writes has flushed 4 bytes of 8. */
  private static List<Object> opened(FileSystem fs, Path file, Path written) throws IOException {
    List<Object> opened = new ArrayList<>();
    for (int i = 0; i < STREAMS; i++) {
      FSDataInputStream in = fs.open(file);
      in.read();
      opened.add(in);
    }
    FSDataOutputStream out = fs.create(written);
    out.writeBytes("kept");
    out.hflush();
    out.writeBytes("lost");
    opened.add(out);
    return opened;
  }

  /** Collects garbage until so many streams are open. */
  private static void collect(long open) throws IOException, InterruptedException {
    long begun = System.nanoTime();
    while (Native.openStreams() != open && System.nanoTime() - begun < LIMIT_NANOS) {
      System.gc();
      Thread.sleep(10);
    }
  }

  /**
   * See the class.
   *
   * @param arguments none
   * @throws IOException what was not expected
   * @throws InterruptedException never
   */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    StringWriter log = new StringWriter();
    Logger.getLogger("io.weir.hadoop").addAppender(new WriterAppender(new SimpleLayout(), log));
    Configuration conf = new Configuration();
    conf.set("fs.weir.address", System.getProperty("weir.address"));
    FileSystem fs = FileSystem.get(URI.create("weir:///"), conf);
    Path file = new Path("/leak/file");
    Path written = new Path("/leak/written");
    try (FSDataOutputStream out = fs.create(file)) {
      out.writeBytes("some bytes");
    }
    require(Native.openStreams() == 0, "a stream that is closed is gone at once");
    require(log.toString().isEmpty(), "nothing is said of it: " + log);

    FSDataInputStream used = fs.open(file);
    List<Object> opened = opened(fs, file, written);
    System.gc();
    require(Native.openStreams() == opened.size() + 1, "streams that something refers to stay open: " + Native.openStreams());
    opened.clear();
    collect(1);
    require(Native.openStreams() == 1, "those that nothing refers to are gone: " + Native.openStreams());
    require(used.read() == 's', "the one that is used is open");
    used.close();
    require(Native.openStreams() == 0, "it is closed");

    String said = log.toString();
    require(said.split("/leak/file: a stream that reads it was never closed", -1).length == STREAMS + 1, "a warning for each reader");
    require(said.contains("WARN - /leak/written: a stream that writes it was never closed"), "a warning for the writer");
    try (FileSystem other = FileSystem.newInstance(URI.create("weir:///"), conf)) {
      require(other.getFileStatus(written).getLen() == 4, "what was flushed is there, and no more");
      try (FSDataOutputStream out = other.append(written)) {
        out.writeBytes(" and more");
      }
      require(other.getFileStatus(written).getLen() == 13, "another client may write it");
    }
    fs.delete(new Path("/leak"), true);
    System.out.println("leaked streams: all gone");
    System.exit(0);
  }
}
