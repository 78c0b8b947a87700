"""Reading: the streaming query of a running job, whose micro-batches become its epochs.

    Spark's Kafka source ─► foreachBatch: the offsets at which it ends ─► the pipeline's next epoch

Where a job is, its table says; so the query's own checkpoint is thrown away with it.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.core.time.job_time import Place
from jobs.edge.kafka.source import changes_stream, planned_ends, with_new_partitions
from jobs.edge.spark.session import fast_directory
from jobs.running.pipeline import Pipeline
from schemas.spec.connections import spark_options
from schemas.table.epoch import Offsets
from schemas.table.object_path import TablePath

if TYPE_CHECKING:
    from jobs.running.job import Job

log = logging.getLogger(__name__)

# What Spark would note of each micro-batch in the checkpoint cost a tenth of a second: it may do so
# once an hour, in a thread of its own.
NO_PROGRESS_TRACKING = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "3600000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


class Stopping(Exception):
    """Raised inside a micro-batch that begins after the job was told to stop."""


class Reading:
    """The streaming query, which may have to begin anew to leave partitions out or take them in
    again. Nothing lives in its checkpoint, so that takes a fraction of a second."""

    def __init__(self, job: Job, spark: SparkSession, pipeline: Pipeline, starts: Offsets) -> None:
        self._job = job
        self._spark = spark
        self._pipeline = pipeline
        self._turn = 0
        self._left_out: frozenset[Place] = frozenset()
        self._scratch: Path | None = None
        self.query: StreamingQuery | None = None
        self._begin(starts)

    def leave_out(self, paused: frozenset[Place]) -> None:
        """Read all partitions but these from now on."""
        if paused == self._left_out:
            return
        with self._pipeline.epoch_lock:  # no epoch runs, and none of the old query begins
            self._turn += 1
            starts = with_new_partitions(self._pipeline.newest.offsets, self._job.log_ends())
            self._left_out = self._pipeline.clock.paused
        self._stop_query()
        names = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self._left_out))
        log.info("reading without %s", names) if names else log.info("reading all partitions")
        self._begin(starts)

    def end(self) -> None:
        self._turn += 1
        self._stop_query()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _stop_query(self) -> None:
        query, self.query = self.query, None
        if query is not None:
            with suppress(Exception):
                query.stop()

    def _begin(self, starts: Offsets) -> None:
        if self._left_out:
            starts = {
                topic: {p: at for p, at in found.items() if (topic, int(p)) not in self._left_out}
                for topic, found in starts.items()
            }
            starts = {topic: found for topic, found in starts.items() if found}
            if not starts:  # all wait for other jobs
                return
        job, pipeline, turn, spark = self._job, self._pipeline, self._turn, self._spark
        scratch = fresh_scratch(fast_directory(job.data), pipeline.table.root)
        self._scratch = scratch
        connection = spark_options(job.connections.named(job.spec.source.connection))
        stream = changes_stream(
            spark, connection, starts, job.spec.minibatch, some=bool(self._left_out)
        )

        def run(_changes: DataFrame, _batch: int) -> None:
            try:
                with pipeline.epoch_lock:
                    if job.stopping or turn != self._turn:
                        raise Stopping
                    if not job.master.startswith("local"):  # executors come and go
                        pipeline.cores = spark.sparkContext.defaultParallelism
                    pipeline.run_epoch(planned_ends(spark))
            except Stopping:
                raise
            except BaseException as failure:
                job.fail(failure)
                raise RuntimeError(str(failure)) from failure

        self.query = (
            stream.writeStream.foreachBatch(run)
            .option("checkpointLocation", str(scratch))
            .options(**NO_PROGRESS_TRACKING)
            .queryName(f"{job.spec.name}-{turn}")
            .trigger(processingTime="0 seconds")
            .start()
        )


def fresh_scratch(parent: Path, table: TablePath) -> Path:
    """A directory for the throw-away checkpoint. What a killed run of this job left goes first:
    the caller holds the job's lock, so nobody else uses it."""
    mine = f"retally-{zlib.crc32(str(table).encode()):08x}-"
    for old in parent.glob(f"{mine}*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=mine, dir=parent))
