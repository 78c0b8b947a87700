"""Run a job: everything around the pipeline, from the lock to the last published epoch.

    lock ─► table, newest epoch ─► check topics ─► claim the table, newest epoch
              ┌──────────────────────────────────────┘
              ├─► publisher: fence, progress, missed epochs
              └─► Spark query at the epoch's offsets ─► epochs

One process is one job. After SIGTERM the job finishes the running epoch and ends with exit code 0.
After a crash at any point, the next start resumes at the newest epoch of the table.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.core.job.views import plans_of
from jobs.core.plan.tree import Plan
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import begin_new_topics, find_topics, has_reached, sum_lag
from jobs.edge.machine.jars import spark_jars
from jobs.edge.machine.java import java
from jobs.edge.machine.process_limits import require_limits
from jobs.edge.process.aggregate_class import require_classes
from jobs.edge.process.alignment_group import AlignmentGroup, join_groups
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.fence import OwnedElsewhere, WriterLock
from jobs.edge.process.generator_class import ClassRefused, make_allowed
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.publisher.job_publisher import JobPublisher
from jobs.edge.spark.executors import ExecutorList
from jobs.edge.spark.job_session import open_session
from jobs.edge.spark.session import choose_scratch, spark_directories
from jobs.edge.table.delta_epochs import EpochTable, Fenced
from jobs.edge.table.file_writer import AddedFile
from jobs.edge.table.job_specs import remove_dropped_mirrors, write_specs
from jobs.edge.table.table_location import choose_location
from jobs.running.clock import JobClock
from jobs.running.executor_monitor import watch_executors
from jobs.running.failure import Overtaken, SpecMisfit, name_disk, report_failure
from jobs.running.file_reading import FileReading, notice_files
from jobs.running.job_table import (
    load_last_spec,
    open_table,
    read_newest,
    require_own_topics,
    require_same_buckets,
    require_same_sides,
    require_time_left,
)
from jobs.running.maintenance import Maintenance
from jobs.running.mirror import Mirrors
from jobs.running.pipeline import Pipeline, make_pipeline
from jobs.running.progress import JobProgress
from jobs.running.shadow_job import discard_left_shadow
from jobs.running.snapshot import find_starts, read_snapshots, require_same_sources
from jobs.running.source_query import QuerySettings, SourceQuery
from jobs.running.sources import SourceTopics, read_ends
from jobs.running.traces import EpochTraces
from schemas.directory.failure import forget_failure
from schemas.directory.reports import READY, SNAPSHOT, StartReport
from schemas.limits import GROUP_OFFSETS_EVERY_SECONDS, STOP_SECONDS_MAX
from schemas.spec.connections import Connection, Connections, librdkafka_options, spark_options
from schemas.spec.job import JobSpec
from schemas.spec.watermark import NO_DEFAULTS, TimeDefaults
from schemas.table.epoch import EpochRow, Offsets
from schemas.table.object_path import ObjectPath
from schemas.types.moments import now_ms

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.05


class JobFailed(Exception):
    """The job stopped because of an error; the message has the cause and what to do."""


# Runs epochs until it is done or the event is set, with the maintenance in between.
EpochLoop = Callable[[Pipeline, Maintenance, threading.Event], None]


@dataclass(slots=True)
class Job:
    """A running job; `run` returns when the job is done, stopped or failed."""

    spec: JobSpec
    data: Path
    connections: Connections
    master: str = "local[2]"
    until_caught_up: bool = False
    drain: bool = False  # when caught up, end time too: nothing follows
    time_defaults: TimeDefaults = NO_DEFAULTS  # for watermark sections that do not say
    tables: ObjectPath | None = None  # where to create a table outside of the data directory
    epoch_loop: EpochLoop | None = None  # instead of a stream of Spark; ends by itself
    jobs_per_driver: int = 1  # that may share a Spark JVM
    progress: JobProgress = field(default_factory=JobProgress)
    _stop: threading.Event = field(default_factory=threading.Event)
    _failure: list[BaseException] = field(default_factory=list)
    _groups: dict[str, AlignmentGroup] = field(default_factory=dict)
    _start: StartReport | None = None
    _claimed: bool = False  # the table, from any other driver

    def run(self) -> None:
        """Run the job from start to end; the caller turns exceptions into exit codes."""
        paths = JobDirectory(self.data.absolute(), self.spec.name)
        lock: WriterLock | None = None
        try:
            lock = WriterLock(paths.lock, self.spec.name)
            forget_failure(paths.failure)
            self._start = StartReport(paths.start)
            paths.waiting.unlink(missing_ok=True)
            before = load_last_spec(paths)
            if before is not None:
                self.spec = self.spec.with_column_order(before)
            self._run_locked(paths, before)
        except OwnedElsewhere:
            raise
        except Exception as failure:
            named = name_disk(failure, (paths.home, paths.cache, *spark_directories()))
            if isinstance(failure, Fenced) and not self._claimed:
                named = Overtaken(
                    "another driver of this job committed each time that this one tried to take "
                    f"the table ({failure}); start it again"
                )
                named.__cause__ = failure
            report_failure(paths.failure, named)
            raise named from named.__cause__
        finally:
            if lock is not None:
                lock.release()

    def stop(self) -> None:
        """Stop the job after the running epoch."""
        self._stop.set()

    def stop_on_signals(self) -> None:
        """Stop the job after SIGTERM or SIGINT; a second SIGINT ends the process at once.

        A service that starts sends SIGTERM again to a job that is ending already.
        """

        def handler(_number: int, _frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self.stop()

        signal.signal(signal.SIGTERM, handler)
        signal.signal(signal.SIGINT, handler)

    def _begin(self, phase: str) -> None:
        """Report a phase of the start."""
        if self._start is not None:
            self._start.begin(phase, now_ms())

    def _run_locked(self, paths: JobDirectory, before: JobSpec | None) -> None:
        # These raise before this start fences another writer: no job can run without them.
        require_limits()
        java(), spark_jars()
        self._begin("topics")
        files = notice_files(self.data.absolute(), self.spec, whole=self.until_caught_up)
        with KafkaAdmin.of_sources(self.connections, self.spec, files) as admin:
            identities = find_topics(admin, self.spec.topics)
            with closing(SourceTopics(self.connections, self.spec, identities, files)) as topics:
                self._run_on(topics, paths, before, admin)

    def _run_on(
        self, topics: SourceTopics, paths: JobDirectory, before: JobSpec | None, admin: KafkaAdmin
    ) -> None:
        plans = plans_of(self.spec)
        table, newest = self._open_table(plans, topics, paths, before, admin)
        failpoint("start_checked")
        find_starts(admin, newest, topics.identities)
        require_same_sources(self.spec, topics.files, newest)
        newest = self._claim_table(plans, table, newest, paths)
        newest = begin_new_topics(admin, self.spec, newest)
        starts = find_starts(admin, newest, topics.identities)
        goal = read_ends(admin, topics.identities)
        write_specs(self.spec, paths)
        paths.next_spec.unlink(missing_ok=True)
        remove_dropped_mirrors(self.spec, paths)
        discard_left_shadow(paths, newest)
        publisher = self._start_publisher(plans, table, newest)
        endless = not self.until_caught_up and self.epoch_loop is None
        intervals = self.spec.find_mirror_intervals(endless=endless)
        snapshots = (each.source.snapshot for each in self.spec.source_specs.values())
        needs_delta = bool(intervals) or any(each and each.delta for each in snapshots)
        self._begin("spark")
        publishing = nullcontext() if publisher is None else closing(publisher)
        session = open_session(
            self.spec.name, self.data, self.master, self.jobs_per_driver, delta=needs_delta
        )
        with session as spark, publishing:
            self._begin("state")
            clock = self._make_clock(topics, newest)
            pipeline = make_pipeline(
                self.spec,
                plans,
                paths,
                table,
                newest,
                clock=clock,
                spark=spark,
                connections=self._make_options(librdkafka_options),
                registries=self.connections.registries_of(
                    each.source.schema_registry for each in self.spec.source_specs.values()
                ),
                cores=spark.sparkContext.defaultParallelism,
                executors=None if self.master.startswith("local") else ExecutorList(spark),
                on_commit=lambda row, files: self._on_commit(publisher, row, files),
                check_source=topics.require_same,
                logs=topics.files,
            )
            pipeline.topics = dict(topics.identities)
            if publisher is not None:
                pipeline.topics |= publisher.identities()
                pipeline.phases.take_published = publisher.take_published
            pipeline.phases.traces = traces = EpochTraces.start(self.spec.name)
            maintenance = Maintenance(pipeline, paths.home)
            mirrors = Mirrors(spark, pipeline, paths, intervals, self.jobs_per_driver).start()
            self.progress.mirrors = mirrors
            try:
                with watch_executors(spark, self.master, paths.waiting, self._failure):
                    if self.epoch_loop is not None:
                        self.epoch_loop(pipeline, maintenance, self._stop)
                        return
                    query = self._make_source_query(spark, pipeline, topics)
                    self._drive(
                        query, pipeline, topics, starts, goal, admin, publisher, maintenance
                    )
                    mirrors.finish(whole=self.until_caught_up)
            finally:
                maintenance.close()
                mirrors.close()
                if traces is not None:
                    traces.close()

    # --- set-up -------------------------------------------------------------------------------

    def _open_table(
        self,
        plans: Mapping[str, Plan],
        topics: SourceTopics,
        paths: JobDirectory,
        before: JobSpec | None,
        admin: KafkaAdmin,
    ) -> tuple[EpochTable, EpochRow]:
        """Open or create the job's table; raise SpecMisfit unless the spec continues it."""
        choose_location(paths, self.tables)
        require_same_buckets(self.spec, before, paths)
        require_same_sides(self.spec, before)
        require_own_topics(self.spec, before)
        self._begin("table")
        table, newest = open_table(self.spec, plans, paths, admin, topics.identities)
        if before is None and not newest.fresh:
            raise SpecMisfit(
                f"{paths.spec} is missing, which has the number of buckets of "
                f"{self.spec.name!r}; restore it from a backup, or put the spec of the last run "
                "there"
            )
        self._take_newest(newest)
        return table, newest

    def _claim_table(
        self, plans: Mapping[str, Plan], table: EpochTable, newest: EpochRow, paths: JobDirectory
    ) -> EpochRow:
        """Fence any other driver; return the newest epoch, which it may have committed meanwhile.

        All that refuses a start comes before, as far as it can: a wrong start stops no right job.
        """
        if table.claim():
            newest = read_newest(self.spec, plans, paths, table) or newest
            self._take_newest(newest)
        self._claimed = True
        return newest

    def _take_newest(self, newest: EpochRow) -> None:
        if not self.drain:
            require_time_left(self.spec, newest)
        self.progress.newest = newest
        if newest.moved is not None:
            log.warning(
                "offsets were moved by hand at epoch %d, so results are no longer the query "
                "over the topic",
                newest.moved,
            )

    def _start_publisher(
        self, plans: Mapping[str, Plan], table: EpochTable, newest: EpochRow
    ) -> JobPublisher | None:
        sinks = [each.sink for each in self.spec.view_specs.values() if each.sink is not None]
        if not sinks:
            return None
        connection = self.connections.lookup(sinks[0].connection)
        registries = self.connections.registries_of(sink.schema_registry for sink in sinks)
        return JobPublisher(self.spec, plans, table, newest, connection, registries).start()

    def _make_clock(self, topics: SourceTopics, newest: EpochRow) -> JobClock:
        spec = self.spec.with_defaults(self.time_defaults)
        try:
            require_classes(spec)
        except ClassRefused as refused:
            raise SpecMisfit(f"a class of the spec: {refused}") from refused
        self._groups = join_groups(self.data.absolute(), spec)
        topics.follow(spec)
        return JobClock(
            spec,
            {topic: identity.partitions for topic, identity in topics.identities.items()},
            newest,
            read_log_ends=topics.read_log_ends,
            groups=self._groups,
            make=make_allowed,
            read_followed=topics.read_followed,
        )

    def _make_source_query(
        self, spark: SparkSession, pipeline: Pipeline, topics: SourceTopics
    ) -> SourceQuery:
        settings = QuerySettings(
            self._make_options(spark_options), scratch=choose_scratch(self.data)
        )
        return SourceQuery(
            spark,
            pipeline,
            settings,
            read_log_ends=topics.read_log_ends,
            on_failure=self._failure.append,
            is_stopping=self._stop.is_set,
        )

    def _make_options(
        self, make: Callable[[Connection], dict[str, str]]
    ) -> dict[str, dict[str, str]]:
        """Return the options of a client for each connection of the sources, by name."""
        names = self.spec.topics_by_connection
        return {name: make(self.connections.lookup(name)) for name in names}

    # --- running ------------------------------------------------------------------------------

    def _drive(
        self,
        source: SourceQuery,
        pipeline: Pipeline,
        topics: SourceTopics,
        starts: Offsets,
        goal: Offsets,
        admin: KafkaAdmin,
        publisher: JobPublisher | None,
        maintenance: Maintenance,
    ) -> None:
        reported, files = 0.0, FileReading(pipeline, topics.files)
        try:
            if self._read_snapshots(pipeline, topics, admin, publisher, maintenance):
                starts = find_starts(admin, pipeline.newest, topics.identities)
                goal = topics.read_log_ends()  # the rows may be as new as these
            if not self._stop.is_set():
                source.start(starts)
                self._begin(READY)
            while True:
                self._raise_failures(topics, source.query, publisher)
                stopped = self._stop.is_set()
                reached = has_reached(pipeline.newest.offsets, goal)
                done = self.until_caught_up and reached and not stopped
                if done or stopped:
                    break
                source.leave_out(pipeline.clock.paused)
                pipeline.tick()
                files.work()
                self.progress.published = None if publisher is None else publisher.published
                maintenance.work(self.progress.published)
                if time.monotonic() - reported >= GROUP_OFFSETS_EVERY_SECONDS:
                    self._report_offsets(admin, pipeline)
                    reported = time.monotonic()
                self._stop.wait(_TICK_SECONDS)
            self._end(source, pipeline)
            if done:
                self._end_time(pipeline)
            self._raise_failures(topics, None, publisher)
            if publisher is not None:
                publisher.drain()
                self.progress.published = publisher.published
            if done:
                maintenance.finish(self.progress.published)
            self._report_offsets(admin, pipeline)
        finally:
            self._stop.set()
            source.close()
            for group in self._groups.values():
                group.leave()

    def _read_snapshots(
        self,
        pipeline: Pipeline,
        topics: SourceTopics,
        admin: KafkaAdmin,
        publisher: JobPublisher | None,
        maintenance: Maintenance,
    ) -> bool:
        """Read what is left of the snapshots, and return whether there was anything."""

        def report(progress: str) -> None:
            self.progress.snapshot = progress
            if self._start is not None:
                self._start.begin(SNAPSHOT, now_ms(), progress)

        def between() -> None:
            self._raise_failures(topics, None, publisher)
            find_starts(admin, pipeline.newest, topics.identities)
            self.progress.published = None if publisher is None else publisher.published
            maintenance.work(self.progress.published)

        found = read_snapshots(
            pipeline,
            self.connections,
            is_stopping=self._stop.is_set,
            report=report,
            between=between,
        )
        self.progress.snapshot = None
        return found

    def _end_time(self, pipeline: Pipeline) -> None:
        """Run the epochs that the last rows' watermark makes due, or the end of time if draining.

        With the event clock, and in a chain, this watermark may end a bundle or a window.
        """
        clock = pipeline.clock
        waits = pipeline.withholds or clock.follows
        if waits and clock.time.wakes_at is not None:
            time.sleep(max(0, clock.time.wakes_at - clock.now) / 1_000)
        with pipeline.between_epochs():
            clock.tick()
            if self.drain:
                clock.end()
            if self.drain or (waits and clock.changed):
                pipeline.run_epoch(pipeline.newest.offsets)
            while pipeline.pass_time() is not None and self.drain:
                pass  # released results may complete a window

    def _end(self, source: SourceQuery, pipeline: Pipeline) -> None:
        """Wait for the running epoch, and stop the query; micro-batches that begin now raise."""
        self._stop.set()
        with pipeline.try_between_epochs(STOP_SECONDS_MAX) as held:
            if not held:
                raise JobFailed(
                    f"the running epoch did not end within {STOP_SECONDS_MAX} s; the next start "
                    "computes it again"
                )
        source.close()

    def _raise_failures(
        self, topics: SourceTopics, query: StreamingQuery | None, publisher: JobPublisher | None
    ) -> None:
        if self._failure:
            raise self._failure[0]
        if publisher is not None:
            publisher.check()
        if query is not None and not query.isActive and not self._stop.is_set():
            failure = query.exception()
            if self._failure:
                raise self._failure[0]
            topics.require_same()  # a changed source has a clearer message than Spark's
            raise JobFailed(f"the streaming query ended: {failure}")

    def _on_commit(
        self, publisher: JobPublisher | None, row: EpochRow, files: Sequence[AddedFile]
    ) -> None:
        """Send a committed epoch to the publisher, and count it in the progress."""
        if publisher is not None:
            publisher.send(row, files)
        self.progress.observe(row)

    def _report_offsets(self, admin: KafkaAdmin, pipeline: Pipeline) -> None:
        """Commit the offsets for the job's consumer group, for lag tools; log a failure only."""
        offsets = pipeline.newest.offsets
        try:
            ends = read_ends(admin, offsets)
            for alone in self.spec.source_specs.values():
                for topic in alone.source.topics:
                    numbered = {int(partition): at for partition, at in offsets[topic].items()}
                    admin.commit_group_offsets(str(alone.source.group), topic, numbered)
        except Exception as error:
            log.warning("cannot commit the offsets of the consumer group, trying later: %s", error)
            return
        self.progress.lag = sum_lag(offsets, ends)
        log.info("lag %d records at epoch %d", self.progress.lag, pipeline.newest.epoch)
