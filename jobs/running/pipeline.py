"""Pipeline: the dataflow of one epoch, from Kafka to the Delta commit. All stages meet here.

    Spark's Kafka source calls foreachBatch with the end offsets of the epoch
       │ one offset range per partition and source (large ones are split), one task per range
       ├─ DecodeTask: read records, decode; for each view: consolidate, evaluate ─► one parcel per
       │  fold task; one report per range
       │    (with dedupe: last changes ─ shuffle by primary key ─► DedupeTask, then each view)
       │    (with joins: rows ─ shuffle by join key ─► JoinTask of each join, then each view)
       │    (a small epoch needs one fold task, and its EpochTask does everything, in one stage)
       ▼ shuffle by bucket
       ├─ FoldTask of each view: per bucket, fold the rows into the hot state ─► changelog and state
       ▼ driver
       1  check: one report per range, every message accounted for, limits kept; or raise
       2  ONE Delta commit: all files and the epoch row (offsets, counters, files)
       3  call `on_commit`: the publisher starts on this epoch while the next one runs

A job has at least one view; "" is its own query. A crash before 2 leaves files that no commit
refers to; after 2 the epoch is done. If only time has passed, the driver runs an epoch without
data: same offsets, `TimeTask` instead of the stages above, and the same commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from pyspark import RDD
from pyspark.sql import SparkSession

from jobs.core.fold.rules import rules_of
from jobs.core.homes import Homes, Placement
from jobs.core.job.views import JobInputs, reading_plan
from jobs.core.plan.tree import Plan
from jobs.core.rows.truncations import Truncations
from jobs.core.time.due_work import Work
from jobs.edge.files.log import FileLog, pieces_of
from jobs.edge.kafka.offset_ranges import OffsetRange, advance_offsets, ranges_between
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.spark.executors import ExecutorList
from jobs.edge.spark.snapshot_source import PartRows
from jobs.edge.spark.task_errors import collect_rows
from jobs.edge.state.bucket_states import hot_state_of, stamp_of
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.due_changes import write_sorted
from jobs.edge.table.file_writer import AddedFile, EpochAttempt, by_part, file_name
from jobs.edge.tasks.decode import DecodeTask, SourcesDecode
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.dedupe import DedupeTask
from jobs.edge.tasks.fold import FoldTask, TimeTask
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.snapshot import PARCELS, SnapshotTask, UnpackRows
from jobs.edge.tasks.stage_functions import ParcelTask, ViewsFold
from jobs.reading.parts import CHANGELOG
from jobs.running.clock import JobClock
from jobs.running.epoch_size import EpochSize, run_in_halves
from jobs.running.outcome import EpochTooLarge, InputLimits, Outcome, Phases
from jobs.running.sources import RunningInputs, RunningSource
from jobs.running.stages import Stages
from jobs.running.views import KeptState, RunningView, Subtable, unite_views
from schemas.limits import TASK_BYTES_MAX
from schemas.spec.connections import Registry
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity
from schemas.table.view_path import place_name
from schemas.types.json_types import JsonObject
from schemas.types.moments import now_ms

# Returns the counters of the epoch of a part with so many rows.
SnapshotCounters = Callable[[int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the snapshot of a source."""

    source: RunningSource
    rows: PartRows
    count: SnapshotCounters

    def send(
        self, readers: tuple[ViewInputs, ...], key_buckets: int, placement: Placement
    ) -> RDD[Any]:
        """Return its images as parcels."""
        source, rows = self.source, self.rows
        assert source.images is not None
        task = SnapshotTask(
            source.plan,
            source.rules.messages,
            rows.columns,
            readers,
            key_buckets,
            source.images.number,
            placement,
        )
        return rows.run(task, PARCELS)


