package io.weir.spark;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Objects;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;

/** Neighbouring partitions of a map output. Nothing is read before it is asked for. */
final class StoreBlock extends ManagedBuffer {
  /** The most that is read at once: bytes. */
  private static final int AT_ONCE = 4 << 20;

  private final ShuffleFiles files;
  private final Path path;
  private final long start;
  private final long end;

  /**
   * A part of a file.
   *
   * @param start its first byte
   * @param end the byte behind its last one
   */
  StoreBlock(ShuffleFiles files, Path path, long start, long end) {
    this.files = files;
    this.path = path;
    this.start = start;
    this.end = end;
  }

  @Override
  public long size() {
    return end - start;
  }

  @Override
  public ByteBuffer nioByteBuffer() throws IOException {
    byte[] bytes = new byte[Math.toIntExact(size())];
    try (FSDataInputStream file = files.open(path)) {
      file.readFully(start, bytes);
    }
    return ByteBuffer.wrap(bytes);
  }

  @Override
  public InputStream createInputStream() throws IOException {
    return new Part(files.open(path));
  }

  @Override
  public ManagedBuffer retain() {
    return this;
  }

  @Override
  public ManagedBuffer release() {
    return this;
  }

  @Override
  public Object convertToNetty() throws IOException {
    return new NioManagedBuffer(nioByteBuffer()).convertToNetty();
  }

  @Override
  public Object convertToNettyForSsl() throws IOException {
    return new NioManagedBuffer(nioByteBuffer()).convertToNettyForSsl();
  }

  @Override
  public String toString() {
    return "StoreBlock{" + path + " from " + start + " to " + end + "}";
  }

  private final class Part extends InputStream {
    private final FSDataInputStream file;
    private final byte[] read = new byte[(int) Math.min(size(), AT_ONCE)];
    private long next = start;
    private int position;
    private int limit;

    Part(FSDataInputStream file) {
      this.file = file;
    }

    /** Whether there is a byte: it is among those that were read then. */
    private boolean fill() throws IOException {
      if (position < limit) {
        return true;
      }
      int count = (int) Math.min(end - next, read.length);
      if (count > 0) {
        try {
          file.readFully(next, read, 0, count);
        } catch (EOFException e) {
          throw new IOException(path + ": the file is shorter than its trailer said", e);
        }
        next += count;
        position = 0;
        limit = count;
      }
      return count > 0;
    }

    @Override
    public int read() throws IOException {
      return fill() ? read[position++] & 0xff : -1;
    }

    @Override
    public int read(byte[] to, int offset, int length) throws IOException {
      Objects.checkFromIndexSize(offset, length, to.length);
      if (length == 0) {
        return 0;
      }
      if (!fill()) {
        return -1;
      }
      int count = Math.min(length, limit - position);
      System.arraycopy(read, position, to, offset, count);
      position += count;
      return count;
    }

    @Override
    public int available() {
      return limit - position;
    }

    @Override
    public void close() throws IOException {
      limit = position;
      next = end;
      file.close();
    }
  }
}
