package io.weir.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The driver's part: it makes the application's directory and removes it, removes shuffles that are not needed any more, and says from time to
 * time that the application lives. The directory of one whose driver was killed is removed by the next application that starts after
 * {@code spark.weir.shuffle.ttl}.
 */
final class DriverPart implements ShuffleDriverComponents {
  private static final Logger LOG = LoggerFactory.getLogger(DriverPart.class);
  /** Signs of life in the time that makes an application a dead one. */
  private static final int SIGNS = 4;

  private final SparkConf conf;
  private ShuffleFiles files;
  private ScheduledExecutorService signs;

  DriverPart(SparkConf conf) {
    this.conf = conf;
  }

  @Override
  public Map<String, String> initializeApplication() {
    long ttl = ttlMillis(conf);
    try {
      files = ShuffleFiles.of(conf);
      files.makeDirectory();
      int removed = files.removeDead(System.currentTimeMillis() - ttl);
      if (removed > 0) {
        LOG.info("shuffles of {} dead applications are removed from {}", removed, conf.get(ShuffleFiles.ROOT));
      }
    } catch (IOException e) {
      throw new UncheckedIOException("weir: no shuffle in " + conf.get(ShuffleFiles.ROOT) + ": " + e.getMessage(), e);
    }
    signs = Executors.newSingleThreadScheduledExecutor(task -> {
      Thread thread = new Thread(task, "weir shuffle sign of life");
      thread.setDaemon(true);
      return thread;
    });
    long every = Math.max(ttl / SIGNS, 1);
    signs.scheduleAtFixedRate(this::sign, every, every, TimeUnit.MILLISECONDS);
    return Map.of();
  }

  /** How long an application may be silent, in milliseconds. */
  static long ttlMillis(SparkConf conf) {
    long ttl = conf.getTimeAsMs(ShuffleFiles.TTL, "1h");
    if (ttl < 1_000) {
      throw new IllegalArgumentException(ShuffleFiles.TTL + " is " + ttl + " ms: at least 1s is needed");
    }
    return ttl;
  }

  private void sign() {
    try {
      files.touch(System.currentTimeMillis());
    } catch (IOException e) {
      LOG.warn("{} cannot be touched: another application removes it when {} is over", files.directory(), ShuffleFiles.TTL, e);
    }
  }

  @Override
  public boolean supportsReliableStorage() {
    return true;
  }

  @Override
  public void removeShuffle(int shuffleId, boolean blocking) {
    // Executors forget it, and remove what is on their own disks.
    SparkEnv.get().blockManager().master().removeShuffle(shuffleId, blocking);
    try {
      files.removeShuffle(shuffleId);
    } catch (IOException e) {
      LOG.warn("shuffle {} stays in {} until the application ends", shuffleId, files.directory(), e);
    }
  }

  @Override
  public void cleanupApplication() {
    if (signs == null) {
      return;
    }
    signs.shutdownNow();
    try (ShuffleFiles ended = files) {
      ended.removeDirectory();
    } catch (IOException e) {
      LOG.warn("{} stays until another application starts after {}", files.directory(), ShuffleFiles.TTL, e);
    }
  }
}
