package io.weir.hadoop;

import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * How fast a file is read, in MiB/s, at the store whose address is the system property {@code weir.address}: as a stream into an array and into
 * a direct buffer; and what a native call costs. For comparing: it asserts nothing.
 */
public final class Speed {
  private static final int ROUNDS = 8;
  private static final int CALLS = 20_000_000;

  private Speed() {}

  /** Reads a file once. */
  private interface Pass {
    long read(FSDataInputStream in) throws IOException;
  }

  private static void measure(String what, FileSystem fs, Path path, Pass pass) throws IOException {
    for (int round = 0; round < ROUNDS; round++) {
      long begin = System.nanoTime();
      long bytes;
      try (FSDataInputStream in = fs.open(path)) {
        bytes = pass.read(in);
      }
      double seconds = (System.nanoTime() - begin) / 1e9;
      System.out.printf("%s: %.0f MiB/s%n", what, bytes / seconds / (1 << 20));
    }
  }

  /**
   * See the class.
   *
   * @param arguments the file's path
   * @throws IOException it cannot be read
   */
  public static void main(String[] arguments) throws IOException {
    Configuration conf = new Configuration();
    conf.set("fs.weir.address", System.getProperty("weir.address"));
    FileSystem fs = FileSystem.get(URI.create("weir:///"), conf);
    Path path = new Path(arguments[0]);
    byte[] array = new byte[1 << 20];
    measure("stream into an array", fs, path, in -> {
      long bytes = 0;
      for (int n = in.read(array); n >= 0; n = in.read(array)) {
        bytes += n;
      }
      return bytes;
    });
    ByteBuffer direct = ByteBuffer.allocateDirect(4 << 20);
    measure("stream into a direct buffer of 4 MiB", fs, path, in -> {
      long bytes = 0;
      for (int n = in.read(direct); n >= 0; n = in.read(direct)) {
        bytes += n;
        direct.clear();
      }
      return bytes;
    });
    calls(path);
  }

  private static void calls(Path path) throws IOException {
    long store = Native.connect(System.getProperty("weir.address"), "speed", "", 10_000);
    long reader = Native.openReader(store, path.toUri().getPath().getBytes(StandardCharsets.UTF_8));
    for (int round = 0; round < 4; round++) {
      long begin = System.nanoTime();
      long sum = 0;
      for (int call = 0; call < CALLS; call++) {
        sum += Native.size(reader);
      }
      double nanos = (System.nanoTime() - begin) / (double) CALLS;
      System.out.printf("a native call: %.0f ns (%d)%n", nanos, sum & 1);
    }
    Native.closeReader(reader);
    Native.disconnect(store);
  }
}
