package io.weir.spark;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Where the partitions lie in a file that has the output of one attempt of a map task. All numbers are big-endian.
 *
 * <pre>
 *   bytes of partition 0, 1, … n-1   as Spark serialized them
 *   u64 × n                          the end of each partition: bytes from the file's start
 *   u32 n, u32 version, u64 magic    the trailer
 * </pre>
 *
 * <p>The trailer comes last, and a file is published as a whole when it is closed: what has a trailer is complete.
 */
final class MapOutput {
  /** Bytes of the trailer. */
  static final int TRAILER = 16;

  private static final int VERSION = 1;
  /** {@code WEIRSHUF}. */
  private static final long MAGIC = 0x5745_4952_5348_5546L;

  private final long[] ends;

  private MapOutput(long[] ends) {
    this.ends = ends;
  }

  /** How a reader gets bytes of the file. */
  interface Source {
    /** Fills {@code to} from this position on. */
    void read(long position, byte[] to) throws IOException;
  }

  /** Of partitions with these lengths in bytes. */
  static MapOutput of(long[] lengths) {
    long[] ends = Arrays.copyOf(lengths, lengths.length);
    Arrays.parallelPrefix(ends, Math::addExact);
    return new MapOutput(ends);
  }

  /** What follows the partitions in the file. */
  byte[] encode() {
    ByteBuffer bytes = ByteBuffer.allocate(Math.addExact(Math.multiplyExact(ends.length, Long.BYTES), TRAILER));
    for (long end : ends) {
      bytes.putLong(end);
    }
    return bytes.putInt(ends.length).putInt(VERSION).putLong(MAGIC).array();
  }

  /**
   * Of a file.
   *
   * @param size bytes of the file
   * @throws EOFException where the file has no trailer: its writer has not committed it
   * @throws IOException where the trailer does not fit the file, or has another version
   */
  static MapOutput read(Source file, long size) throws IOException {
    if (size < TRAILER) {
      throw new EOFException("it is not complete: it has " + size + " bytes and no trailer");
    }
    byte[] end = new byte[TRAILER];
    file.read(size - TRAILER, end);
    ByteBuffer trailer = ByteBuffer.wrap(end);
    int count = trailer.getInt();
    int version = trailer.getInt();
    if (trailer.getLong() != MAGIC) {
      throw new EOFException("it is not complete: its last " + TRAILER + " bytes are no trailer");
    }
    if (version != VERSION) {
      throw new IOException("it has version " + version + ", and this jar reads version " + VERSION + ": run one jar on all executors");
    }
    long first = size - TRAILER - (long) count * Long.BYTES;
    if (count < 0 || first < 0 || count > Integer.MAX_VALUE / Long.BYTES) {
      throw new IOException("its trailer tells " + count + " partitions, which do not fit " + size + " bytes");
    }
    byte[] index = new byte[count * Long.BYTES];
    file.read(first, index);
    long[] ends = new long[count];
    ByteBuffer.wrap(index).asLongBuffer().get(ends);
    MapOutput output = new MapOutput(ends);
    output.check(first);
    return output;
  }

  private void check(long data) throws IOException {
    long before = 0;
    for (long end : ends) {
      if (end < before) {
        throw new IOException("the ends of its partitions are out of order: " + end + " behind " + before);
      }
      before = end;
    }
    if (before != data) {
      throw new IOException("its partitions end at " + before + ", and it has " + data + " bytes of them");
    }
  }

  /** Partitions. */
  int partitions() {
    return ends.length;
  }

  /** Where a partition starts: bytes from the file's start. Partition {@link #partitions()} starts where the last one ends. */
  long start(int partition) {
    return partition == 0 ? 0 : ends[partition - 1];
  }
}
