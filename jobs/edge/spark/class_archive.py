"""Spark's classes as a JVM has them in memory, so that a job's start maps them into its own.

    make setup ─► python -m jobs.edge.spark.class_archive: a session does what a job does, and ends
                        └─► .jars/spark.jsa ─► every later start

A start loads some 15,000 classes, and to read, check and link them out of jars takes seconds. The
archive is good for the very Java and the very class path that it was made with; with any other one
the JVM passes it over, and starts as it would without. So nothing depends on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jobs.edge.process.jars import class_archive
from jobs.edge.spark.session import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WRITE_SECONDS_MAX = 180
_NOWHERE = "127.0.0.1:1"  # the classes of a Kafka client are loaded before it knows that


def make() -> None:
    """Make the archive, in place of an older one."""
    found = class_archive()
    partial = found.with_suffix(".partial")
    found.unlink(missing_ok=True)
    os.environ["RETALLY_JAVA_OPTIONS"] = f"-XX:ArchiveClassesAtExit={partial} -Xlog:cds*=off"
    spark = session("classes")
    _batch(spark)
    _stream(spark)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()  # which ends the JVM, in its own time
    gateway.proc.wait(WRITE_SECONDS_MAX)
    partial.rename(found)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _batch(spark: SparkSession) -> None:
    """What an epoch has Spark do: two rounds of Python tasks, with expressions and a shuffle."""
    from pyspark.sql import functions as F

    rows = spark.range(0, 8, 1, 4).mapInArrow(_same, "id long")
    texts = rows.select("id", F.col("id").cast("string").alias("name"))
    kept = texts.where(F.col("name").isNotNull())
    shuffled = kept.repartitionById(2, (F.col("id") % 2).cast("int"))
    shuffled.mapInArrow(_same, "id long, name string").collect()


def _stream(spark: SparkSession) -> None:
    """Micro-batches, and Kafka's source as far as it comes without a broker."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def counted(rows: DataFrame, _: int) -> None:
        rows.count()

    one = rate.writeStream.foreachBatch(counted).trigger(availableNow=True).start()
    one.awaitTermination(10)
    kafka = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", _NOWHERE)
        .option("kafka.default.api.timeout.ms", "1000")
        .option("kafka.request.timeout.ms", "900")
        .option("fetchOffset.numRetries", "1")
        .option("subscribe", "none")
        .option("startingOffsets", '{"none": {"0": 0}}')
        .load()
    )
    with suppress(Exception):
        kafka.writeStream.foreachBatch(counted).start().awaitTermination(10)


if __name__ == "__main__":
    try:
        make()
    except (OSError, subprocess.TimeoutExpired) as problem:
        sys.exit(f"no archive of classes: {problem}; jobs start without it")
