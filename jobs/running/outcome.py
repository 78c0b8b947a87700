"""Collect the reports of an epoch's tasks, check them, and sum them to the epoch's counters.

range reports, dedupe reports, fold reports ──► checks pass? ──► files and counters of the epoch
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from jobs.core.fold.laws import BrokenLaw, messages_conserved, rows_conserved
from jobs.core.homes import Placement
from jobs.core.join.stages import subtable_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.truncations import Truncations
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeTimedOut
from jobs.edge.publisher.job_publisher import Published
from jobs.edge.rows.joined_rows import LESS_ROWS
from jobs.edge.table.file_writer import AddedFile
from jobs.edge.tasks.body import TaskReport
from jobs.edge.tasks.dedupe import DedupeReport
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.join import JoinReport
from jobs.edge.tasks.range_report import RangeReport
from jobs.running.traces import EpochTraces
from schemas import limits
from schemas.failures.catalogue import CodedError
from schemas.limits import BAD_FRACTION_MESSAGES_MIN
from schemas.spec.job import JobSpec
from schemas.table.epoch import DEDUPE_ERRORS, EpochRow, SourceRepeat, name_topic
from schemas.types.json_types import JsonObject

_RANGE_COUNTERS = (
    "read",
    "decoded",
    "skipped",
    "filtered",
    "quarantined",
    "scanned",
    "rows",
    "event_times_missing",
    "damaged_texts",
)
_decode_report = msgspec.json.Decoder(RangeReport | DedupeReport | JoinReport | FoldReport).decode


class InputRefused(CodedError, code="input-refused"):
    """The job must not go on with this input; nothing of the epoch is committed."""


class EpochTooLarge(InputRefused):
    """The rows of a task exceed its memory limit; read the epoch in parts."""


@dataclass(slots=True)
class Outcome:
    """The reports of an epoch, before the checks."""

    ranges: list[RangeReport] = field(default_factory=list)
    dedupes: list[DedupeReport] = field(default_factory=list)
    joins: list[JoinReport] = field(default_factory=list)
    folds: list[FoldReport] = field(default_factory=list)

    def add_report(self, payload: bytes) -> None:
        """Add the report of a range or of a task, as JSON."""
        report = _decode_report(payload)
        if isinstance(report, DedupeReport):
            self.dedupes.append(report)
        elif isinstance(report, JoinReport):
            self.joins.append(report)
        elif isinstance(report, FoldReport):
            self.folds.append(report)
        else:
            self.ranges.append(report)

    @property
    def too_large(self) -> bool:
        """Whether a task refused its rows, because they have too many bytes."""
        tasks: list[RangeReport | TaskReport] = [*self.ranges, *self._with_state]
        return any(task.too_large for task in tasks)

    def explain_too_large(self, bytes_max: int) -> str:
        """Return why one message is too large, if only one was read."""
        for join in self.joins:
            if join.refused is not None:
                return join.refused
        pairs, of_key = max((join.most_pairs for join in self.joins), default=(0, ""))
        if pairs > 1 and not any(report.too_large for report in self.ranges):
            return (
                f"the joined rows that one message changes have more bytes than a task may hold "
                f"({bytes_max}); {of_key}; use fewer columns, or {LESS_ROWS}"
            )
        return (
            f"the rows of one message have more bytes than a task may hold ({bytes_max}); remove "
            "it from the topic or use fewer columns"
        )

    @property
    def _with_state(self) -> list[TaskReport]:
        return [*self.dedupes, *self.joins, *self.folds]

    def count_work(self, homes: Placement | None) -> dict[str, int]:
        """Return what the tasks with state took and caught up with, and how many were at home."""
        tasks = self._with_state
        counters = {
            "rows_folded": sum(fold.arrived for fold in self.folds)
            + sum(sum(join.arrived.values()) for join in self.joins)
            + sum(dedupe.taken for dedupe in self.dedupes),
            "rows_caught_up": sum(task.caught_up for task in tasks),
        }
        if homes is not None:
            at_home = [task for task in tasks if task.executor == homes.executors[task.task]]
            counters |= {"tasks_placed": len(tasks), "tasks_at_home": len(at_home)}
        return counters

    def timers_of(self, view: int) -> Iterator[dict[str, int]]:
        """The earliest timers that the fold tasks of a view found."""
        return (fold.timers for fold in self._folds_of(view))

    def _folds_of(self, view: int) -> list[FoldReport]:
        return [fold for fold in self.folds if fold.view == view]

    @property
    def shared_files(self) -> list[AddedFile]:
        """The files that belong to no view: images, the sides of joins and quarantine."""
        images = [
            file.of_view(subtable_of(dedupe.source))
            for dedupe in self.dedupes
            for file in dedupe.files
        ]
        sides = [
            file.of_view(side)
            for join in self.joins
            for side, files in join.files.items()
            for file in files
        ]
        return images + sides + [file for report in self.ranges for file in report.quarantine]

    @property
    def latest_ms(self) -> int | None:
        """The greatest row time; None if no row has a time."""
        times = (report.event_time_max for report in self.ranges)
        return max((time for time in times if time is not None), default=None)

    @property
    def appended_ms(self) -> int | None:
        """When the oldest record was appended; None without records, or if Kafka does not say."""
        times = (report.appended_ms for report in self.ranges)
        return min((time for time in times if time is not None), default=None)

    def check_reports(self, ranges: Sequence[OffsetRange]) -> None:
        """Raise unless the reports cover the planned ranges and every message that was read."""
        self.require_readable()
        self.require_one_report_each(ranges)
        for report in self.ranges:
            messages_conserved(
                f"{report.topic}/{report.partition}",
                report.read,
                decoded=report.decoded,
                skipped=report.skipped,
                filtered=report.filtered,
                quarantined=report.quarantined,
            )

    def require_readable(self) -> None:
        """Raise if a task could not read its range, or its rows of a snapshot."""
        for report in self.ranges:
            if report.unreadable is not None:
                kind = RangeTimedOut if report.silent else InputRefused
                raise kind(report.unreadable)

    def require_reports(self, planned: int) -> None:
        """Raise unless each of the planned reports is there once, whatever tasks Spark retried."""
        numbers = sorted(report.number for report in self.ranges)
        if numbers != list(range(planned)):
            raise BrokenLaw(f"{planned} ranges were planned, but {numbers} reported")

    def require_one_report_each(self, ranges: Sequence[OffsetRange]) -> None:
        """Raise unless each planned range has exactly one report."""
        self.require_reports(len(ranges))
        planned = {(each.source, each.topic, each.partition, each.start) for each in ranges}
        seen = [
            (each.source, each.topic, each.partition, each.start)
            for each in self.ranges
            if each.topic is not None
        ]
        if len(set(seen)) != len(seen) or not planned.issuperset(seen):
            raise BrokenLaw(f"reports of {seen} do not match the planned ranges {sorted(planned)}")

    def sum_range_counters(self, deduped: Collection[str]) -> dict[str, Any]:
        """Return the counters of the messages that were read; raise BrokenLaw if rows got lost.

        `deduped` has the sources whose last images the job keeps.
        """
        counters: dict[str, Any] = {
            name: sum(getattr(report, name) for report in self.ranges) for name in _RANGE_COUNTERS
        }
        if self.appended_ms is not None:
            counters["appended_ms"] = self.appended_ms
        counters["truncations"] = sum(len(report.truncations) for report in self.ranges)
        counters["decode_seconds"] = max((each.seconds for each in self.ranges), default=0.0)
        if deduped:
            rows = sum(report.rows for report in self.ranges if report.source in deduped)
            counters |= self._sum_dedupe_counters(rows)
        return counters

    def count_repeats(self, newest: EpochRow) -> dict[str, Any]:
        """Return what an epoch after `newest` counts and remembers of the order of its source."""
        counts = newest.counts
        memory, repeated, count = dict(counts.source_memory), counts.source_repeated, 0
        for report in sorted(self.ranges, key=lambda each: (each.partition, each.start)):
            if report.order is None:
                continue
            topic, partition = report.topic or "", report.partition
            name = f"{name_topic(report.source, topic)}/{partition}"
            order = report.order.follow(memory.get(name))
            memory[name] = order.memory
            if order.repeats_from is not None:
                at = SourceRepeat(newest.epoch + 1, topic, partition, order.repeats_from, 0)
                repeated, count = repeated or at, count + order.repeats
        counters: dict[str, Any] = {"source_repeats": count, "source_memory": memory}
        if repeated is not None:
            counters["source_repeated"] = replace(repeated, count=repeated.count + count)
        found: dict[str, Any] = msgspec.to_builtins(counters)
        return {name: value for name, value in found.items() if value}

    def remember_truncations(self, newest: EpochRow) -> JsonObject:
        """Return the TRUNCATEs that epochs after this one, which follows `newest`, must know."""
        known = Truncations.of_json(newest.time.truncations)
        known = known.add(each for report in self.ranges for each in report.truncations)
        times = (done.newest_ms for done in self.dedupes if done.newest_ms is not None)
        stored = known.forget_old(max(times, default=None)).to_json()
        return {"truncations": stored} if stored else {}

    def count_shipped(self, reader: int) -> int:
        """Return how many rows went to a view or to a side of a join."""
        sent = [each.shipped for each in self.ranges]
        sent += [join.shipped for join in self.joins]
        sent += [done.derived for done in self.dedupes]
        return sum(rows.get(reader, 0) for rows in sent)

    def check_side(self, number: int, inputs: Plan) -> None:
        """Raise BrokenLaw if rows to a side of a join got lost."""
        arrived = sum(join.arrived.get(number, 0) for join in self.joins)
        rows_conserved(self.count_shipped(number), arrived, filters=inputs.where is not None)

    def count_failing(self, newest: EpochRow) -> dict[str, int | str | None]:
        """Return the joined rows on which an expression fails, after an epoch that follows."""
        count = newest.counts.failing_rows + sum(
            change for join in self.joins for change in join.failing.values()
        )
        if not count:
            return {}
        reasons = (join.reason for join in self.joins if join.reason)
        return {
            "failing_rows": count,
            "failing_reason": next(reasons, newest.counts.failing_reason),
        }

    def count_filtered(self, plan: Plan, view: int) -> int:
        """Return how many of its rows WHERE of a view removed; raise BrokenLaw if rows got lost."""
        return rows_conserved(
            self.count_shipped(view),
            sum(fold.counted for fold in self._folds_of(view)),
            filters=plan.where is not None,
            copies=plan.counted_copies,
        )

    def count_images(self, newest: EpochRow) -> int:
        """Return how many rows have a last image after an epoch that follows `newest`."""
        return (newest.counts.images or 0) + sum(done.rows_delta for done in self.dedupes)

    def _sum_dedupe_counters(self, rows: int) -> dict[str, Any]:
        """Return the counters of dedupe; raise unless the tasks received all decoded `rows`."""
        names = ("taken", "duplicates", "unknown_retractions", *DEDUPE_ERRORS)
        counts: dict[str, Any]
        counts = {name: sum(getattr(done, name) for done in self.dedupes) for name in names}
        if counts.pop("taken") != rows:
            raise BrokenLaw(f"{rows} rows were decoded; dedupe received another number")
        doubtful = [key for done in self.dedupes for key in done.doubtful_keys]
        if doubtful:
            counts["doubtful_keys"] = doubtful[: limits.DOUBTFUL_KEYS_NAMED_MAX]
        return counts

    def sum_fold_counters(self, plan: Plan, view: int, newest: EpochRow) -> dict[str, Any]:
        """Return the counters of the fold tasks of a view in an epoch after `newest`."""
        counters: dict[str, Any] = {}
        folds = self._folds_of(view)
        for fold in folds:
            for name, count in fold.counters.items():
                counters[name] = counters.get(name, 0) + count
        if "late_windows" in counters:  # a late row has one copy per window
            counters["late"] = counters.pop("late_copies") // plan.counted_copies
        counters["changelog_rows"] = sum(fold.changelog_rows for fold in folds)
        # The longest fold task, a part of compute_seconds; the rest is planning and moving rows.
        counters["fold_seconds"] = max((fold.seconds for fold in folds), default=0.0)
        counters["groups"] = newest.groups + sum(fold.groups_delta for fold in folds)
        below_zero = newest.counts.groups_below_zero
        below_zero += sum(fold.below_zero_delta for fold in folds)
        if below_zero:
            counters["groups_below_zero"] = below_zero
        dropped = [key for fold in folds for key in fold.dropped_keys]
        if dropped:
            counters["dropped_keys"] = dict(dropped[: limits.DROPPED_KEYS_NAMED_MAX])
        keys = [key for fold in folds for key in fold.keys_below_zero]
        if keys:
            counters["keys_below_zero"] = keys[: limits.KEYS_BELOW_ZERO_NAMED_MAX]
        return counters


class Phases:
    """Measures the phases of one job's epochs.

    `take_published` returns how far the topic is; a job without a sink has None here.

    plan ─► tasks ─► check ─► (row is written) ─► commit ─► publish └ in the next row: these phases
    follow the row
    """

    def __init__(self) -> None:
        self.take_published: Callable[[], Published] | None = None
        self.traces: EpochTraces | None = None
        self._ms: dict[str, float] = {}
        self._spans: dict[str, tuple[int, int]] = {}
        self._began = self._at = time.monotonic()
        self._began_ns = time.time_ns()

    def begin(self) -> None:
        """Begin the next epoch."""
        self._spans.clear()
        self._began = self._at = time.monotonic()
        self._began_ns = time.time_ns()

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to this phase."""
        now = time.monotonic()
        self._ms[phase] = self._ms.get(phase, 0.0) + (now - self._at) * 1_000
        start, end = (int((at - self._began) * 1e9) for at in (self._at, now))
        self._spans[phase] = self._began_ns + start, self._began_ns + end
        self._at = now

    def finish(self, row: EpochRow) -> None:
        """End the commit of an epoch."""
        self.lap("commit")
        if self.traces is not None:
            self.traces.add_epoch(row, self._spans)

    def end(self, phase: str) -> dict[str, Any]:
        """End the last phase before the commit, and return the epoch's counters of time.

        `commit` is the time of the previous epoch, `publish` that of the newest epoch in the topic.
        """
        self.lap(phase)
        phases, self._ms = {name: round(ms, 1) for name, ms in self._ms.items()}, {}
        counters: dict[str, Any] = {
            "compute_seconds": round(self._at - self._began, 4),
            "phases_ms": phases,
        }
        if self.take_published is None:
            return counters
        published = self.take_published()
        if published.seconds is not None:
            phases["publish"] = round(published.seconds * 1_000, 1)
            if self.traces is not None and published.epoch is not None:
                self.traces.add_published(published.epoch, published.seconds)
        if published.latencies_ms:
            latencies = {str(epoch): ms for epoch, ms in published.latencies_ms.items()}
            counters["publish_latencies_ms"] = latencies
        return counters if published.epoch is None else counters | {"published": published.epoch}


