/**
 * Spark's shuffle on a store: the outputs of map tasks are files of the store, which every executor reads. An executor that is lost takes no
 * output with it, so no map task runs again.
 *
 * <pre>
 *   driver                      executor of a map task             executor of a reduce task
 *   WeirShuffleManager          WeirShuffleManager                 WeirShuffleManager
 *     makes a shuffle's           Spark's writers sort and spill     Spark's reader takes every block
 *     directory                   to local disk, and write to        for a local one; StoreBlocks finds
 *   DriverPart                    MapOutputWriter                    it in the store
 *     removes it
 *
 *   ROOT/APPLICATION-START.shuffle/SHUFFLE/TASK    one file for each attempt of a map task: see MapOutput
 * </pre>
 *
 * <p>Spark 4.0 with Scala 2.13. Sorting, serializing, aggregating, compressing and encrypting are Spark's own.
 */
package io.weir.spark;
