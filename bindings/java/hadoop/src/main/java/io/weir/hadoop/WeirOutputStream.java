package io.weir.hadoop;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Locale;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;

/** A file of the store that is written in order, behind its caller. Others see what was written after {@link #hflush} and {@link #close}. */
final class WeirOutputStream extends OutputStream implements Syncable, StreamCapabilities {
  /** Smaller writes are gathered: bytes. */
  private static final int GATHERED = 64 << 10;

  private final OpenFile file;
  private final FileSystem.Statistics statistics;
  private final byte[] gathered = new byte[GATHERED];
  private int count;

  WeirOutputStream(String path, long writer, FileSystem.Statistics statistics) {
    this.file = new OpenFile(this, OpenFile.Use.WRITE, writer, path);
    this.statistics = statistics;
  }

  private void checkOpen() throws IOException {
    if (file.isClosed()) {
      throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  private void writeGathered() throws IOException {
    if (count > 0) {
      int bytes = count;
      count = 0;
      Native.write(file.number, gathered, 0, bytes);
    }
  }

  @Override
  public synchronized void write(int value) throws IOException {
    checkOpen();
    if (count == GATHERED) {
      writeGathered();
    }
    gathered[count++] = (byte) value;
    statistics.incrementBytesWritten(1);
  }

  @Override
  public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
    java.util.Objects.checkFromIndexSize(offset, length, bytes.length);
    checkOpen();
    if (length > GATHERED - count) {
      writeGathered();
    }
    if (length >= GATHERED) {
      Native.write(file.number, bytes, offset, length);
    } else {
      System.arraycopy(bytes, offset, gathered, count, length);
      count += length;
    }
    statistics.incrementBytesWritten(length);
  }

  /** Nothing is published: that is what {@link #hflush} does. */
  @Override
  public synchronized void flush() throws IOException {
    checkOpen();
  }

  @Override
  public synchronized void hflush() throws IOException {
    checkOpen();
    writeGathered();
    Native.flush(file.number);
  }

  /** The same as {@link #hflush}: what is published is as durable as the store promises. */
  @Override
  public void hsync() throws IOException {
    hflush();
  }

  @Override
  public synchronized void close() throws IOException {
    if (file.isClosed()) {
      return;
    }
    try {
      writeGathered();
    } finally {
      file.close();
    }
  }

  @Override
  public boolean hasCapability(String capability) {
    switch (capability.toLowerCase(Locale.ENGLISH)) {
      case StreamCapabilities.HFLUSH:
      case StreamCapabilities.HSYNC:
        return true;
      default:
        return false;
    }
  }
}