class Pipeline:
    """Runs the epochs of one job, one after the other."""

    def __init__(
        self,
        spec: JobSpec,
        plans: Mapping[str, Plan],
        table: EpochTable,
        newest: EpochRow,
        *,
        caches: Mapping[str, Path],  # directories of the hot states
        spark: SparkSession,
        connections: Mapping[str, Mapping[str, str]],  # by name: librdkafka options of sources
        registries: Mapping[str, Registry] = MappingProxyType({}),  # by name
        cores: int,
        executors: ExecutorList | None = None,  # of a cluster
        on_commit: Callable[[EpochRow, Sequence[AddedFile]], None],
        clock: JobClock,
        check_source: Callable[[], None] = lambda: None,
        logs: Mapping[str, FileLog] = MappingProxyType({}),  # by path: directories of sources
    ) -> None:
        self.spec = spec
        self.plan = reading_plan(plans)  # has the columns of all views
        self.table = table
        self.newest = newest
        self.spark = spark
        self.connections = connections
        self.registries = registries
        self.on_commit = on_commit
        self.clock = clock
        self.check_source = check_source
        self.logs = logs
        self.topics: dict[str, TopicIdentity] = dict(newest.topics)
        specs, files = spec.view_specs, table.live_files()
        self.views = [
            RunningView.of(number, name, specs[name], plan, table.root, caches[name], files, newest)
            for number, (name, plan) in enumerate(plans.items())
        ]
        self.inputs = RunningInputs(spec, self.views, table.root, caches, files, newest)
        buckets = max(spec.state.buckets, *(view.spec.state.buckets for view in self.views))
        self.stages = Stages(spark, cores, Homes(buckets), executors)
        self._observe_watermark()
        self._epoch_lock = threading.RLock()
        self._limits = InputLimits(spec)
        self._size = EpochSize()
        self.task_bytes_max = TASK_BYTES_MAX
        self.phases = Phases()

    @property
    def subtables(self) -> list[Subtable]:
        """The subtables whose files are merged on their own: the views, and what they share."""
        named = (each for each in self._states if each.name)
        shared = Subtable("", self.plan, self.table.root)  # and of the job's own query
        return [shared, *(Subtable(each.name, each.plan, each.root) for each in named)]

    @property
    def kept_names(self) -> set[str]:
        """The names in the table of the state files that a hot state may still need."""
        return {
            place_name(name, each.name)
            for each in self._states
            for epoch in each.recent_epochs
            for _, name in epoch.files
        }

    @property
    def _states(self) -> list[KeptState]:
        """All that has state: the views, and what belongs to none of them."""
        return [*self.views, *self.inputs.states]

    @property
    def withholds(self) -> bool:
        """Whether changes wait for the end of a bundle."""
        return any(view.due_work.withholds for view in self.views)

    @property
    def _has_views(self) -> bool:
        """Whether the job has views with names, which share its table and its messages."""
        return self.spec.views is not None

    @contextmanager
    def between_epochs(self) -> Iterator[None]:
        """Block epochs of other threads; the calling thread may run epochs meanwhile."""
        with self._epoch_lock:
            yield

    @contextmanager
    def try_between_epochs(self, seconds: float = 0.0) -> Iterator[bool]:
        """Like `between_epochs`, but yield False if an epoch still runs after `seconds`."""
        held = self._epoch_lock.acquire(timeout=seconds)
        try:
            yield held
        finally:
            if held:
                self._epoch_lock.release()

    def run_epoch(self, ends: Offsets) -> EpochRow:
        """Compute and commit the records up to `ends`, and return the last data epoch's row.

        Without new records this commits an epoch without data. Work that is due runs in epochs of
        its own: before the rows of each part, and after the last ones if they make work due.
        """
        with self._epoch_lock:
            row = self._run_in_parts(ends)
            self.pass_time()
            return row

    def _run_in_parts(self, ends: Offsets) -> EpochRow:
        """Run one epoch, or several if its rows do not fit in memory; return the last row."""
        while True:
            starts = self.newest.offsets
            part = self._size.cut(starts, ends)
            if planned := ranges_between(starts, part):
                self._finish_due_work()
            try:
                row = run_in_halves(
                    lambda: self.newest.offsets, part, self._run_up_to, self.clock.read_log_ends
                )
            except EpochTooLarge:
                if not self._size.halve(planned):
                    raise
                continue
            if part == ends:
                return row
            self._size.raise_slowly()

    def _run_up_to(self, ends: Offsets) -> EpochRow:
        ranges = ranges_between(self.newest.offsets, ends)
        return self._run(self.inputs.split(ranges, self.stages.cores), ends)

    def pass_time(self, now: int | None = None) -> EpochRow | None:
        """Run an epoch without data if any work is due (at `now`); return its row, or None."""
        with self._epoch_lock:
            due = any(each.due_work.due(now or self.clock.now) is not None for each in self.views)
            return self._run((), self.newest.offsets) if due else None

    def _finish_due_work(self) -> None:
        """Run all work that is due now. Timers that become due meanwhile wait for the rows."""
        now = self.clock.now
        while self.pass_time(now) is not None:
            pass

    def tick(self) -> None:
        """Run the epochs that time alone makes due; Spark calls foreachBatch for records only."""
        with self.try_between_epochs() as held:
            if not held:
                return
            self.clock.tick()
            if self.clock.due:
                self.run_epoch(self.newest.offsets)
            else:
                self.pass_time()

    def run_part(self, source: str, rows: PartRows, counters: SnapshotCounters) -> EpochRow:
        """Compute and commit an epoch of a part of a source's snapshot."""
        with self._epoch_lock:
            self._finish_due_work()
            part = _Part(self.inputs.sources[source], rows, counters)
            return self._run((), self.newest.offsets, part)

    def _run(
        self, ranges: tuple[OffsetRange, ...], ends: Offsets, part: _Part | None = None
    ) -> EpochRow:
        """Compute one epoch, check it and commit it.

        It has the rows of the ranges, or of a part of a snapshot, or else no data."""
        data = bool(ranges) or part is not None
        self.phases.begin()
        self.stages.observe_executors()
        attempt = EpochAttempt(
            self.newest.epoch + 1, uuid4().hex, self.spec.durable, self.task_bytes_max
        )
        if data:
            if part is None:
                outcome = self._compute(ranges, attempt)
                self.check_source()
                outcome.check_reports(ranges)
            else:
                outcome = self._compute_part(part, attempt)
                outcome.require_readable()
                outcome.require_reports(part.rows.tasks)
            self._limits.check(outcome.ranges)
            counters = outcome.sum_range_counters(self.inputs.deduped)
            for state, inputs in self.inputs.list_sides():
                outcome.check_side(state.number, inputs)
        else:
            outcome, counters = self._do_due_work(attempt), {}
        own = {view.name: view.count(outcome, data=data) for view in self.views}
        if data:
            for view in self.views:
                view.due_work.observe_fold(counters["rows"], outcome.timers_of(view.number))
        counters |= outcome.count_repeats(self.newest)
        counters |= outcome.count_work(self.stages.homes.current)
        self.clock.observe(outcome.ranges, ends)
        self._observe_watermark()
        counters |= self._unite(own) | self.phases.end("check")
        if self.inputs.deduped:
            counters["images"] = outcome.count_images(self.newest)
        if self.logs:
            read = advance_offsets(self.newest.offsets, ends)
            counters["files"] = {
                path: log.locate(read[path]["0"]) for path, log in self.logs.items()
            }
        counters |= outcome.count_failing(self.newest) | self.newest.repeated_counters
        if part is not None:
            counters |= part.count(counters["rows"])
        committed_ms = now_ms()
        if (latest := outcome.latest_ms) is not None:  # from the newest row's time to this commit
            counters["event_lag_ms"] = committed_ms - latest
        files = self._list_files(outcome)
        row = EpochRow(
            epoch=attempt.epoch,
            uuid=attempt.uuid,
            generation=self.newest.generation,
            kind="data" if data else "time",
            committed_at=committed_ms * 1_000,
            plan=self.plan.fingerprint,
            offsets=advance_offsets(self.newest.offsets, ends),
            topics=self.topics,
            watermarks=self._snapshot_time() | outcome.remember_truncations(self.newest),
            counters=counters,
            files=by_part(files),
        )
        self.table.commit_epoch(row, files, durable=self.spec.durable)
        self.phases.finish(row)
        self.newest = row
        for each in self._states:
            each.extend(row)
        self.on_commit(row, files)
        return row

    def _do_due_work(self, attempt: EpochAttempt) -> Outcome:
        """Fold the due work of each view, if there is any."""
        outcome = Outcome()
        for view in self.views:
            work = view.due_work.due(self.clock.now)
            if work is not None:
                fold = self._make_fold_task(view, attempt, work.now_ms)
                outcome.folds += self._fold_time(work, fold)
                view.due_work.complete(work, outcome.timers_of(view.number))
        return outcome

    def _observe_watermark(self) -> None:
        for view in self.views:
            view.due_work.observe_watermark(self.clock.time.watermark)

    def _list_files(self, outcome: Outcome) -> list[AddedFile]:
        views = (view.list_files(outcome) for view in self.views)
        return [*outcome.shared_files, *chain.from_iterable(views)]

    def _unite(self, own: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the counters of all views as the epoch row has them."""
        if not self._has_views:
            return own[""]
        return unite_views({view.name: view.share(own[view.name]) for view in self.views})

    def _snapshot_time(self) -> JsonObject:
        """Return the `watermarks` of the epoch row, for readers and for the next start."""
        snapshot = self.clock.snapshot()
        if self._has_views:  # the due work of each is in its share
            return snapshot
        return snapshot | self.views[0].snapshot_time()

    def _fold_time(self, work: Work, fold: FoldTask) -> list[FoldReport]:
        """Return what the due work gives in every bucket, without rows."""
        folds = self._collect(self.stages.plan_time(TimeTask(fold, work.release, work.opens))).folds
        due_files = [file for each in folds for file in each.due]
        if due_files:
            attempt, root = fold.attempt, fold.committed.root
            name = file_name(CHANGELOG, attempt.epoch, attempt.uuid, "driver")
            changes = write_sorted(root, name, due_files, durable=attempt.durable)
            folds[0].files.append(changes)
        return folds

    def _make_decode_task(
        self,
        source: RunningSource,
        ranges: tuple[OffsetRange, ...],
        attempt: EpochAttempt,
        readers: tuple[ViewInputs, ...],
        placement: Placement,
    ) -> DecodeTask:
        partitions = [each.topic_partition for each in ranges]
        read = [(each.topic, each.start, each.end) for each in ranges if each.topic in self.logs]
        files = source.spec.source.files
        return DecodeTask(
            source.plan,
            source.rules,
            {} if files else self.connections[source.spec.source.connection],
            ranges,
            self.table.root,
            attempt,
            horizons=self.clock.horizons,
            starts=self.clock.starts(ranges),
            memories=self.newest.counts.remember(source.name, partitions),
            now_ms=self.clock.now,
            key_buckets=self.spec.state.buckets,
            drop_early=self.spec.drops_early,
            touches_groups=any(each.state.ttl_ms for each in self.spec.view_specs.values()),
            views=readers,
            images=0 if source.images is None else source.images.number,
            placement=placement,
            joins=self.inputs.joins,
            registry=self.registries.get(source.spec.source.schema_registry or ""),
            pieces=pieces_of(self.logs, read) if files else None,
        )

    def _make_fold_task(self, view: RunningView, attempt: EpochAttempt, now: int) -> FoldTask:
        rules = rules_of(view.spec, withhold=view.due_work.withholds, closing=view.closing)
        return FoldTask(
            view.plan,
            view.at(stamp_of(self.newest), self.table.version),
            attempt,
            rules=rules,
            now_ms=now,
            watermark=view.due_work.watermark,
            in_order=self.inputs.in_order,
            buckets=view.spec.state.buckets,
            view=view.number,
        )

    def _compute(self, ranges: tuple[OffsetRange, ...], attempt: EpochAttempt) -> Outcome:
        """Run all stages over `ranges` in Spark."""
        placement = self.stages.place(ranges)
        readers, between, fold = self._plan_following(attempt, placement)
        decodes = tuple(
            self._make_decode_task(source, ranges, attempt, readers[name], placement)
            for name, source in self.inputs.sources.items()
        )
        planned = self.stages.plan(ranges, SourcesDecode(decodes), between, fold, placement)
        return self._collect(planned)

    def _compute_part(self, part: _Part, attempt: EpochAttempt) -> Outcome:
        """Run all stages over a part of a snapshot."""
        placement = self.stages.place_all()
        readers, between, fold = self._plan_following(attempt, placement)
        sent = part.send(readers[part.source.name], self.spec.state.buckets, placement)
        following = UnpackRows(), between, fold, placement
        return self._collect(self.stages.plan_rows(sent, part.rows.tasks, *following))

    def _plan_following(
        self, attempt: EpochAttempt, placement: Placement
    ) -> tuple[dict[str, tuple[ViewInputs, ...]], list[list[ParcelTask]], ViewsFold]:
        """Return who reads each source, and the tasks behind those that read it."""
        now, base, version = self.clock.now, stamp_of(self.newest), self.table.version
        folds = tuple(
            self._make_fold_task(view, attempt, view.due_work.advance(now)) for view in self.views
        )
        deadlines = {view.name: fold.deadline for view, fold in zip(self.views, folds, strict=True)}
        readers, dedupes = dict[str, tuple[ViewInputs, ...]](), list[DedupeTask]()
        for name, source in self.inputs.sources.items():
            readers[name] = tuple(
                self.inputs.inputs_of(each, source.plan.used, placement, deadlines.get(each.name))
                for each in source.readers
            )
            if (images := source.images) is not None:
                dedupes.append(
                    DedupeTask(
                        source.plan,
                        images.at(base, version),
                        attempt,
                        views=readers[name],
                        number=images.number,
                        truncations=Truncations.of_json(self.newest.time.truncations),
                    )
                )
        joins = self.inputs.make_join_tasks(placement, attempt, base, version)
        return readers, [[*dedupes], *joins] if dedupes else joins, ViewsFold(folds)

    def _collect(self, planned: RDD[bytes]) -> Outcome:
        """Run the planned stages, and return the reports of their tasks."""
        outcome = Outcome()
        self.phases.lap("plan")
        for payload in collect_rows(planned):
            outcome.add_report(payload)
        self.phases.lap("tasks")
        failpoint("after_tasks")
        if outcome.too_large:
            raise EpochTooLarge(outcome.explain_too_large(self.task_bytes_max))
        return outcome


def make_pipeline(
    spec: JobSpec,
    plans: Mapping[str, Plan],
    paths: JobDirectory,
    table: EpochTable,
    newest: EpochRow,
    **options: Any,
) -> Pipeline:
    """Return the pipeline of a job, with its hot states where they belong."""
    names = (*plans, *JobInputs.of(spec, plans).states)
    caches = {name: hot_state_of(paths.at_view(name), table.handle) for name in names}
    return Pipeline(spec, plans, table, newest, caches=caches, **options)
