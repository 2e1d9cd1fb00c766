package io.weir.spark;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Objects;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.api.ShufflePartitionWriter;
import org.apache.spark.shuffle.api.metadata.MapOutputCommitMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes the output of one attempt of a map task: partition after partition, in the order of their numbers. */
final class MapOutputWriter implements ShuffleMapOutputWriter {
  private static final Logger LOG = LoggerFactory.getLogger(MapOutputWriter.class);

  private final ShuffleFiles files;
  private final int shuffleId;
  private final long mapId;
  private final FSDataOutputStream file;
  private final long[] lengths;
  private int next;

  MapOutputWriter(ShuffleFiles files, int shuffleId, long mapId, int partitions) throws IOException {
    this.files = files;
    this.shuffleId = shuffleId;
    this.mapId = mapId;
    this.file = files.create(shuffleId, mapId);
    this.lengths = new long[partitions];
  }

  @Override
  public ShufflePartitionWriter getPartitionWriter(int partition) throws IOException {
    if (partition < next || partition >= lengths.length) {
      throw new IllegalStateException("partition " + partition + " is asked for; the next of " + lengths.length + " is " + next);
    }
    next = partition + 1;
    return new Partition(partition);
  }

  /**
   * Publishes the file. The attempt counts when the driver has taken its answer: of two attempts of a task it takes one, and readers know the
   * other's file not at all.
   */
  @Override
  public MapOutputCommitMessage commitAllPartitions(long[] checksums) throws IOException {
    file.write(MapOutput.of(lengths).encode());
    file.close();
    return MapOutputCommitMessage.of(lengths);
  }

  @Override
  public void abort(Throwable error) throws IOException {
    try {
      file.close();
    } catch (IOException e) {
      LOG.debug("{} is given up", files.map(shuffleId, mapId), e);
    }
    files.remove(shuffleId, mapId);
  }

  private final class Partition extends OutputStream implements ShufflePartitionWriter {
    private final int number;
    private boolean isClosed;

    Partition(int number) {
      this.number = number;
    }

    @Override
    public OutputStream openStream() {
      return this;
    }

    @Override
    public long getNumBytesWritten() {
      return lengths[number];
    }

    private void checkOpen() throws IOException {
      if (isClosed) {
        throw new IOException(files.map(shuffleId, mapId) + ": partition " + number + " is closed");
      }
    }

    @Override
    public void write(int value) throws IOException {
      checkOpen();
      file.write(value);
      lengths[number]++;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      Objects.checkFromIndexSize(offset, length, bytes.length);
      checkOpen();
      file.write(bytes, offset, length);
      lengths[number] += length;
    }

    /** The file stays open for the next partition. */
    @Override
    public void close() {
      isClosed = true;
    }
  }
}
