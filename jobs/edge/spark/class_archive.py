"""Write the JVM's archive of Spark's classes, which a job's start maps into memory.

    make setup ─► python -m jobs.edge.spark.class_archive: a session does what a job does, and ends
                        └─► .jars/spark.jsa ─► every later start

A start loads about 15,000 classes. To read, check and link them from jars takes seconds. The
archive fits only the Java build and class path that wrote it. Another JVM ignores it and starts as
it would without an archive, so nothing depends on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jobs.core.homes import Placement
from jobs.edge.machine.jars import class_archive
from jobs.edge.spark.placed_tasks import PlacedTasks, pack_target
from jobs.edge.spark.session import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WRITE_SECONDS_MAX = 180
_NO_BROKER = "127.0.0.1:1"  # a Kafka client loads its classes before it connects


def write_archive() -> None:
    """Write the archive, in place of an older one."""
    found = class_archive()
    partial = found.with_suffix(".partial")
    found.unlink(missing_ok=True)
    os.environ["RETALLY_JAVA_OPTIONS"] = f'"-XX:ArchiveClassesAtExit={partial}" -Xlog:cds*=off'
    # Without our daemon, which would compile the kernels that the set-up compiles at the same time.
    spark = session("classes", settings={"spark.python.daemon.module": "pyspark.daemon"})
    run_batch(spark)
    run_streams(spark)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()  # the JVM ends when its input ends
    gateway.proc.wait(WRITE_SECONDS_MAX)
    partial.rename(found)


def _send_each(numbers: Iterable[int]) -> Iterator[bytes]:
    for number in numbers:
        yield pack_target(number)
        yield b"record"


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def run_batch(spark: SparkSession) -> None:
    """Run what epochs and audits run: Python tasks, as RDDs and of SQL, with a shuffle."""
    from pyspark.sql import functions as F

    sent = spark.sparkContext.parallelize(range(8), 4).mapPartitions(_send_each)
    assert len(PlacedTasks().shuffle(sent, Placement(2), 8).collect()) == 8
    rows = spark.range(0, 8, 1, 4).mapInArrow(_same, "id long")
    texts = rows.select("id", F.col("id").cast("string").alias("name"))
    kept = texts.where(F.col("name").isNotNull())
    shuffled = kept.repartitionById(2, (F.col("id") % 2).cast("int"))
    shuffled.mapInArrow(_same, "id long, name string").collect()


def run_streams(spark: SparkSession) -> None:
    """Run micro-batches, and Kafka's source as far as it gets without a broker."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def count_rows(rows: DataFrame, _: int) -> None:
        rows.count()

    one = rate.writeStream.foreachBatch(count_rows).trigger(availableNow=True).start()
    one.awaitTermination(10)
    kafka = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", _NO_BROKER)
        .option("kafka.default.api.timeout.ms", "1000")
        .option("kafka.request.timeout.ms", "900")
        .option("fetchOffset.numRetries", "1")
        .option("subscribe", "none")
        .option("startingOffsets", '{"none": {"0": 0}}')
        .load()
    )
    with suppress(Exception):
        kafka.writeStream.foreachBatch(count_rows).start().awaitTermination(10)


if __name__ == "__main__":
    try:
        write_archive()
    except (OSError, subprocess.TimeoutExpired) as problem:
        sys.exit(f"cannot write the archive of Spark's classes: {problem}; jobs start without it")
