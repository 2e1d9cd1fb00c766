"""Spark's shuffle on a store: the same results as with Spark's own, and no map task runs again when an executor is lost.

usage: shuffled.py MASTER JAR STORE, where STORE is the address of the metadata service: HOST:PORT or unix:PATH

Prints a line for each thing that holds, and `spark: all held` as the last one. The workers of MASTER are to be on two hosts.
"""

import glob
import os
import signal
import sys
import tempfile
import time
import uuid

from committed_once import held
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROWS = 40_000
MAPS = 6
ROOT = "weir:///spark-shuffle"
STRAGGLING = 120
"""Seconds that a task takes which a copy overtakes."""


class Spark:
    """Sessions, one after the other, and where they are."""

    def __init__(self, master: str, jar: str, store: str) -> None:
        self.master, self.jar, self.store = master, jar, store

    def session(self, on_store: bool = True, **more: str) -> SparkSession:
        """A session with its shuffle on the store, or with Spark's own."""
        settings = {
            "spark.jars": self.jar,
            "spark.hadoop.fs.weir.impl": "io.weir.hadoop.WeirFileSystem",
            "spark.hadoop.fs.weir.address": self.store,
            "spark.hadoop.fs.weir.deadline": "5s",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "5",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.ui.enabled": "false",
        }
        if on_store:
            settings["spark.shuffle.manager"] = "io.weir.spark.WeirShuffleManager"
            settings["spark.weir.shuffle.root"] = ROOT
            settings["spark.weir.shuffle.classes"] = "flash"
        settings.update({key.replace("_", "."): value for key, value in more.items()})
        builder = SparkSession.builder.master(self.master).appName("shuffled")
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def stop(self, spark: SparkSession) -> None:
        """Ends a session; the next one has none of its settings."""
        spark.stop()
        SparkSession.builder._options.clear()


def results(spark: SparkSession) -> dict[str, object]:
    """What jobs with shuffles of every kind give."""
    sc = spark.sparkContext
    numbers = sc.parallelize(range(ROWS), MAPS)
    left = spark.range(ROWS).select("id", (F.col("id") % 97).alias("key"))
    right = spark.range(0, ROWS, 3).select("id", F.hex("id").alias("text"))
    ordered = left.orderBy(F.col("key").desc(), "id").collect()
    joined = left.join(right, "id").agg(F.count("*"), F.sum("key"), F.max("text")).first()
    return {
        "words are counted": sorted(numbers.map(lambda n: (f"word {n % 101}", 1)).reduceByKey(lambda a, b: a + b).collect()),
        "values are grouped": sorted((key, sorted(values)) for key, values in numbers.keyBy(lambda n: n % 13).groupByKey(7).collect()),
        "pairs are sorted": numbers.map(lambda n: (n * 7919 % ROWS, n)).sortByKey(numPartitions=4).collect(),
        "columns are grouped": sorted(tuple(row) for row in left.groupBy("key").agg(F.count("*"), F.sum("id")).collect()),
        "rows are ordered": [tuple(row) for row in ordered],
        "tables are joined": tuple(joined),
        "rows are spread": sorted(row[0] for row in left.repartition(250, "key").collect()),
    }


def same_results(spark: Spark) -> None:
    """The writers of Spark that are for few partitions, for rows, and for all else."""
    session = spark.session(on_store=False)
    expected = results(session)
    spark.stop(session)
    for threshold in ["200", "1"]:
        session = spark.session(spark_shuffle_sort_bypassMergeThreshold=threshold)
        for what, found in results(session).items():
            held(f"{what}, from {threshold} partitions on by sorting", found == expected[what], True)
        spark.stop(session)


def marked(sc: SparkContext, marks: str, straggle: float = 0):
    """Pairs whose map tasks leave a mark each time that they run. The first attempt of one of them takes long."""

    def given(split: int, numbers):
        open(os.path.join(marks, f"{split}-{uuid.uuid4()}"), "w").close()
        if split == 2 and TaskContext.get().attemptNumber() == 0:
            time.sleep(straggle)
        for number in numbers:
            yield number % 10, number

    return sc.parallelize(range(ROWS), MAPS).mapPartitionsWithIndex(given).groupByKey(4)


def total(pairs) -> int:
    """The sum of all values, each of which was shuffled."""
    return pairs.mapValues(sum).values().sum()


EXPECTED = ROWS * (ROWS - 1) // 2


def kill_an_executor(session: SparkSession) -> None:
    """Kills one, and waits until the driver has lost it."""
    sc = session.sparkContext
    with tempfile.TemporaryDirectory() as marks:
        mark = os.path.join(marks, "killed")

        def kill(_: int) -> None:
            if os.path.exists(mark):
                return
            with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as stat:
                executor = stat.read().rpartition(")")[2].split()[1]
            with open(mark, "w", encoding="ascii") as file:
                file.write(executor)
            os.kill(int(executor), signal.SIGKILL)
            time.sleep(STRAGGLING)

        sc.parallelize([0], 1).foreach(kill)


def executor_lost(spark: Spark) -> None:
    """With Spark's own shuffle map tasks run again, on the store none."""
    for on_store in [False, True]:
        session = spark.session(on_store=on_store)
        with tempfile.TemporaryDirectory() as marks:
            pairs = marked(session.sparkContext, marks)
            held("values before an executor is killed", total(pairs), EXPECTED)
            held("map tasks that ran", len(os.listdir(marks)), MAPS)
            kill_an_executor(session)
            held("values after an executor was killed", total(pairs), EXPECTED)
            again = len(os.listdir(marks)) - MAPS
            where = "on the store" if on_store else "with Spark's own shuffle"
            held(f"map tasks run again {where}", again > 0, not on_store)
        spark.stop(session)


def overtaken(spark: Spark) -> None:
    """A task that has a speculative copy counts once."""
    more = {"spark_speculation": "true", "spark_speculation_interval": "100ms", "spark_speculation_quantile": "0.5"}
    session = spark.session(spark_speculation_minTaskRuntime="500ms", spark_speculation_multiplier="1.5", **more)
    with tempfile.TemporaryDirectory() as marks:
        begun = time.monotonic()
        pairs = marked(session.sparkContext, marks, STRAGGLING)
        held("values of a task that is overtaken", total(pairs), EXPECTED)
        held("it has another attempt", len(glob.glob(f"{marks}/2-*")) > 1, True)
        held("nobody waited for it", time.monotonic() - begun < STRAGGLING, True)
    spark.stop(session)


def main() -> None:
    """See the module."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    spark = Spark(*sys.argv[1:])
    print("Spark's shuffle on the store", flush=True)
    same_results(spark)
    executor_lost(spark)
    overtaken(spark)
    print("spark: all held", flush=True)


if __name__ == "__main__":
    main()
