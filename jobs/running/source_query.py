"""Run the streaming query of a job; each of its micro-batches becomes an epoch.

    Spark's Kafka source ─► foreachBatch: end offsets of the batch ─► the pipeline's next epoch

The table has the offsets of the job, so each query starts with an empty checkpoint.
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

from jobs.edge.kafka.source import add_new_partitions, read_changes, read_planned_ends
from jobs.running.pipeline import Pipeline
from schemas.table.epoch import Offsets, TopicPartition
from schemas.table.object_path import TablePath

log = logging.getLogger(__name__)
# Its copy of the stack of a failed epoch buries the reason, which the driver raises and reports.
logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)

# Writing each micro-batch to the checkpoint took 0.1 s, so Spark writes once an hour, in a thread.
NO_PROGRESS_TRACKING = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "3600000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


class Stopping(Exception):
    """Raised in a micro-batch that begins after the job or its query was stopped."""


class EpochFailed(Exception):
    """Ends a streaming query; the driver raises the exception that made the epoch fail."""


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """The settings of a job's query: the brokers, and the directory of the checkpoint."""

    connections: Mapping[str, Mapping[str, str]]  # by name: options of Spark's Kafka source
    scratch: Path


class SourceQuery:
    """The streaming query of a job; a new query replaces it when partitions pause or resume.

    The checkpoint is empty, so a replacement takes a fraction of a second. `read_log_ends` returns
    the end offsets of the topics. `on_failure` gets the exception of an epoch, in the query's
    thread.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        settings: QuerySettings,
        *,
        read_log_ends: Callable[[], Offsets],
        on_failure: Callable[[BaseException], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._settings = settings
        self._read_log_ends = read_log_ends
        self._on_failure = on_failure
        self._is_stopping = is_stopping
        self._number = 0
        self._left_out: frozenset[TopicPartition] = frozenset()
        self._scratch: Path | None = None
        self.query: StreamingQuery | None = None

    def leave_out(self, paused: frozenset[TopicPartition]) -> None:
        """Read all partitions except `paused` from now on."""
        if self._of_topics(paused) == self._left_out:
            return
        with self._pipeline.between_epochs():  # after it, no epoch of the old query begins
            self._number += 1
            starts = add_new_partitions(self._pipeline.newest.offsets, self._read_log_ends())
            self._left_out = self._of_topics(self._pipeline.clock.paused)
        self._stop_query()
        names = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self._left_out))
        log.info("reading without %s", names) if names else log.info("reading all partitions")
        self.start(starts)

    def _of_topics(self, paused: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions of topics; the others are files."""
        topics = self._pipeline.spec.topic_connections
        return frozenset(each for each in paused if each.topic in topics)

    def close(self) -> None:
        """Stop the query and delete its checkpoint."""
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
        """Start a query at these offsets, unless all partitions are paused, or files."""
        if self._left_out:
            starts = {
                topic: {p: at for p, at in found.items() if (topic, int(p)) not in self._left_out}
                for topic, found in starts.items()
            }
            starts = {topic: found for topic, found in starts.items() if found}
        if not (clusters := self._list_clusters(starts)):
            return
        pipeline, spark, number = self._pipeline, self._spark, self._number
        scratch = create_scratch(self._settings.scratch, pipeline.table.root)
        self._scratch = scratch
        minibatch, some = pipeline.spec.minibatch, bool(self._left_out)
        stream = read_changes(spark, clusters, minibatch, some=some)

        def run(_changes: DataFrame, _batch: int) -> None:
            try:
                with pipeline.between_epochs():
                    if self._is_stopping() or number != self._number:
                        raise Stopping
                    pipeline.run_epoch(read_planned_ends(spark))
            except Stopping:
                raise
            except BaseException as failure:
                self._on_failure(failure)
                # The driver raises `failure`. Spark gets a short text, because it searches the text
                # with a regular expression that overflows the stack on a long one.
                raise EpochFailed(type(failure).__name__) from None

        self.query = (
            stream.writeStream.foreachBatch(run)
            .option("checkpointLocation", str(scratch))
            .options(**NO_PROGRESS_TRACKING)
            .queryName(f"{pipeline.spec.name}-{number}")
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _list_clusters(self, starts: Offsets) -> list[tuple[Mapping[str, str], Offsets]]:
        """Return the options of each cluster from which something is read, and its offsets."""
        clusters = []
        for name, topics in self._pipeline.spec.topics_by_connection.items():
            if offsets := {topic: starts[topic] for topic in topics if topic in starts}:
                clusters.append((self._settings.connections[name], offsets))
        return clusters


def create_scratch(parent: Path, table: TablePath) -> Path:
    """Create a directory for the checkpoint, and delete those of killed runs of this job.

    The caller holds the job's lock, so no other process uses them.
    """
    mine = f"retally-{zlib.crc32(str(table).encode()):08x}-"
    for old in parent.glob(f"{mine}*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=mine, dir=parent))
