package io.weir.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.VectoredReadUtils;

/**
 * A file of the store that is read: in order and ahead, or at any position. Its length is that of when it was opened. What is read into a
 * direct buffer at a position comes from the drive without a copy.
 */
final class WeirInputStream extends FSInputStream
    implements ByteBufferReadable, ByteBufferPositionedReadable, StreamCapabilities {
  /** Smaller reads are served from this much: bytes. */
  private static final int GATHERED = 64 << 10;
  /** From this many bytes on, a read into a direct buffer is not copied: bytes. */
  private static final int LARGE = 1 << 20;

  private final String path;
  private final OpenFile file;
  private final long length;
  private final FileSystem.Statistics statistics;
  private final Executor executor;
  private long position;
  private byte[] gathered;
  private long gatheredAt;
  private int gatheredCount;

  WeirInputStream(String path, long reader, FileSystem.Statistics statistics, Executor executor) throws IOException {
    this.path = path;
    this.file = new OpenFile(this, OpenFile.Use.READ, reader, path);
    this.length = Native.size(reader);
    this.statistics = statistics;
    this.executor = executor;
  }

  private void checkOpen() throws IOException {
    if (file.isClosed()) {
      throw new IOException(path + ": " + FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  /** How many bytes were read, as Java says it: -1 at the end. */
  private int told(int count) {
    if (count <= 0) {
      return -1;
    }
    statistics.incrementBytesRead(count);
    return count;
  }

  @Override
  public synchronized void seek(long to) throws IOException {
    checkOpen();
    if (to < 0) {
      throw new EOFException(path + ": " + FSExceptionMessages.NEGATIVE_SEEK + " " + to);
    }
    if (to > length) {
      throw new EOFException(path + ": " + FSExceptionMessages.CANNOT_SEEK_PAST_EOF + ": " + to + " of " + length);
    }
    position = to;
  }

  @Override
  public synchronized long getPos() {
    return position;
  }

  @Override
  public boolean seekToNewSource(long to) {
    return false;
  }

  @Override
  public synchronized int available() throws IOException {
    checkOpen();
    return (int) Math.min(length - position, Integer.MAX_VALUE);
  }

  @Override
  public synchronized int read() throws IOException {
    checkOpen();
    if (!gather()) {
      return -1;
    }
    int value = gathered[(int) (position - gatheredAt)] & 0xff;
    position++;
    statistics.incrementBytesRead(1);
    return value;
  }

  /** Whether there is a byte at the position: it is among the gathered ones then. */
  private boolean gather() throws IOException {
    if (position >= gatheredAt && position < gatheredAt + gatheredCount) {
      return true;
    }
    if (gathered == null) {
      gathered = new byte[GATHERED];
    }
    gatheredCount = 0;
    gatheredCount = Native.read(file.number, position, gathered, 0, GATHERED);
    gatheredAt = position;
    return gatheredCount > 0;
  }

  @Override
  public synchronized int read(byte[] to, int offset, int count) throws IOException {
    Objects.checkFromIndexSize(offset, count, to.length);
    checkOpen();
    if (count == 0) {
      return 0;
    }
    boolean isThere = position >= gatheredAt && position < gatheredAt + gatheredCount;
    int n;
    if (isThere || count < GATHERED) {
      if (!gather()) {
        return -1;
      }
      int from = (int) (position - gatheredAt);
      n = Math.min(count, gatheredCount - from);
      System.arraycopy(gathered, from, to, offset, n);
    } else {
      n = Native.read(file.number, position, to, offset, count);
    }
    position += Math.max(n, 0);
    return told(n);
  }

  @Override
  public synchronized int read(ByteBuffer to) throws IOException {
    checkOpen();
    int count = to.remaining();
    if (count == 0) {
      return 0;
    }
    if (!to.isDirect()) {
      return readHeap(to);
    }
    checkWritable(to);
    int n = count >= LARGE
        ? readAtDirect(position, to, count)
        : Native.readDirect(file.number, position, to, to.position(), count);
    to.position(to.position() + n);
    position += n;
    return told(n);
  }

  private int readHeap(ByteBuffer to) throws IOException {
    checkWritable(to);
    int n = read(to.array(), to.arrayOffset() + to.position(), to.remaining());
    to.position(to.position() + Math.max(n, 0));
    return n;
  }

  private static void checkWritable(ByteBuffer to) {
    if (to.isReadOnly()) {
      throw new ReadOnlyBufferException();
    }
  }

  private void checkPosition(long at) throws IOException {
    checkOpen();
    if (at < 0) {
      throw new EOFException(path + ": " + FSExceptionMessages.NEGATIVE_SEEK + " " + at);
    }
  }

  @Override
  public int read(long at, byte[] to, int offset, int count) throws IOException {
    validatePositionedReadArgs(at, to, offset, count);
    Objects.checkFromIndexSize(offset, count, to.length);
    checkPosition(at);
    return count == 0 ? 0 : told(readAt(at, to, offset, count));
  }

  @Override
  public void readFully(long at, byte[] to, int offset, int count) throws IOException {
    validatePositionedReadArgs(at, to, offset, count);
    Objects.checkFromIndexSize(offset, count, to.length);
    checkPosition(at);
    if (count > 0 && told(readAt(at, to, offset, count)) < count) {
      throw end(at, count);
    }
  }

  private int readAt(long at, byte[] to, int offset, int count) throws IOException {
    try {
      return Native.readAt(file.number, at, to, offset, count);
    } finally {
      // The cleaner leaves the file open until here.
      Reference.reachabilityFence(this);
    }
  }

  private int readAtDirect(long at, ByteBuffer to, int count) throws IOException {
    try {
      return Native.readAtDirect(file.number, at, to, to.position(), count);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  private EOFException end(long at, int count) {
    return new EOFException(path + ": " + FSExceptionMessages.EOF_IN_READ_FULLY + ": " + count + " bytes at " + at + " of " + length);
  }

  @Override
  public int read(long at, ByteBuffer to) throws IOException {
    checkPosition(at);
    checkWritable(to);
    int count = to.remaining();
    if (count == 0) {
      return 0;
    }
    int n = to.isDirect()
        ? readAtDirect(at, to, count)
        : readAt(at, to.array(), to.arrayOffset() + to.position(), count);
    to.position(to.position() + n);
    return told(n);
  }

  @Override
  public void readFully(long at, ByteBuffer to) throws IOException {
    int count = to.remaining();
    if (count > 0 && read(at, to) < count) {
      throw end(at, count);
    }
  }

  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
    // A buffer that is not used is left to the collector.
    readVectored(ranges, allocate, buffer -> {});
  }

  /** Hadoop 3.4.2 and later call it; 3.4.1 does not know it. */
  public void readVectored(
      List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate, Consumer<ByteBuffer> release) throws IOException {
    checkOpen();
    Objects.requireNonNull(release, "release");
    for (FileRange range : VectoredReadUtils.validateAndSortRanges(ranges, Optional.of(length))) {
      CompletableFuture<ByteBuffer> data = new CompletableFuture<>();
      range.setData(data);
      executor.execute(() -> readRange(range, allocate, release, data));
    }
  }

  private void readRange(
      FileRange range, IntFunction<ByteBuffer> allocate, Consumer<ByteBuffer> release, CompletableFuture<ByteBuffer> data) {
    ByteBuffer buffer = null;
    try {
      buffer = allocate.apply(range.getLength());
      buffer.limit(buffer.position() + range.getLength());
      buffer.mark();
      readFully(range.getOffset(), buffer);
      buffer.reset();
      data.complete(buffer);
    } catch (IOException | RuntimeException | Error e) {
      if (buffer != null) {
        release.accept(buffer);
      }
      data.completeExceptionally(e);
    }
  }

  @Override
  public synchronized void close() throws IOException {
    gathered = null;
    gatheredCount = 0;
    file.close();
  }

  @Override
  public boolean hasCapability(String capability) {
    switch (capability.toLowerCase(Locale.ENGLISH)) {
      case StreamCapabilities.READBYTEBUFFER:
      case StreamCapabilities.PREADBYTEBUFFER:
      case StreamCapabilities.VECTOREDIO:
        return true;
      default:
        return false;
    }
  }

  @Override
  public String toString() {
    return "WeirInputStream{" + path + " at " + position + " of " + length + "}";
  }
}
