package io.weir.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleBlockResolver;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleManager;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.sort.SortShuffleManager;

/**
 * Spark's sort shuffle with its files in a store: {@code spark.shuffle.manager=io.weir.spark.WeirShuffleManager}.
 *
 * <pre>
 *   spark.weir.shuffle.root     where: weir://HOST:PORT/path                              [none: it must be set]
 *   spark.weir.shuffle.classes  classes of the files, best first, with commas between     [the directory's, or the store's]
 *   spark.weir.shuffle.copies   copies of each block, 1 to 4                              [fs.weir.copies, or 1]
 *   spark.weir.shuffle.ttl      an application that is silent for so long is dead         [1h]
 * </pre>
 */
public final class WeirShuffleManager implements ShuffleManager {
  private static final String PLUGIN = "spark.shuffle.sort.io.plugin.class";

  private final SparkConf conf;
  private final StoreBlocks blocks;
  private SortShuffleManager sort;

  /**
   * Spark makes it, in the driver before it asks for the class that writes: this names that class.
   *
   * @throws IllegalArgumentException where a setting is missing, or does not go with this one
   */
  public WeirShuffleManager(SparkConf conf, boolean isDriver) {
    this.conf = conf;
    this.blocks = new StoreBlocks(conf);
    ShuffleFiles.root(conf);
    DriverPart.ttlMillis(conf);
    refuse(conf, "spark.shuffle.useOldFetchProtocol", "attempts of a task would share a name");
    refuse(conf, "spark.shuffle.push.enabled", "push-based shuffle is not offered");
    refuse(conf, "spark.shuffle.service.enabled", "executors read the store, and no shuffle service");
    refuse(conf, "spark.storage.decommission.shuffleBlocks.enabled", "outputs do not lie on executors");
    String plugin = WeirShuffleDataIO.class.getName();
    if (!conf.get(PLUGIN, plugin).equals(plugin)) {
      throw new IllegalArgumentException(PLUGIN + " is " + conf.get(PLUGIN) + ": with this spark.shuffle.manager leave it out");
    }
    conf.set(PLUGIN, plugin);
    // They serve to tell what damaged a block on an executor's disk. The store checks its own blocks.
    conf.setIfMissing("spark.shuffle.checksum.enabled", "false");
  }

  private static void refuse(SparkConf conf, String key, String why) {
    if (conf.getBoolean(key, false)) {
      throw new IllegalArgumentException(key + " is true: " + why + "; set it to false");
    }
  }

  /** Made late: the application's number is known then. */
  private synchronized SortShuffleManager sort() {
    if (sort == null) {
      sort = new SortShuffleManager(conf);
    }
    return sort;
  }

  @Override
  public <K, V, C> ShuffleHandle registerShuffle(int shuffleId, ShuffleDependency<K, V, C> dependency) {
    try {
      ShuffleFiles.of(conf).makeShuffle(shuffleId);
    } catch (IOException e) {
      throw new UncheckedIOException("weir: shuffle " + shuffleId + " cannot be made: " + e.getMessage(), e);
    }
    return sort().registerShuffle(shuffleId, dependency);
  }

  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    return sort().getWriter(handle, mapId, context, metrics);
  }

  @Override
  @SuppressWarnings("unchecked")
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle,
      int startMapIndex,
      int endMapIndex,
      int startPartition,
      int endPartition,
      TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    var outputs = SparkEnv.get()
        .mapOutputTracker()
        .getMapSizesByExecutorId(handle.shuffleId(), startMapIndex, endMapIndex, startPartition, endPartition);
    boolean inBatches = StoreReader.inBatches(startPartition, endPartition, context);
    return new StoreReader<>((BaseShuffleHandle<K, ?, C>) handle, outputs, inBatches, context, metrics);
  }

  @Override
  public boolean unregisterShuffle(int shuffleId) {
    try {
      ShuffleFiles.of(conf).forgetShuffle(shuffleId);
    } catch (IOException e) {
      // Without a store nothing is known of it.
    }
    return sort().unregisterShuffle(shuffleId);
  }

  @Override
  public ShuffleBlockResolver shuffleBlockResolver() {
    return blocks;
  }

  @Override
  public synchronized void stop() {
    if (sort != null) {
      sort.stop();
    }
  }
}
