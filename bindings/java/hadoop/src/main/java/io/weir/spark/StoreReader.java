package io.weir.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.FetchFailed;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.BlockStoreShuffleReader;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import scala.Product2;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's own reader, which is told that every block is one of this executor's: {@link StoreBlocks} gives it then. Where a block cannot be
 * had, Spark's scheduler is told of the executor that wrote it, as it knows the output by that.
 */
final class StoreReader<K, C> implements ShuffleReader<K, C> {
  private final BlockStoreShuffleReader<K, C> reader;
  private final Map<Integer, BlockManagerId> writers = new HashMap<>();

  /** Reads blocks, which are told with the executor that wrote them. */
  StoreReader(
      BaseShuffleHandle<K, ?, C> handle,
      Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> blocks,
      boolean inBatches,
      TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    SparkEnv env = SparkEnv.get();
    BlockManagerId here = env.blockManager().blockManagerId();
    List<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> local = new ArrayList<>();
    while (blocks.hasNext()) {
      Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> of = blocks.next();
      CollectionConverters.asJava(of._2()).forEach(block -> writers.put((Integer) block._3(), of._1()));
      local.add(new Tuple2<>(here, of._2()));
    }
    reader = new BlockStoreShuffleReader<>(
        handle,
        CollectionConverters.asScala(local.iterator()),
        context,
        metrics,
        env.serializerManager(),
        env.blockManager(),
        env.mapOutputTracker(),
        inBatches);
  }

  /** Whether blocks of neighbouring partitions may be read as one. */
  static boolean inBatches(int startPartition, int endPartition, TaskContext context) {
    return SortShuffleManager.canUseBatchFetch(startPartition, endPartition, context);
  }

  @Override
  public Iterator<Product2<K, C>> read() {
    Iterator<Product2<K, C>> records;
    try {
      records = reader.read();
    } catch (Throwable e) {
      throw failed(e);
    }
    return new AbstractIterator<>() {
      @Override
      public boolean hasNext() {
        try {
          return records.hasNext();
        } catch (Throwable e) {
          throw failed(e);
        }
      }

      @Override
      public Product2<K, C> next() {
        try {
          return records.next();
        } catch (Throwable e) {
          throw failed(e);
        }
      }
    };
  }

  /** Throws the error; a block that cannot be had, with the executor that wrote it. */
  private RuntimeException failed(Throwable error) {
    if (error instanceof FetchFailedException fetch && fetch.toTaskFailedReason() instanceof FetchFailed block) {
      BlockManagerId writer = writers.getOrDefault(block.mapIndex(), block.bmAddress());
      return sneaky(new FetchFailedException(
          writer, block.shuffleId(), block.mapId(), block.mapIndex(), block.reduceId(), fetch.getMessage(), fetch));
    }
    return sneaky(error);
  }

  /** Throws what Scala throws without declaring it. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> RuntimeException sneaky(Throwable error) throws T {
    throw (T) error;
  }
}
