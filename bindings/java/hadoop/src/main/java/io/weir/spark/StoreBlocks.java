package io.weir.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.MergedBlockMeta;
import org.apache.spark.shuffle.ShuffleBlockResolver;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockId;
import org.apache.spark.storage.ShuffleMergedBlockId;
import scala.Option;
import scala.collection.immutable.Seq;

/** Finds the blocks of shuffles in the store, whichever executor wrote them. */
final class StoreBlocks implements ShuffleBlockResolver {
  private final SparkConf conf;

  StoreBlocks(SparkConf conf) {
    this.conf = conf;
  }

  @Override
  public ManagedBuffer getBlockData(BlockId blockId, Option<String[]> directories) {
    if (blockId instanceof ShuffleBlockId one) {
      return block(one.shuffleId(), one.mapId(), one.reduceId(), one.reduceId() + 1);
    }
    if (blockId instanceof ShuffleBlockBatchId batch) {
      return block(batch.shuffleId(), batch.mapId(), batch.startReduceId(), batch.endReduceId());
    }
    throw new IllegalArgumentException("weir: " + blockId + " is no block of a shuffle that the store keeps");
  }

  /** The partitions from {@code first} to the one before {@code behind}. */
  private StoreBlock block(int shuffleId, long mapId, int first, int behind) {
    String where = "shuffle " + shuffleId + ", map task " + mapId;
    try {
      ShuffleFiles files = ShuffleFiles.of(conf);
      Path path = files.map(shuffleId, mapId);
      MapOutput output = files.output(path);
      if (first < 0 || first > behind || behind > output.partitions()) {
        throw new IOException(path + " has " + output.partitions() + " partitions, and not " + first + " to " + behind);
      }
      return new StoreBlock(files, path, output.start(first), output.start(behind));
    } catch (IOException e) {
      throw new UncheckedIOException("weir: no output of " + where + ": " + e.getMessage(), e);
    }
  }

  @Override
  public Seq<ManagedBuffer> getMergedBlockData(ShuffleMergedBlockId blockId, Option<String[]> directories) {
    throw merged(blockId);
  }

  @Override
  public MergedBlockMeta getMergedBlockMeta(ShuffleMergedBlockId blockId, Option<String[]> directories) {
    throw merged(blockId);
  }

  private static UnsupportedOperationException merged(BlockId blockId) {
    return new UnsupportedOperationException("weir: " + blockId + ": push-based shuffle is not offered; set spark.shuffle.push.enabled=false");
  }

  @Override
  public void stop() {}
}
