"""The streaming query of a running job, whose micro-batches become its epochs.

    Spark's Kafka source ─► foreachBatch: the offsets at which it ends ─► the pipeline's next epoch

The table holds the offsets of a job, so the checkpoint of the query is thrown away with it.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.core.time.job_time import Place
from jobs.edge.kafka.source import changes_stream, planned_ends, with_new_partitions
from jobs.running.pipeline import Pipeline
from schemas.table.epoch import Offsets
from schemas.table.object_path import TablePath

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


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """How a job's query reads: from which brokers, and with a checkpoint in which directory."""

    connection: Mapping[str, str]  # options of Spark's Kafka source
    scratch: Path
    elastic: bool = False  # executors come and go, so the number of cores changes


class SourceQuery:
    """The streaming query of a job; a new one replaces it when partitions pause or resume.

    The checkpoint holds nothing, so a replacement takes a fraction of a second. `log_ends` returns
    where the topics end, `failed` receives the exception of an epoch, from the query's thread.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        settings: QuerySettings,
        *,
        log_ends: Callable[[], Offsets],
        failed: Callable[[BaseException], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._settings = settings
        self._log_ends = log_ends
        self._failed = failed
        self._stopping = stopping
        self._number = 0
        self._left_out: frozenset[Place] = frozenset()
        self._scratch: Path | None = None
        self.query: StreamingQuery | None = None

    def leave_out(self, paused: frozenset[Place]) -> None:
        """Read all partitions except `paused` from now on."""
        if paused == self._left_out:
            return
        with self._pipeline.between_epochs():  # and no epoch of the old query begins after it
            self._number += 1
            starts = with_new_partitions(self._pipeline.newest.offsets, self._log_ends())
            self._left_out = self._pipeline.clock.paused
        self._stop_query()
        names = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self._left_out))
        log.info("reading without %s", names) if names else log.info("reading all partitions")
        self.start(starts)

    def close(self) -> None:
        self._number += 1
        self._stop_query()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _stop_query(self) -> None:
        query, self.query = self.query, None
        if query is not None:
            with suppress(Exception):
                query.stop()

    def start(self, starts: Offsets) -> None:
        """Start a query at these offsets; without any partition to read, start none."""
        if self._left_out:
            starts = {
                topic: {p: at for p, at in found.items() if (topic, int(p)) not in self._left_out}
                for topic, found in starts.items()
            }
            starts = {topic: found for topic, found in starts.items() if found}
            if not starts:  # all wait for other jobs
                return
        pipeline, spark, number = self._pipeline, self._spark, self._number
        scratch = fresh_scratch(self._settings.scratch, pipeline.table.root)
        self._scratch = scratch
        minibatch, some = pipeline.spec.minibatch, bool(self._left_out)
        stream = changes_stream(spark, self._settings.connection, starts, minibatch, some=some)

        def run(_changes: DataFrame, _batch: int) -> None:
            try:
                with pipeline.between_epochs():
                    if self._stopping() or number != self._number:
                        raise Stopping
                    if self._settings.elastic:
                        pipeline.cores = spark.sparkContext.defaultParallelism
                    pipeline.run_epoch(planned_ends(spark))
            except Stopping:
                raise
            except BaseException as failure:
                self._failed(failure)
                raise RuntimeError(str(failure)) from failure

        self.query = (
            stream.writeStream.foreachBatch(run)
            .option("checkpointLocation", str(scratch))
            .options(**NO_PROGRESS_TRACKING)
            .queryName(f"{pipeline.spec.name}-{number}")
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
