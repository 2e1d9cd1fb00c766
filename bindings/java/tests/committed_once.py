"""Spark over a store: every row that is written is there, once, whatever becomes of the task that writes it.

usage: committed_once.py MASTER JAR STORE, where STORE is the address of the metadata service: HOST:PORT or unix:PATH

Prints a line for each thing that holds, and `spark: all held` as the last one. The workers of MASTER are to be on two hosts: Spark runs the
speculative copy of a task on another host only.
"""

import os
import signal
import sys
import tempfile
import time

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ROWS = 100_000
PARTITIONS = 8
"""Values of the column that folders are made of, and tasks of a stage."""
STRAGGLING = 120
"""Seconds that a task takes which a copy overtakes."""


def session(master: str, jar: str, store: str) -> SparkSession:
    """A session whose committer is the classic one: each task's files are renamed when it commits, and again when the job does."""
    settings = {
        "spark.jars": jar,
        "spark.hadoop.fs.weir.impl": "io.weir.hadoop.WeirFileSystem",
        "spark.hadoop.fs.weir.address": store,
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
        "spark.hadoop.parquet.hadoop.vectored.io.enabled": "true",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.5",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "768m",
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master(master).appName("committed once")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class Files:
    """The store's names, as Hadoop has them."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm = spark._jvm
        self.conf = spark._jsc.hadoopConfiguration()

    def below(self, path: str) -> list[str]:
        """All files below a directory."""
        root = self.jvm.org.apache.hadoop.fs.Path(path)
        found = root.getFileSystem(self.conf).listFiles(root, True)
        names = []
        while found.hasNext():
            names.append(found.next().getPath().toString())
        return names

    def names(self, path: str) -> list[str]:
        """The names in a directory."""
        root = self.jvm.org.apache.hadoop.fs.Path(path)
        return [status.getPath().getName() for status in root.getFileSystem(self.conf).listStatus(root)]


def held(what: str, found: object, expected: object) -> None:
    """Ends the program unless both are equal."""
    if found != expected:
        sys.exit(f"WRONG {what}: {found}, expected {expected}")
    print(f"held  {what}: {found}", flush=True)


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Rows with the numbers from `first` on."""
    numbers = spark.range(first, first + count, numPartitions=PARTITIONS)
    return numbers.select(
        (F.col("id") % PARTITIONS).cast("int").alias("part"), "id", (F.col("id") * 3).alias("value"), F.hex("id").alias("text")
    )


def sums(frame: DataFrame) -> tuple[int, int, int]:
    """How many rows, how many different ones, and the sum of their values."""
    row = frame.agg(F.count("*"), F.countDistinct("id"), F.sum("value")).first()
    return row[0], row[1], int(row[2] or 0)


def expected(first: int, count: int, times: int = 1) -> tuple[int, int, int]:
    """The `sums` of rows that were written so many times."""
    return count * times, count, 3 * times * (first * count + count * (count - 1) // 2)


def is_committed(files: Files, path: str) -> None:
    """Nothing of the committer's work is left."""
    names = files.names(path)
    held(f"{path} is committed", ("_SUCCESS" in names, "_temporary" in names), (True, False))
    left = [name for name in files.below(path) if "_temporary" in name or "attempt_" in name]
    held(f"{path} has nothing of an attempt", left, [])


def parquet(spark: SparkSession, files: Files) -> None:
    """Written, overwritten, appended to, and read with a predicate."""
    path = "weir:///spark/parquet"
    write = rows(spark, 0, ROWS).write.partitionBy("part")
    write.parquet(path)
    is_committed(files, path)
    held("parquet is written and read", sums(spark.read.parquet(path)), expected(0, ROWS))
    folders = sorted(name for name in files.names(path) if name.startswith("part="))
    held("a folder for each value", folders, [f"part={n}" for n in range(PARTITIONS)])

    some = spark.read.parquet(path).where("part = 3 and id < 1000 and text > '1'")
    texts = [n for n in range(3, 1000, PARTITIONS) if f"{n:X}" > "1"]
    held("a predicate on a folder and on columns", some.count(), len(texts))
    pruned = spark.read.parquet(path).where("part = 3")
    held("the rows of a folder", sums(pruned)[0], ROWS // PARTITIONS)
    held("other folders are not read", "PartitionFilters: [isnotnull(part" in plan(pruned), True)

    write.mode("append").parquet(path)
    is_committed(files, path)
    held("parquet is appended to", sums(spark.read.parquet(path)), expected(0, ROWS, times=2))

    rows(spark, 7, ROWS // 2).write.partitionBy("part").mode("overwrite").parquet(path)
    is_committed(files, path)
    held("parquet is overwritten", sums(spark.read.parquet(path)), expected(7, ROWS // 2))

    one = rows(spark, 0, 800).where("part = 5").write.partitionBy("part").mode("overwrite")
    one.option("partitionOverwriteMode", "dynamic").parquet(path)
    now = spark.read.parquet(path)
    held("one folder is overwritten", now.where("part = 5").count(), 100)
    held("the others stay", now.where("part != 5").count(), ROWS // 2 - ROWS // 2 // PARTITIONS)


def plan(frame: DataFrame) -> str:
    """The physical plan."""
    return frame._jdf.queryExecution().executedPlan().toString()


def lines(spark: SparkSession, files: Files) -> None:
    """Text and CSV, the text by Hadoop's older interface too."""
    path = "weir:///spark/text"
    rows(spark, 0, ROWS).select("text").write.text(path)
    is_committed(files, path)
    text = spark.read.text(path)
    held("lines of text", (text.count(), text.distinct().count()), (ROWS, ROWS))
    held("lines by the older interface", spark.sparkContext.textFile(path, 4).count(), ROWS)

    path = "weir:///spark/csv"
    rows(spark, 0, ROWS).write.option("header", True).csv(path)
    is_committed(files, path)
    csv = spark.read.option("header", True).schema("part int, id long, value long, text string").csv(path)
    held("CSV", sums(csv), expected(0, ROWS))


def disturbed(spark: SparkSession, marks: str, disturb) -> DataFrame:
    """Rows of which partition 2 is disturbed, in its first attempt, when half of it was given out. Each attempt leaves a mark."""

    def given(split: int, numbers):
        attempt = TaskContext.get().attemptNumber()
        open(os.path.join(marks, f"{split}-{attempt}"), "w").close()
        for at, number in enumerate(numbers):
            if split == 2 and attempt == 0 and at == ROWS // PARTITIONS // 2:
                disturb()
            yield (number % PARTITIONS, number, number * 3)

    numbers = spark.sparkContext.range(0, ROWS, numSlices=PARTITIONS).mapPartitionsWithIndex(given)
    return spark.createDataFrame(numbers, "part int, id long, value long")


def fails() -> None:
    """The task fails."""
    raise RuntimeError("this attempt is made to fail")


def kills() -> None:
    """The executor that runs the task dies: this is a child of its Python daemon."""
    with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as stat:
        executor = int(stat.read().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)
    time.sleep(STRAGGLING)


def straggles() -> None:
    """The task takes long."""
    time.sleep(STRAGGLING)


def attempts(spark: SparkSession, files: Files) -> None:
    """Tasks that have more than one attempt."""
    for what, disturb in [("fails", fails), ("is overtaken", straggles), ("loses its executor", kills)]:
        path = f"weir:///spark/{what.replace(' ', '-')}"
        with tempfile.TemporaryDirectory() as marks:
            begun = time.monotonic()
            disturbed(spark, marks, disturb).write.partitionBy("part").parquet(path)
            made = [mark for mark in os.listdir(marks) if mark.startswith("2-")]
            held(f"a task {what}: it has another attempt", len(made) > 1, True)
            held(f"a task {what}: nobody waited for it", time.monotonic() - begun < STRAGGLING, True)
        is_committed(files, path)
        held(f"a task {what}: every row is there once", sums(spark.read.parquet(path)), expected(0, ROWS))


def main() -> None:
    """See the module."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    spark = session(*sys.argv[1:])
    hadoop = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    print(f"Spark {spark.version} with Hadoop {hadoop}", flush=True)
    files = Files(spark)
    parquet(spark, files)
    lines(spark, files)
    attempts(spark, files)
    spark.stop()
    print("spark: all held", flush=True)


if __name__ == "__main__":
    main()