class InputLimits:
    """The limits of one job: on_schema_change, on_truncate, on_error and max_bad_fraction."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._recent: deque[tuple[int, int]] = deque()  # (read, quarantined) of recent epochs

    def check(self, reports: Sequence[RangeReport]) -> None:
        """Raise InputRefused if the spec says to stop at the input of the next epoch."""
        spec = self._spec
        gone = [report.gone for report in reports if report.gone]
        if gone and spec.on_schema_change == "stop":
            raise InputRefused(
                f"{gone[0]}; the job stops (on_schema_change: stop); correct the source or the "
                "columns of the job, or set on_schema_change: continue"
            )
        truncated = [report.truncated for report in reports if report.truncated]
        if truncated:
            raise InputRefused(truncated[0])
        rejects = [report.first_reject for report in reports if report.first_reject]
        rejects += [refused.first for report in reports for refused in report.refused]
        if rejects and spec.on_error == "fail":
            raise InputRefused(
                f"{rejects[0]}; the job stops (on_error: fail); correct the source, or set "
                "on_error: quarantine"
            )
        read, bad = self._count_recent(reports)
        if read >= BAD_FRACTION_MESSAGES_MIN and bad > spec.max_bad_fraction * read:
            raise InputRefused(
                f"{bad} of the last {read} messages are bad, more than max_bad_fraction "
                f"{spec.max_bad_fraction}; the first: {rejects[0] if rejects else 'earlier'}"
            )

    def _count_recent(self, reports: Sequence[RangeReport]) -> tuple[int, int]:
        """Add an epoch, and count the messages and bad messages of the last epochs.

        These are the fewest epochs that have BAD_FRACTION_MESSAGES_MIN messages. Of several views
        that refuse messages, the one that refuses the most counts.
        """
        recent = self._recent
        by_view = Counter[int]()  # bad messages that the other views take
        for report in reports:
            for refused in report.refused:
                by_view[refused.view] += refused.count
        bad = sum(r.quarantined for r in reports) + max(by_view.values(), default=0)
        recent.append((sum(r.read for r in reports), bad))
        read = sum(read for read, _ in recent)
        while len(recent) > 1 and read - recent[0][0] >= BAD_FRACTION_MESSAGES_MIN:
            read -= recent.popleft()[0]
        return read, sum(bad for _, bad in recent)
