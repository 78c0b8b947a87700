"""Pipeline: the way of an epoch, top to bottom. The only place where the stages meet.

    Spark's Kafka source, foreachBatch: offsets up to which to read
       │ one range a partition, one task a range
       ├─ DecodeTask: Kafka's records, decode, consolidate ─► weighted rows, one report a range
       │    (with dedupe: last changes ─ shuffle by primary key ─► DedupeTask ─► what they change)
       ├─ project: casts, WHERE, group and argument expressions, as Columns
       │    (where these are columns of the source: parcels, one for each fold task)
       ▼ shuffle by bucket
       ├─ FoldTask: per bucket, fold over the hot state ─► files of changelog and state
       ▼ driver
       1  judge: one report a range, every message accounted for, limits kept, or nothing
       2  ONE Delta commit: all files and the epoch's own row (offsets, counters, files)
       3  tell the publisher; the next epoch begins meanwhile

A crash before 2 leaves files that nobody refers to; after it the epoch is done. When time alone
makes something due, `run_epoch` is called with the offsets that it has and commits the same way.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.core.fold.laws import messages_conserved, rows_conserved
from jobs.core.fold.rules import rules_of
from jobs.core.formats.registry import MessageRules
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Column as PlanColumn
from jobs.core.plan.tree import Plan
from jobs.core.rows.row_time import time_column
from jobs.core.sql.marker import Marker
from jobs.core.time.due_work import Agenda, Due
from jobs.edge.kafka.range import RangeSilent
from jobs.edge.kafka.ranges import (
    OffsetRange,
    cut,
    moved,
    planned_records,
    ranges_between,
    shared_out,
)
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.late_rows import LATE
from jobs.edge.rows.weighted_rows import (
    BUCKET,
    POSITION,
    REPORT,
    SPARK_PARCELS,
    TARGET,
    WEIGHT,
    parcelling_of,
)
from jobs.edge.spark.bucket_column import bucket_column, row_bucket_column
from jobs.edge.spark.expressions import project, spark_type
from jobs.edge.spark.session import collected
from jobs.edge.state.bucket_states import CommittedEpoch, recent_line, stamp_of
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.due_changes import write_in_order
from jobs.edge.table.epoch_files import CHANGELOG, AddedFile, by_part, file_name, now_ms
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.dedupe import ROW_BUCKET, DedupeTask
from jobs.edge.tasks.fold import FAILURE, OUTPUT, FoldReport, FoldTask, TimeTask
from jobs.edge.tasks.range_reading import SourceRules
from jobs.running.clock import JobClock
from jobs.running.outcome import EpochTooLarge, InputRefused, Outcome
from jobs.running.phases import Phases
from schemas.limits import (
    BAD_FRACTION_MESSAGES_MIN,
    DROPPED_KEYS_NAMED_MAX,
    FOLD_TASK_ROWS,
    LINE_EPOCHS,
    SMALL_RANGE_RECORDS,
    TASK_BYTES_MAX,
)
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity

log = logging.getLogger(__name__)

_CARRIED = (POSITION, WEIGHT, REPORT)
_OUTPUT_SCHEMA = ", ".join(
    f"{name} {kind}" for name, kind in zip(OUTPUT.names, ("string", "binary"), strict=True)
)


class Pipeline:
    """One job's epochs, one after the other."""

    def __init__(
        self,
        spec: JobSpec,
        plan: Plan,
        table: EpochTable,
        newest: EpochRow,
        *,
        spark: SparkSession,
        connection: Mapping[str, str],  # of the source, in librdkafka's words
        cache: Path,
        cores: int,
        committed: Callable[[EpochRow, Sequence[AddedFile]], None],
        clock: JobClock,
        source_unchanged: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self.plan = plan
        self.table = table
        self.newest = newest
        self.spark = spark
        self.connection = connection
        self.cache = cache
        self.cores = cores
        self.committed = committed
        self.clock = clock
        self.source_unchanged = source_unchanged
        told = newest.watermarks.get("agenda")
        self.closing = closing_of(spec, plan)
        self.agenda = Agenda(
            spec.minibatch, spec.state.ttl_ms, told, fresh=newest.fresh, closing=self.closing
        )
        self.agenda.heard(clock.time.watermark)
        self.topics: dict[str, TopicIdentity] = dict(newest.topics)
        self.line: deque[CommittedEpoch] = deque(recent_line(table, newest), maxlen=LINE_EPOCHS)
        self._epoch_lock = threading.RLock()
        self._recent: deque[tuple[int, int]] = deque()  # (read, quarantined) of recent epochs
        self._records_max = sys.maxsize  # of an epoch, once one had too many bytes
        self.task_bytes_max = TASK_BYTES_MAX
        self._rules = source_rules(spec, plan)
        self.phases = Phases()

    # Columns belong to no frame, and each of their nodes is a call to the JVM: made once.

    @cached_property
    def _bucket(self) -> Column:
        return bucket_column(self.plan, self.spec.state.buckets)

    @cached_property
    def _reported(self) -> Column:
        return F.col(REPORT).isNotNull()

    @cached_property
    def _target(self) -> Column:
        return F.col(TARGET)

    @contextmanager
    def between_epochs(self) -> Iterator[None]:
        """Hold the job between two epochs; the thread that holds it may run epochs."""
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
        """Compute and commit the next epoch: what lies between the newest one's offsets and
        `ends`, which may be nothing. What time has made due in the state comes before new rows;
        what they make due, in an epoch of its own after them."""
        with self._epoch_lock:
            while ranges_between(self.newest.offsets, ends) and self.pass_time() is not None:
                pass
            row = self._run_in_parts(ends)
            self.pass_time()
            return row

    def _run_in_parts(self, ends: Offsets) -> EpochRow:
        """One epoch, or as many as it takes to hold the rows of each in memory."""
        while True:
            starts = self.newest.offsets
            part = cut(starts, ends, self._records_max)
            planned = ranges_between(starts, part)
            try:
                row = self._run(shared_out(planned, self.cores), part)
            except EpochTooLarge:
                records = planned_records(planned)
                if records == 1:
                    raise
                self._records_max = records // 2
                log.info("%d records have too many bytes for one epoch; reading fewer", records)
                continue
            if part == ends:
                return row
            # Records may be smaller by now; one attempt in vain costs an epoch's time.
            self._records_max += self._records_max // 8 + 1

    def pass_time(self) -> EpochRow | None:
        """An epoch without data, if time has made anything due."""
        with self._epoch_lock:
            if self.agenda.due(self.clock.now) is None:
                return None
            return self._run((), self.newest.offsets)

    def _run(self, ranges: tuple[OffsetRange, ...], ends: Offsets) -> EpochRow:
        self.phases.begin()
        epoch, uuid = self.newest.epoch + 1, uuid4().hex
        outcome = Outcome()
        if ranges:
            horizon = self.clock.horizon
            outcome = self._compute(ranges, epoch, uuid, (), horizon)
            if outcome.failing:  # rare: once more, with their messages in quarantine
                failing = self._all_failing(outcome, ranges, epoch, uuid, horizon)
                uuid = uuid4().hex
                outcome = self._compute(ranges, epoch, uuid, failing, horizon)
                outcome.require_none_failing()
            self.source_unchanged()
            counters = self._judge(outcome, ranges)
            self.agenda.folded(counters["rows"], (fold.timers for fold in outcome.folds))
        else:
            due = self.agenda.due(self.clock.now)
            if due is not None:
                outcome = self._fold_time(due, epoch, uuid)
                self.agenda.passed(due, (fold.timers for fold in outcome.folds))
            counters = self._fold_counters(outcome)
        self.clock.observe(outcome.ranges, ends)
        self.agenda.heard(self.clock.time.watermark)
        counters |= self.phases.told("judge")
        committed_ms = now_ms()
        latest = outcome.latest_ms
        if latest is not None:  # from a row's own time to the moment its result stands
            counters["event_lag_ms"] = committed_ms - latest
        row = EpochRow(
            epoch=epoch,
            uuid=uuid,
            generation=self.newest.generation,
            kind="data" if ranges else "time",
            committed_at=committed_ms * 1_000,
            plan=self.plan.fingerprint,
            offsets=moved(self.newest.offsets, ends),
            topics=self.topics,
            watermarks=self._told(),
            counters=counters,
            files=by_part(outcome.files),
        )
        self.table.commit_epoch(row, outcome.files, durable=self.spec.durable)
        self.phases.lap("commit")
        self.newest = row
        self.line.append(CommittedEpoch.of(row))
        self.committed(row, outcome.files)
        return row

    def _told(self) -> dict[str, Any]:
        """What the epoch's row says of time, for who reads it and for a start."""
        told, agenda = self.clock.told(), self.agenda.told()
        return told if agenda is None else told | {"agenda": agenda}

    def _fold_time(self, due: Due, epoch: int, uuid: str) -> Outcome:
        """Every bucket, without rows."""
        buckets = self.spec.state.buckets
        task = TimeTask(self._fold_task(epoch, uuid, due.now_ms), due.release)
        numbers = self.spark.range(0, buckets, 1, min(self.cores, buckets))
        outcome = Outcome()
        for _, payload in collected(numbers.mapInArrow(task, _OUTPUT_SCHEMA)):
            outcome.folds.append(msgspec.json.decode(payload, type=FoldReport))
        due_files = [file for fold in outcome.folds for file in fold.due]
        if due_files:
            name = file_name(CHANGELOG, epoch, uuid, "driver")
            changes = write_in_order(self.table.root, name, due_files, durable=self.spec.durable)
            outcome.folds[0].files.append(changes)
        self.phases.lap("tasks")
        failpoint("after_tasks")
        return outcome

    def _fold_task(self, epoch: int, uuid: str, now: int) -> FoldTask:
        return FoldTask(
            self.plan, self.table.root, self.cache, epoch, uuid,
            base=stamp_of(self.newest), version=self.table.version, line=tuple(self.line),
            rules=rules_of(
                self.spec.state, withhold=self.agenda.withholds, closing=self.closing
            ),
            now_ms=now, watermark=self.agenda.watermark, durable=self.spec.durable,
            bytes_max=self.task_bytes_max,
        )  # fmt: skip

    def _compute(
        self,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        failing: tuple[tuple[int, str], ...],
        horizon_ms: int,
    ) -> Outcome:
        fold = self._fold_task(epoch, uuid, self.agenda.advance(self.clock.now))
        decode = DecodeTask(
            self.plan, self._rules, self.connection, ranges, self.table.root, epoch, uuid,
            durable=self.spec.durable, horizon_ms=horizon_ms, deadline=fold.deadline,
            failing=failing, bytes_max=self.task_bytes_max,
            parcelling=parcelling_of(self.plan, self.spec.state.buckets, self._targets(ranges)),
        )  # fmt: skip
        parcelling = decode.parcelling
        shuffled = self._parcels(decode, parcelling.targets) if parcelling else self._rows(decode)
        outcome = Outcome()
        self.phases.lap("plan")
        for kind, payload in collected(shuffled.mapInArrow(fold, _OUTPUT_SCHEMA)):
            if kind == "report":
                outcome.take(payload)
            else:
                outcome.folds.append(msgspec.json.decode(payload, type=FoldReport))
        self.phases.lap("tasks")
        failpoint("after_tasks")
        if outcome.too_large:
            raise EpochTooLarge(
                "the rows of one message have more bytes than a task may hold, "
                f"{self.task_bytes_max}; remove it from the topic or raise TASK_BYTES_MAX"
            )
        return outcome

    def _parcels(self, decode: DecodeTask, targets: int) -> DataFrame:
        """The rows of each fold task, which nobody has to look into before it."""
        sent = self._ordinals(decode.ranges).mapInArrow(decode, SPARK_PARCELS)
        return sent.repartitionById(targets, self._target)

    def _rows(self, decode: DecodeTask) -> DataFrame:
        """The rows of each fold task, evaluated on the way."""
        carried = _CARRIED if decode.deadline is None else (*_CARRIED, LATE)
        weighted = self._decoded(decode, carried)
        if self.plan.primary_key:
            weighted = self._deduped(weighted, decode)
        projected = project(weighted, self.plan, carried, keep=self._reported)
        return self._shuffled(projected.withColumn(BUCKET, self._bucket), BUCKET, decode.ranges)

    def _decoded(self, decode: DecodeTask, carried: Sequence[str]) -> DataFrame:
        schema = _weighted_schema(self.plan.image, carried)
        return self._ordinals(decode.ranges).mapInArrow(decode, schema)

    def _ordinals(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The numbers of the ranges, so many in a task as make one worth it."""
        count = len(ranges)
        small = planned_records(ranges) <= count * SMALL_RANGE_RECORDS
        return self.spark.range(0, count, 1, min(count, self.cores) if small else count)

    def _deduped(self, images: DataFrame, decode: DecodeTask) -> DataFrame:
        """What the last changes of rows change: one shuffle more, by primary key."""
        dedupe = DedupeTask(
            self.plan, self.table.root, self.cache, decode.epoch, decode.uuid,
            base=stamp_of(self.newest), version=self.table.version, line=tuple(self.line),
            durable=self.spec.durable, bytes_max=self.task_bytes_max,
        )  # fmt: skip
        bucket = row_bucket_column(self.plan, self.spec.state.buckets)
        rows = images.withColumn(ROW_BUCKET, bucket)
        shuffled = self._shuffled(rows, ROW_BUCKET, decode.ranges)
        return shuffled.mapInArrow(dedupe, _weighted_schema(self.plan.used, _CARRIED))

    def _all_failing(
        self,
        outcome: Outcome,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        horizon_ms: int,
    ) -> tuple[tuple[int, str], ...]:
        """The rows of an epoch that fail. With dedupe only last images were evaluated; those
        before them have to be known as well, for without the last ones they would count."""
        if not self.plan.primary_key:
            return tuple(outcome.failing)
        decode = DecodeTask(
            self.plan, self._rules, self.connection, ranges, self.table.root, epoch, uuid,
            durable=self.spec.durable, horizon_ms=horizon_ms, probing=True,
        )  # fmt: skip
        projected = project(self._decoded(decode, _CARRIED), self.plan, _CARRIED)
        failing = projected.where(F.col(FAILURE).isNotNull()).select(POSITION, FAILURE)
        return tuple((position, reason) for position, reason in failing.collect())

    def _shuffled(
        self, bucketed: DataFrame, bucket: str, ranges: Sequence[OffsetRange]
    ) -> DataFrame:
        """Few tasks, each with several buckets; the bucket itself says which."""
        target: Column = F.col(bucket)
        return bucketed.repartitionById(self._targets(ranges), target)

    def _targets(self, ranges: Sequence[OffsetRange]) -> int:
        """How many tasks share the buckets."""
        return max(1, min(self.cores, -(-planned_records(ranges) // FOLD_TASK_ROWS)))

    def _judge(self, outcome: Outcome, ranges: Sequence[OffsetRange]) -> dict[str, Any]:
        """The epoch's counters, or an exception and no commit."""
        for report in outcome.ranges:
            if report.unreadable is not None:
                kind = RangeSilent if report.silent else InputRefused
                raise kind(report.unreadable)
        outcome.require_one_report_each(ranges)
        for report in outcome.ranges:
            messages_conserved(
                f"{report.topic}/{report.partition}",
                report.read,
                decoded=report.decoded,
                skipped=report.skipped,
                filtered=report.filtered,
                quarantined=report.quarantined,
            )
        self._refuse(outcome)
        return self._counters(outcome)

    def _refuse(self, outcome: Outcome) -> None:
        gone = [report.gone for report in outcome.ranges if report.gone]
        if gone and self.spec.on_schema_change == "stop":
            raise InputRefused(
                f"{gone[0]}. The job stops (on_schema_change: stop); correct the source or the "
                "columns of the job, or say on_schema_change: continue"
            )
        rejects = [report.first_reject for report in outcome.ranges if report.first_reject]
        if rejects and self.spec.on_error == "fail":
            raise InputRefused(f"{rejects[0]}. The job stops (on_error: fail)")
        self._recent.append(
            (sum(r.read for r in outcome.ranges), sum(r.quarantined for r in outcome.ranges))
        )
        while len(self._recent) > 1 and (
            sum(read for read, _ in self._recent) - self._recent[0][0] >= BAD_FRACTION_MESSAGES_MIN
        ):
            self._recent.popleft()
        read = sum(read for read, _ in self._recent)
        bad = sum(bad for _, bad in self._recent)
        if read >= BAD_FRACTION_MESSAGES_MIN and bad > self.spec.max_bad_fraction * read:
            raise InputRefused(
                f"{bad} of the last {read} messages are bad, more than max_bad_fraction "
                f"{self.spec.max_bad_fraction}; the first: {rejects[0] if rejects else 'earlier'}"
            )

    def _counters(self, outcome: Outcome) -> dict[str, Any]:
        names = ("read", "decoded", "skipped", "filtered", "quarantined", "rows", "shipped",
                 "event_times_missing")  # fmt: skip
        counters: dict[str, Any] = {
            name: sum(getattr(report, name) for report in outcome.ranges) for name in names
        }
        counters["decode_seconds"] = max((each.seconds for each in outcome.ranges), default=0.0)
        if self.plan.primary_key:
            counters |= outcome.dedupe_counters(counters["rows"])
        counters["where_filtered"] = rows_conserved(
            counters["shipped"],
            sum(fold.arrived for fold in outcome.folds),
            filters=self.plan.where is not None,
            copies=self.plan.copies,
        )
        return counters | self._fold_counters(outcome)

    def _fold_counters(self, outcome: Outcome) -> dict[str, Any]:
        counters: dict[str, Any] = {}
        for fold in outcome.folds:
            for name, count in fold.counters.items():
                counters[name] = counters.get(name, 0) + count
        if "late_windows" in counters:  # a row that no window takes came once for each of them
            counters["late"] = counters.pop("late_copies") // self.plan.copies
        counters["changelog_rows"] = sum(fold.changelog_rows for fold in outcome.folds)
        # Of compute_seconds, the longest task of each stage; the rest is planning and moving rows.
        counters["fold_seconds"] = max((fold.seconds for fold in outcome.folds), default=0.0)
        grown = sum(fold.groups_delta for fold in outcome.folds)
        counters["groups"] = self.newest.counters.get("groups", 0) + grown
        if self.plan.primary_key:
            images = sum(done.rows_delta for done in outcome.dedupes)
            counters["images"] = self.newest.counters.get("images", 0) + images
        dropped = [key for fold in outcome.folds for key in fold.dropped_keys]
        if dropped:
            counters["dropped_keys"] = dict(dropped[:DROPPED_KEYS_NAMED_MAX])
        return counters | self.newest.marks


def source_rules(spec: JobSpec, plan: Plan) -> SourceRules:
    """How a job's messages are read."""
    column, marker = time_column(spec.watermark, plan.columns), spec.watermark.marker
    return SourceRules(
        MessageRules.of(spec),
        time="column" if column is not None else str(spec.watermark.time),
        time_column=column,
        marker=None if marker is None else Marker.of(marker, spec.columns),
    )


def _weighted_schema(columns: Sequence[PlanColumn], carried: Sequence[str]) -> StructType:
    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, spark_type(column.type))
    for name in carried:
        schema = schema.add(name, "long" if name in (POSITION, WEIGHT) else "binary")
    return schema
