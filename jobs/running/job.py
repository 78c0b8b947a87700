"""Job: everything around the pipeline, from the lock to the last published epoch.

    lock ─► table, newest epoch ─► topics checked ─► publisher: fence, progress, what it missed
                                                 └─► Spark query at the epoch's offsets ─► epochs

One process is one job. SIGTERM finishes the epoch that runs and ends with exit code 0; a crash at
any point is made good by the next start, which begins at the newest epoch of the table.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.core.fold.program import Program
from jobs.core.job.job_plan import plan_of
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan
from jobs.core.time.due_work import other_windows
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import (
    checked_starts,
    first_offsets,
    lag,
    reached,
    same_topics,
    topic_identities,
)
from jobs.edge.process.alignment_group import AlignmentGroup
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.fence import OwnedElsewhere, WriterLock
from jobs.edge.process.generator_class import GeneratorRefused, maker_of
from jobs.edge.process.java import java
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.publisher.job_publisher import Publishing
from jobs.edge.spark.session import fast_directory, session, written_places
from jobs.edge.state.bucket_states import hot_state_of
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import CHANGELOG, AddedFile, TableLayout, now_ms
from jobs.edge.table.table_place import settle
from jobs.running.clock import JobClock
from jobs.running.failure import SpecMisfit, explained, leave_word
from jobs.running.maintenance import Maintenance
from jobs.running.mirror import Mirror
from jobs.running.pipeline import Pipeline
from jobs.running.source_query import QuerySettings, SourceQuery
from schemas.limits import GROUP_OFFSETS_EVERY_SECONDS, STOP_SECONDS_MAX
from schemas.spec.connections import (
    Connections,
    kafka_python_options,
    librdkafka_options,
    spark_options,
)
from schemas.spec.file import load_spec, write_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity
from schemas.table.failure import forget_failure
from schemas.table.object_path import ObjectPath

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.05


class JobFailed(Exception):
    """The job stopped because something is wrong; the message says what and what to do."""


@dataclass(slots=True)
class Progress:
    """How far a job is, for whoever shows it; written by the job, read at any time."""

    newest: EpochRow | None = None
    read: int = 0  # messages since the start of this process
    lag: int | None = None  # records, a few seconds ago
    published: int | None = None


@dataclass(slots=True)
class Job:
    """A running job; `run` returns when it is done, stopped or failed."""

    spec: JobSpec
    data: Path
    connections: Connections
    master: str = "local[2]"
    until_caught_up: bool = False
    tables: ObjectPath | None = None  # where a table is made that is not in the data directory
    progress: Progress = field(default_factory=Progress)
    _stop: threading.Event = field(default_factory=threading.Event)
    _failure: list[BaseException] = field(default_factory=list)
    _sources: dict[str, TopicIdentity] = field(default_factory=dict)
    _watcher: KafkaAdmin | None = None
    _group: AlignmentGroup | None = None

    def run(self) -> None:
        """Everything, in order; the caller turns exceptions into exit codes."""
        place = JobDirectory(self.data.absolute(), self.spec.name)
        lock: WriterLock | None = None
        try:
            lock = WriterLock(place.lock, self.spec.name)
            forget_failure(place.failure)
            before = load_spec(place.spec) if place.begun and place.spec.exists() else None
            if before is not None:
                self.spec = self.spec.ordered_as(before)
            self._run_locked(place, before)
        except OwnedElsewhere:
            raise
        except Exception as failure:
            told = explained(failure, (place.home, place.cache, *written_places()))
            leave_word(place.failure, told)
            raise told from told.__cause__
        finally:
            if lock is not None:
                lock.release()

    def stop(self) -> None:
        """Finish the epoch that runs, then end."""
        self._stop.set()

    def stop_on_signals(self) -> None:
        def handler(number: int, _frame: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL)  # the second one ends the process at once
            self.stop()

        signal.signal(signal.SIGTERM, handler)
        signal.signal(signal.SIGINT, handler)

    def _run_locked(self, place: JobDirectory, before: JobSpec | None) -> None:
        java()  # before anything is taken from a job that runs: without it this one never will
        plan = plan_of(self.spec)
        layout = TableLayout(Program(plan))
        source = self.connections.named(self.spec.source.connection)
        with KafkaAdmin(kafka_python_options(source)) as admin:
            identities = self._sources = topic_identities(admin, self.spec.source.topics)
            settle(place, self.tables)
            self._same_buckets(place, before)
            table, newest = self._table(place, plan, layout, admin, identities)
            if before is None and not newest.fresh:
                raise SpecMisfit(
                    f"{place.spec} is missing, which has the number of buckets that the groups of "
                    f"{self.spec.name!r} lie in; restore it from a backup, or put the spec of the "
                    "last run there"
                )
            self.progress.newest = newest
            if newest.moved is not None:
                log.warning(
                    "offsets were moved by hand at epoch %d: results are not the query over the "
                    "topic any more", newest.moved,
                )  # fmt: skip
            failpoint("start_checked")
            starts = checked_starts(admin, newest.offsets, newest.topics, identities)
            goal = {topic: _texts(admin.end_offsets(topic)) for topic in identities}
            write_spec(place.spec, self.spec)
            place.next_spec.unlink(missing_ok=True)
            publishing = self._publishing(plan, table, newest)
            mirrored = self.spec.mirror_ms is not None
            spark = session(self.spec.name, self.master, delta=mirrored)
            try:
                clock = self._clock(identities, newest)
                pipeline = Pipeline(
                    self.spec, plan, table, newest, clock=clock, spark=spark,
                    connection=librdkafka_options(source),
                    cache=hot_state_of(place, table.handle),
                    cores=spark.sparkContext.defaultParallelism,
                    committed=lambda row, files: self._committed(publishing, row, files),
                    source_unchanged=self._source_unchanged,
                )  # fmt: skip
                pipeline.topics = dict(identities)
                if publishing is not None:
                    pipeline.topics[publishing.topic] = publishing.identity()
                    pipeline.phases.published = publishing.last
                maintenance = Maintenance(pipeline, place.home)
                mirror = self._mirror(spark, pipeline, place)
                try:
                    self._drive(spark, pipeline, starts, goal, admin, publishing, maintenance)
                    if mirror is not None and self.until_caught_up:
                        mirror.refresh()
                finally:
                    maintenance.close()
                    if mirror is not None:
                        mirror.close()
            finally:
                if publishing is not None:
                    publishing.close()
                spark.stop()

    # --- set-up -------------------------------------------------------------------------------

    def _table(
        self,
        place: JobDirectory,
        plan: Plan,
        layout: TableLayout,
        admin: KafkaAdmin,
        identities: dict[str, TopicIdentity],
    ) -> tuple[EpochTable, EpochRow]:
        """The job's table and the epoch it stands at; created with epoch 0 where it is new."""
        if EpochTable.exists(place.table):
            table = EpochTable.open(place.table, layout)
            newest = table.newest()
            if newest is not None:
                if newest.plan != plan.fingerprint:
                    raise SpecMisfit(
                        f"job {self.spec.name!r} keeps the state of another query or other column "
                        "types; retally evolve goes on under the changed query, the old one is in "
                        f"{place.spec}"
                    )
                if not newest.fresh:
                    closing = closing_of(self.spec, plan)
                    reason = other_windows(newest.watermarks.get("agenda"), closing)
                    if reason is not None:
                        raise SpecMisfit(f"job {self.spec.name!r}: {reason}")
                return table, newest
        else:
            table = EpochTable.create(place.table, layout)
        start = EpochRow(
            epoch=0,
            uuid=uuid4().hex,
            generation=now_ms(),
            kind="start",
            committed_at=now_ms() * 1_000,
            plan=plan.fingerprint,
            offsets=first_offsets(admin, self.spec.source.topics, self.spec.source.start),
            topics=dict(identities),
            counters={"groups": 0},
        )
        table.commit_epoch(start, (), durable=self.spec.durable)
        return table, start

    def _same_buckets(self, place: JobDirectory, before: JobSpec | None) -> None:
        """Every group lies in one of so many buckets; with another number it would not be found."""
        if before is None or not EpochTable.exists(place.table):
            return
        buckets = before.state.buckets
        if buckets != self.spec.state.buckets:
            raise SpecMisfit(
                f"state.buckets is fixed for the life of a job: {self.spec.name!r} has {buckets}, "
                f"the spec now says {self.spec.state.buckets}; go back to {buckets}, or give the "
                "job a new name"
            )

    def _publishing(self, plan: Plan, table: EpochTable, newest: EpochRow) -> Publishing | None:
        if self.spec.sink is None:
            return None
        connection = self.connections.named(self.spec.sink.connection)
        return Publishing(self.spec, plan, table, newest, connection)

    def _mirror(
        self, spark: SparkSession, pipeline: Pipeline, place: JobDirectory
    ) -> Mirror | None:
        if self.spec.mirror_ms is None:
            return None
        return Mirror(spark, pipeline, place.results, self.spec.mirror_ms)

    def _clock(self, identities: dict[str, TopicIdentity], newest: EpochRow) -> JobClock:
        align = self.spec.watermark.align
        if align is not None:
            self._group = AlignmentGroup(
                self.data.absolute(), align.group, self.spec.name, align.every_ms
            )
        partitions = {topic: identity.partitions for topic, identity in identities.items()}
        try:
            make = maker_of(self.spec.watermark)
        except GeneratorRefused as refused:
            raise SpecMisfit(f"watermark.generator: {refused}") from refused
        return JobClock(
            self.spec, partitions, newest, log_ends=self.log_ends, group=self._group, make=make
        )

    def _source_query(self, spark: SparkSession, pipeline: Pipeline) -> SourceQuery:
        connection = self.connections.named(self.spec.source.connection)
        settings = QuerySettings(
            spark_options(connection),
            scratch=fast_directory(self.data),
            elastic=not self.master.startswith("local"),
        )
        return SourceQuery(
            spark,
            pipeline,
            settings,
            log_ends=self.log_ends,
            failed=self._failure.append,
            stopping=self._stop.is_set,
        )

    def _watching(self) -> KafkaAdmin:
        """A connection for what is asked under the epoch lock, from whichever thread has it."""
        if self._watcher is None:
            source = self.connections.named(self.spec.source.connection)
            self._watcher = KafkaAdmin(kafka_python_options(source))
        return self._watcher

    def _source_unchanged(self) -> None:
        same_topics(self._watching(), self._sources)

    def log_ends(self) -> Offsets:
        """Return where the topics end at the broker; asked under the epoch lock."""
        admin = self._watching()
        return {topic: _texts(admin.end_offsets(topic)) for topic in self._sources}

    # --- running ------------------------------------------------------------------------------

    def _drive(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        starts: Offsets,
        goal: Offsets,
        admin: KafkaAdmin,
        publishing: Publishing | None,
        maintenance: Maintenance,
    ) -> None:
        source = self._source_query(spark, pipeline)
        reported = 0.0
        try:
            source.start(starts)
            while True:
                self._raise_failures(source.query, publishing)
                done = self.until_caught_up and reached(pipeline.newest.offsets, goal)
                if done or self._stop.is_set():
                    if done:
                        self._look_once_more(pipeline)
                    break
                source.leave_out(pipeline.clock.paused)
                self._pass_time(pipeline)
                self.progress.published = None if publishing is None else publishing.published
                maintenance.work(self.progress.published)
                if time.monotonic() - reported >= GROUP_OFFSETS_EVERY_SECONDS:
                    self._report_offsets(admin, pipeline)
                    reported = time.monotonic()
                self._stop.wait(_TICK_SECONDS)
            self._end(source, pipeline)
            self._raise_failures(None, publishing)
            if publishing is not None:
                publishing.drain()
                self.progress.published = publishing.published
            self._report_offsets(admin, pipeline)
        finally:
            self._stop.set()
            source.close()
            if self._group is not None:
                self._group.leave()
            if self._watcher is not None:
                self._watcher.close()

    def _pass_time(self, pipeline: Pipeline) -> None:
        """What time alone makes due; foreachBatch is called for records only."""
        with pipeline.try_between_epochs() as held:
            if not held:
                return
            pipeline.clock.tick()
            if pipeline.clock.due:
                pipeline.run_epoch(pipeline.newest.offsets)
            else:
                pipeline.pass_time()

    def _look_once_more(self, pipeline: Pipeline) -> None:
        """The last rows may have ended a bundle of the event clock, which the next emission of the
        watermark says."""
        clock = pipeline.clock
        if pipeline.agenda.withholds and clock.time.wakes_at is not None:
            time.sleep(max(0, clock.time.wakes_at - clock.now) / 1_000)
        with pipeline.between_epochs():
            clock.tick()
            if pipeline.agenda.withholds and clock.changed:
                pipeline.run_epoch(pipeline.newest.offsets)
            pipeline.pass_time()

    def _end(self, source: SourceQuery, pipeline: Pipeline) -> None:
        """Wait for the running epoch; a batch that begins from now on refuses itself."""
        self._stop.set()
        with pipeline.try_between_epochs(STOP_SECONDS_MAX) as held:
            if not held:
                raise JobFailed(f"the running epoch did not end within {STOP_SECONDS_MAX} s")
        source.close()

    def _raise_failures(self, query: StreamingQuery | None, publishing: Publishing | None) -> None:
        if self._failure:
            raise self._failure[0]
        if publishing is not None:
            publishing.check()
        if query is not None and not query.isActive and not self._stop.is_set():
            failure = query.exception()
            if self._failure:
                raise self._failure[0]
            self._source_unchanged()  # says it better than Spark where that is the reason
            raise JobFailed(f"the streaming query ended: {failure}")

    def _committed(
        self, publishing: Publishing | None, row: EpochRow, files: Sequence[AddedFile]
    ) -> None:
        if publishing is not None:
            names = [file.path for file in files if file.part == CHANGELOG]
            publishing.send(row, names)
        counters = row.counters
        self.progress.newest = row
        self.progress.read += counters.get("read", 0)
        log.info(
            "epoch %d: %d messages, %d rows, %d changed groups' rows, %d groups, %.2f s",
            row.epoch, counters.get("read", 0), counters.get("rows", 0),
            counters.get("changelog_rows", 0), counters.get("groups", 0),
            counters.get("compute_seconds", 0.0),
        )  # fmt: skip

    def _report_offsets(self, admin: KafkaAdmin, pipeline: Pipeline) -> None:
        """Offsets under the job's consumer group, for lag tools; a failure here is not fatal."""
        offsets = pipeline.newest.offsets
        try:
            ends = {topic: _texts(admin.end_offsets(topic)) for topic in offsets}
            for topic, partitions in offsets.items():
                numbered = {int(partition): offset for partition, offset in partitions.items()}
                admin.commit_group_offsets(str(self.spec.source.group), topic, numbered)
        except Exception as error:
            log.warning("offsets could not be reported to the group: %s", error)
            return
        self.progress.lag = lag(offsets, ends)
        log.info("lag %d records at epoch %d", self.progress.lag, pipeline.newest.epoch)


def _texts(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
