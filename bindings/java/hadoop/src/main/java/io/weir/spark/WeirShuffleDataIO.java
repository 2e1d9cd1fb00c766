package io.weir.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.api.ShuffleDataIO;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.api.ShuffleExecutorComponents;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;

/** How Spark's writers write to the store. {@link WeirShuffleManager} sets it; it is of no use alone. */
public final class WeirShuffleDataIO implements ShuffleDataIO {
  private final SparkConf conf;

  /** Spark makes it. */
  public WeirShuffleDataIO(SparkConf conf) {
    this.conf = conf;
  }

  @Override
  public ShuffleDriverComponents driver() {
    return new DriverPart(conf);
  }

  @Override
  public ShuffleExecutorComponents executor() {
    return new ExecutorPart(conf);
  }

  private static final class ExecutorPart implements ShuffleExecutorComponents {
    private final SparkConf conf;
    private ShuffleFiles files;

    ExecutorPart(SparkConf conf) {
      this.conf = conf;
    }

    @Override
    public void initializeExecutor(String applicationId, String executorId, Map<String, String> extra) {
      try {
        files = ShuffleFiles.of(conf);
      } catch (IOException e) {
        throw new UncheckedIOException("weir: no shuffle in " + conf.get(ShuffleFiles.ROOT) + ": " + e.getMessage(), e);
      }
    }

    @Override
    public ShuffleMapOutputWriter createMapOutputWriter(int shuffleId, long mapId, int partitions) throws IOException {
      return new MapOutputWriter(files, shuffleId, mapId, partitions);
    }
  }
}
