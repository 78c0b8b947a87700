"""Pipeline: the dataflow of one epoch, from Kafka to the Delta commit. All stages meet here.

    Spark's Kafka source calls foreachBatch with the end offsets of the epoch
       │ one offset range per partition (large ones are split), one task per range
       ├─ DecodeTask: read records, decode, consolidate ─► weighted rows, one report per range
       │    (with dedupe: last changes ─ shuffle by primary key ─► DedupeTask ─► signed rows)
       ├─ project: casts, WHERE, group and argument expressions, as Spark Columns
       │    (if they are plain columns of the source: DecodeTask packs one parcel per fold task;
       │    a small epoch needs one fold task, and its EpochTask does everything, in one stage)
       ▼ shuffle by bucket
       ├─ FoldTask: per bucket, fold the rows into the hot state ─► changelog and state files
       ▼ driver
       1  check: one report per range, every message accounted for, limits kept; or raise
       2  ONE Delta commit: all files and the epoch row (offsets, counters, files)
       3  call `on_commit`: the publisher starts on this epoch while the next one runs

A crash before 2 leaves files that no commit refers to; after 2 the epoch is done. If only time has
passed, the driver runs an epoch without data: same offsets, `TimeTask` instead of the stages above,
and the same commit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from pyspark import RDD
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.core.fold.rules import rules_of
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.truncations import Truncations
from jobs.core.time.due_work import DueWork, Work
from jobs.edge.kafka.offset_ranges import (
    OffsetRange,
    advance_offsets,
    count_planned_records,
    ranges_between,
    split_ranges,
)
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.late_rows import LATE
from jobs.edge.rows.weighted_rows import (
    BUCKET,
    POSITION,
    REPORT,
    SPARK_PARCELS,
    TARGET,
    parcelling_of,
)
from jobs.edge.spark.bucket_column import bucket_column, change_bucket_column
from jobs.edge.spark.expressions import project
from jobs.edge.spark.task_errors import collect_rows
from jobs.edge.spark.weighted_schema import IMAGE_COLUMNS, OWN_COLUMNS, weighted_schema
from jobs.edge.state.bucket_states import CommittedEpoch, find_recent_epochs, stamp_of
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.due_changes import write_sorted
from jobs.edge.table.epoch_files import now_ms
from jobs.edge.table.file_writer import AddedFile, by_part, file_name
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.dedupe import ROW_BUCKET, DedupeTask
from jobs.edge.tasks.epoch import EpochTask
from jobs.edge.tasks.fold import FAILURE, OUTPUT_SCHEMA, FoldTask, TimeTask
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.fold_views import ViewsFold
from jobs.edge.tasks.range_reading import SourceRules
from jobs.running.clock import JobClock
from jobs.running.epoch_size import EpochSize, run_in_halves
from jobs.running.input_limits import InputLimits
from jobs.running.outcome import EpochTooLarge, Outcome
from jobs.running.phases import Phases
from jobs.running.subtable import Subtable
from jobs.table.parts import CHANGELOG
from schemas.limits import FOLD_TASK_ROWS, RECENT_EPOCHS_MAX, SMALL_RANGE_RECORDS, TASK_BYTES_MAX
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity


class Pipeline:
    """Runs the epochs of one job, one after the other."""

    def __init__(
        self,
        spec: JobSpec,
        plan: Plan,
        table: EpochTable,
        newest: EpochRow,
        *,
        spark: SparkSession,
        connection: Mapping[str, str],  # librdkafka options of the source
        cache: Path,
        cores: int,
        on_commit: Callable[[EpochRow, Sequence[AddedFile]], None],
        clock: JobClock,
        check_source: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self.plan = plan
        self.table = table
        self.newest = newest
        self.spark = spark
        self.connection = connection
        self.cache = cache
        self.cores = cores
        self.on_commit = on_commit
        self.clock = clock
        self.check_source = check_source
        self.closing = closing_of(spec, plan)
        self.due_work = DueWork(
            spec.minibatch,
            spec.state.ttl_ms,
            newest.time.due_work,
            fresh=newest.fresh,
            closing=self.closing,
        )
        self.due_work.observe_watermark(clock.time.watermark)
        self.topics: dict[str, TopicIdentity] = dict(newest.topics)
        self.recent_epochs: deque[CommittedEpoch] = deque(
            find_recent_epochs(table, newest), maxlen=RECENT_EPOCHS_MAX
        )
        self._epoch_lock = threading.RLock()
        self._limits = InputLimits(spec)
        self._size = EpochSize()
        self.task_bytes_max = TASK_BYTES_MAX
        self._rules = SourceRules.of(spec, plan)
        self.phases = Phases()

    @property
    def subtables(self) -> list[Subtable]:
        """The subtables whose files are merged on their own: one, or one for each view."""
        return [Subtable("", self.plan, self.table.root)]

    @property
    def kept_names(self) -> set[str]:
        """The names in the table of the state files that a hot state may still need."""
        return {name for epoch in self.recent_epochs for _, name in epoch.files}

    # A Column belongs to no DataFrame, and each of its nodes costs a call to the JVM: built once.

    @cached_property
    def _bucket(self) -> Column:
        return bucket_column(self.plan, self.spec.state.buckets)

    @cached_property
    def _reported(self) -> Column:
        return F.col(REPORT).isNotNull()

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
        its own: before the new rows, and after them if they make work due.
        """
        with self._epoch_lock:
            while ranges_between(self.newest.offsets, ends) and self.pass_time() is not None:
                pass
            row = self._run_in_parts(ends)
            self.pass_time()
            return row

    def _run_in_parts(self, ends: Offsets) -> EpochRow:
        """Run one epoch, or several if its rows do not fit in memory; return the last row."""
        while True:
            starts = self.newest.offsets
            part = self._size.cut(starts, ends)
            planned = ranges_between(starts, part)
            try:
                row = run_in_halves(lambda: self.newest.offsets, part, self._run_up_to)
            except EpochTooLarge:
                if not self._size.halve(planned):
                    raise
                continue
            if part == ends:
                return row
            self._size.raise_slowly()

    def _run_up_to(self, ends: Offsets) -> EpochRow:
        return self._run(self._split(ranges_between(self.newest.offsets, ends)), ends)

    def _split(self, planned: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        """Split long ranges, unless the rows of a partition must be read in order."""
        times = self._rules.times
        whole = [each for each in planned if times[each.topic].in_order]
        parts = [each for each in planned if not times[each.topic].in_order]
        return tuple(sorted((*whole, *split_ranges(tuple(parts), self.cores))))

    def pass_time(self) -> EpochRow | None:
        """Run an epoch without data if any work is due; return its row, or None."""
        with self._epoch_lock:
            if not self._is_due():
                return None
            return self._run((), self.newest.offsets)

    def _is_due(self) -> bool:
        """Return whether time alone makes an epoch due."""
        return self.due_work.due(self.clock.now) is not None

    def _run(self, ranges: tuple[OffsetRange, ...], ends: Offsets) -> EpochRow:
        """Compute one epoch, check it and commit it; without `ranges`, an epoch without data."""
        self.phases.begin()
        epoch, uuid = self.newest.epoch + 1, uuid4().hex
        if ranges:
            horizons = self.clock.horizons
            outcome = self._compute(ranges, epoch, uuid, (), horizons)
            if outcome.failing:  # rare: compute again, with those messages in quarantine
                uuid = uuid4().hex
                outcome = self._compute_without(outcome, ranges, epoch, uuid, horizons)
                outcome.require_none_failing()
            self.check_source()
            outcome.check_reports(ranges)
            self._limits.check(outcome.ranges)
            counters = self._count_data(outcome)
        else:
            outcome = Outcome()
            counters = self._do_due_work(outcome, epoch, uuid)
        counters |= outcome.count_repeats(self.newest)
        self.clock.observe(outcome.ranges, ends)
        self._observe_watermark()
        counters |= self.phases.end("judge")
        committed_ms = now_ms()
        if (latest := outcome.latest_ms) is not None:  # from the newest row's time to this commit
            counters["event_lag_ms"] = committed_ms - latest
        files = self._list_files(outcome)
        row = EpochRow(
            epoch=epoch,
            uuid=uuid,
            generation=self.newest.generation,
            kind="data" if ranges else "time",
            committed_at=committed_ms * 1_000,
            plan=self.plan.fingerprint,
            offsets=advance_offsets(self.newest.offsets, ends),
            topics=self.topics,
            watermarks=self._snapshot_time() | outcome.remember_truncations(self.newest),
            counters=self._finish_counters(counters),
            files=by_part(files),
        )
        self.table.commit_epoch(row, files, durable=self.spec.durable)
        self.phases.lap("commit")
        self.newest = row
        self._extend_recent_epochs(row)
        self.on_commit(row, files)
        return row

    def _count_data(self, outcome: Outcome) -> dict[str, Any]:
        """Return the counters of an epoch with data, after the checks; observe its timers."""
        counters = outcome.sum_counters(self.plan, self.newest)
        self.due_work.observe_fold(counters["rows"], (fold.timers for fold in outcome.folds))
        return counters

    def _do_due_work(self, outcome: Outcome, epoch: int, uuid: str) -> dict[str, Any]:
        """Fold the due work, if there is any, and return the counters of the epoch."""
        work = self.due_work.due(self.clock.now)
        if work is not None:
            self._fold_time(outcome, work, self._make_fold_task(epoch, uuid, work.now_ms))
            self.due_work.complete(work, (fold.timers for fold in outcome.folds))
        return outcome.sum_fold_counters(self.plan, self.newest)

    def _observe_watermark(self) -> None:
        self.due_work.observe_watermark(self.clock.time.watermark)

    def _list_files(self, outcome: Outcome) -> list[AddedFile]:
        return outcome.files

    def _finish_counters(self, counters: dict[str, Any]) -> dict[str, Any]:
        return counters

    def _extend_recent_epochs(self, row: EpochRow) -> None:
        self.recent_epochs.append(CommittedEpoch.of(row))

    def _snapshot_time(self) -> dict[str, Any]:
        """Return the `watermarks` of the epoch row, for readers and for the next start."""
        snapshot, due_work = self.clock.snapshot(), self.due_work.snapshot()
        agenda = {} if due_work is None else {"agenda": msgspec.to_builtins(due_work)}
        return snapshot | agenda

    def _fold_time(self, outcome: Outcome, work: Work, fold: FoldTask) -> None:
        """Add to the outcome what the due work gives in every bucket, without rows."""
        task = TimeTask(fold, work.release)
        numbers = self.spark.range(0, fold.buckets, 1, min(self.cores, fold.buckets))
        folds = [
            msgspec.json.decode(payload, type=FoldReport)
            for _, payload in collect_rows(numbers.mapInArrow(task, OUTPUT_SCHEMA))
        ]
        outcome.folds += folds
        due_files = [file for each in folds for file in each.due]
        if due_files:
            name = file_name(CHANGELOG, fold.epoch, fold.uuid, "driver")
            changes = write_sorted(fold.root, name, due_files, durable=self.spec.durable)
            folds[0].files.append(changes)
        self.phases.lap("tasks")
        failpoint("after_tasks")

    def _make_decode_task(
        self, ranges: tuple[OffsetRange, ...], epoch: int, uuid: str, horizons: Mapping[str, int]
    ) -> DecodeTask:
        return DecodeTask(
            self.plan,
            self._rules,
            self.connection,
            ranges,
            self.table.root,
            epoch,
            uuid,
            durable=self.spec.durable,
            horizons=horizons,
            starts=self.clock.starts(ranges),
            memories=self.newest.counts.remember(each.topic_partition for each in ranges),
            now_ms=self.clock.now,
            key_buckets=self.spec.state.buckets,
            drop_early=self.spec.drops_early,
            touches_groups=any(each.state.ttl_ms for each in self.spec.view_specs.values()),
        )

    def _make_fold_task(self, epoch: int, uuid: str, now: int) -> FoldTask:
        return FoldTask(
            self.plan,
            self.table.root,
            self.cache,
            epoch,
            uuid,
            base=stamp_of(self.newest),
            version=self.table.version,
            recent_epochs=tuple(self.recent_epochs),
            rules=rules_of(self.spec, withhold=self.due_work.withholds, closing=self.closing),
            now_ms=now,
            watermark=self.due_work.watermark,
            in_order=self._rules.in_order,
            durable=self.spec.durable,
            bytes_max=self.task_bytes_max,
            buckets=self.spec.state.buckets,
        )

    def _compute(
        self,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        failing: tuple[tuple[int, str], ...],
        horizons: Mapping[str, int],
    ) -> Outcome:
        """Run all stages over `ranges` in Spark; messages at `failing` go to quarantine."""
        fold = self._make_fold_task(epoch, uuid, self.due_work.advance(self.clock.now))
        decode = replace(
            self._make_decode_task(ranges, epoch, uuid, horizons),
            deadline=fold.deadline,
            failing=failing,
            bytes_max=self.task_bytes_max,
            parcelling=parcelling_of(
                self.plan,
                self.spec.state.buckets,
                self._count_tasks(ranges),
                with_heads=self.spec.drops_early,
                closes=self.closing is not None,
            ),
        )
        parcelling = decode.parcelling
        if parcelling is None:
            return self._collect(self._shuffle_rows(decode).mapInArrow(fold, OUTPUT_SCHEMA))
        return self._collect(self._plan_parcels(decode, fold, parcelling.targets))

    def _compute_without(
        self,
        outcome: Outcome,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        horizons: Mapping[str, int],
    ) -> Outcome:
        """Compute an epoch again, with the messages of its failing rows in quarantine."""
        failing = self._find_failing(outcome, ranges, epoch, uuid, horizons)
        return self._compute(ranges, epoch, uuid, failing, horizons)

    def _collect(self, planned: DataFrame | RDD[tuple[str, bytes]]) -> Outcome:
        """Run the planned stages, and return the reports of their tasks."""
        outcome = Outcome()
        self.phases.lap("plan")
        for kind, payload in collect_rows(planned):
            if kind == "report":
                outcome.add_report(payload)
            else:
                outcome.folds.append(msgspec.json.decode(payload, type=FoldReport))
        self.phases.lap("tasks")
        failpoint("after_tasks")
        if outcome.too_large:
            raise EpochTooLarge(
                "the rows of one message have more bytes than a task may hold "
                f"({self.task_bytes_max}); remove it from the topic or use fewer columns"
            )
        return outcome

    def _plan_parcels(
        self, decode: DecodeTask, fold: FoldTask | ViewsFold, targets: int
    ) -> DataFrame | RDD[tuple[str, bytes]]:
        """Return the epoch's reports: of one stage, without SQL, if one task can do all of it.

        Otherwise the rows of each fold task are sent as parcels, which Spark does not evaluate.
        """
        if targets == 1:
            ranges = self.spark.sparkContext.parallelize(range(len(decode.ranges)), 1)
            return ranges.mapPartitions(EpochTask(decode, fold))
        sent = self._number_ranges(decode.ranges).mapInArrow(decode, SPARK_PARCELS)
        target = F.col(TARGET) % targets  # those of a second view follow the first one's
        return sent.repartitionById(targets, target).mapInArrow(fold, OUTPUT_SCHEMA)

    def _shuffle_rows(self, decode: DecodeTask) -> DataFrame:
        """Evaluate the expressions of the decoded rows in Spark, and send them to fold tasks."""
        own_columns = OWN_COLUMNS if decode.deadline is None else (*OWN_COLUMNS, LATE)
        if self.plan.primary_key:
            weighted = self._dedupe(self._decode(decode, IMAGE_COLUMNS), decode)
        else:
            weighted = self._decode(decode, own_columns)
        projected = project(weighted, self.plan, own_columns, keep=self._reported)
        return self._shuffle(projected.withColumn(BUCKET, self._bucket), BUCKET, decode.ranges)

    def _decode(self, decode: DecodeTask, own_columns: Sequence[str]) -> DataFrame:
        schema = weighted_schema(self.plan.image, own_columns)
        return self._number_ranges(decode.ranges).mapInArrow(decode, schema)

    def _number_ranges(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return a frame of the ranges' numbers; small ranges share a task."""
        count = len(ranges)
        small = count_planned_records(ranges) <= count * SMALL_RANGE_RECORDS
        return self.spark.range(0, count, 1, min(count, self.cores) if small else count)

    def _dedupe(self, images: DataFrame, decode: DecodeTask) -> DataFrame:
        """Shuffle changes by primary key, and return the signed rows that follow from them."""
        dedupe = DedupeTask(
            self.plan,
            self.table.root,
            self.cache,
            decode.epoch,
            decode.uuid,
            base=stamp_of(self.newest),
            version=self.table.version,
            recent_epochs=tuple(self.recent_epochs),
            truncations=Truncations.of_json(self.newest.time.truncations),
            durable=self.spec.durable,
            bytes_max=self.task_bytes_max,
        )
        bucket = change_bucket_column(self.plan, self.spec.state.buckets)
        rows = images.withColumn(ROW_BUCKET, bucket)
        shuffled = self._shuffle(rows, ROW_BUCKET, decode.ranges)
        return shuffled.mapInArrow(dedupe, weighted_schema(self.plan.used, OWN_COLUMNS))

    def _find_failing(
        self,
        outcome: Outcome,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        horizons: Mapping[str, int],
    ) -> tuple[tuple[int, str], ...]:
        """Return the positions and reasons of all failing rows of an epoch.

        With dedupe only last images were evaluated. Earlier images that fail must be found too:
        with the last ones in quarantine, the earlier ones would count.
        """
        if not self.plan.primary_key:
            return tuple(outcome.failing)
        decode = replace(self._make_decode_task(ranges, epoch, uuid, horizons), probing=True)
        projected = project(self._decode(decode, IMAGE_COLUMNS), self.plan, OWN_COLUMNS)
        failing = projected.where(F.col(FAILURE).isNotNull()).select(POSITION, FAILURE)
        return tuple((position, reason) for position, reason in failing.collect())

    def _shuffle(
        self, bucketed: DataFrame, bucket: str, ranges: Sequence[OffsetRange]
    ) -> DataFrame:
        """Shuffle by bucket into a few tasks; each task gets several buckets."""
        target: Column = F.col(bucket)
        return bucketed.repartitionById(self._count_tasks(ranges), target)

    def _count_tasks(self, ranges: Sequence[OffsetRange]) -> int:
        """Return the number of fold tasks for these ranges."""
        return max(1, min(self.cores, -(-count_planned_records(ranges) // FOLD_TASK_ROWS)))
