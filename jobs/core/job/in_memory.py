"""Run one job in memory over signed rows, without Kafka, Spark and Delta.

    signed rows ──► last images (dedupe) ──► windows, grouping sets ──► WHERE ──► late? ──► Bundle
                        └─► scans ─► at the end of the bundle: joins ──► windows, sets ───────┤
              changelog rows, watermarks, late rows ◄── MemoryFold ◄── end of the bundle ◄─────────┘

`retally replay` and the console's trial run use this module. A bundle has exactly
`minibatch.size` rows (-U and +U are two); a running job ends a bundle between two messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.rules import rules_of
from jobs.core.fold.state import Clock
from jobs.core.job.views import sources_of
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.dedupe import LastImages, number_partition
from jobs.core.rows.projection import RowFailed, row_projection
from jobs.core.rows.truncations import Truncation
from jobs.core.rows.windows import (
    no_window_reasons,
    window_expander,
    with_window_columns,
    without_window,
)
from jobs.core.sql.grouping_sets import set_number_projection, with_set_numbers
from jobs.core.time.bundle_clocks import WATERMARK_MAX, EventTimeAssigner, ProcessingTimeAssigner
from jobs.core.time.watermark_generators import latest_of
from jobs.core.values.change import Rejected, Row
from schemas.spec.job import JobSpec
from schemas.spec.source import FORMATS_WITH_KEY_CHANGES
from schemas.table.epoch import TopicPartition

Signed = tuple[int, Row]


@dataclass(frozen=True, slots=True)
class WatermarkEvent:
    """The watermark that follows the results of its bundle."""

    time: int


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    topic_partition: TopicPartition
    offset: int
    why: Rejected
    source: str = ""  # its name, if the job has several


@dataclass(frozen=True, slots=True)
class LateRowEvent:
    """A row of used columns whose windows are all closed."""

    topic_partition: TopicPartition
    offset: int
    weight: int
    row: Row


@dataclass(frozen=True, slots=True)
class BundleEnd:
    """The end of a bundle with so many rows, after its results."""

    rows: int


_JOINED = TopicPartition("", 0)  # the place of joined rows in a bundle
Event = ChangelogRow | WatermarkEvent | RejectedMessage | LateRowEvent | BundleEnd


class BundleTime(Protocol):
    """The time of a job whose bundles are the epochs of a running job."""

    def take(self, sign: int, row: Row) -> int | None:
        """Take the next row of the source; return the watermark by which it is late, if any."""

    def end_bundle(self, now_ms: int) -> Iterable[int]:
        """Return the watermarks that follow from the rows of a bundle."""

    def pass_time(self, now_ms: int) -> Iterable[int]:
        """Return the watermarks that follow from time alone, up to now."""


class Joins(Protocol):
    """The joins of a query."""

    def add(self, source: str, row: Row, weight: int) -> bool:
        """Take a change of a source; return whether a scan has the row."""

    def join(self) -> Iterable[list[tuple[Row, int]]]:
        """Return the changes of joined rows, with weights, since the last call."""


class RowExpander:
    """Expands a row of used columns into the rows to fold.

    A row becomes one row for each of its windows and for each grouping set. `plan` is the plan over
    the expanded rows.
    """

    def __init__(self, plan: Plan) -> None:
        self._time = None if plan.window is None else plan.used.index(plan.window.time)
        self._numbered = None if plan.grouping_sets == 1 else set_number_projection(plan)
        plan = plan if self._numbered is None else with_set_numbers(plan)
        self._window = window = plan.window
        self.plan = plan if window is None else with_window_columns(plan, window)
        self.project = row_projection(self.plan)
        self._windows_of = None if window is None else window_expander(plan, window)

    def expand(self, row: Row) -> list[Row]:
        """Return the row once for each grouping set and window; once if it is in no window."""
        rows = [row] if self._numbered is None else self._numbered(row)
        if self._windows_of is None:
            return rows
        return [each for one in rows for each in self._windows_of(one) or [without_window(one)]]

    def failure(self, row: Row) -> str | None:
        """Return why a row cannot be folded. A row in no window fails, unless WHERE removes it."""
        expanded = self.expand(row)
        try:
            first, *_ = map(self.project, expanded)
        except RowFailed as failed:
            return str(failed)
        if self._window is None or self._time is None or expanded[0][-1] is not None:
            return None
        if first is None:
            return None
        is_null, out_of_range = no_window_reasons(self._window)
        return is_null if row[self._time] is None else out_of_range


class InMemoryJob:
    """One job: the rows of the current bundle, the state, and the time.

    Methods return their events as an iterator; the caller must exhaust it before the next call.
    """

    def __init__(
        self,
        spec: JobSpec,
        plan: Plan,
        rows: RowExpander,
        *,
        joins: Joins | None = None,
        bundle_rows: int | None = None,
        time: BundleTime | None = None,
    ) -> None:
        """Start a job without rows. A bundle ends after `bundle_rows` rows, if given.

        Without `time` the caller gives all watermarks.
        """
        self._time = time
        self._rows = rows
        self._bundle_rows = bundle_rows
        specs, sources = spec.source_specs, sources_of(spec, plan)
        self._joins = joins
        self._images = {
            name: LastImages(
                each, keys_change=specs[name].source.format in FORMATS_WITH_KEY_CHANGES
            )
            for name, each in sources.items()
            if each.primary_key
        }
        self._closing = closing_of(spec, plan)
        # A bundle of the event clock is kept as rows here, so the state withholds nothing.
        rules = rules_of(spec, closing=self._closing)
        self._memory_fold = MemoryFold(plan, rows.project, rules=rules)
        self._bundle = Bundle()
        self._row_count = 0  # of the bundle; a row in several windows counts once
        self._rejected: list[RejectedMessage] = []
        self._late: list[LateRowEvent] = []
        self._now_ms = 0
        self._watermark: int | None = None
        self._clock = ProcessingTimeAssigner(spec.minibatch.latency_ms)
        interval = spec.minibatch.interval_ms
        self._event_clock = None if interval is None else EventTimeAssigner(interval)

    # --- rows -------------------------------------------------------------------------------------

    def take(
        self,
        partition: TopicPartition,
        offset: int,
        changes: Iterable[Signed],
        source_time: int | None = None,
        source: str = "",
    ) -> Iterator[Event]:
        """Add the rows of a message to the bundle; the bundle may end between two of them.

        `source_time` is when the source changed the rows, for jobs with dedupe.
        """
        derived = self._derive(source, partition, changes, source_time)
        yield from self._add(source, partition, offset, derived)

    def truncate(
        self,
        partition: TopicPartition,
        offset: int,
        time: int,
        read_ms: int | None,
        source: str = "",
    ) -> Iterator[Event]:
        """Take away the rows that a TRUNCATE removes, for jobs with `on_truncate: apply`."""
        found = Truncation.of(number_partition(*partition), time, read_ms, position=0)
        gone = self._images[source].truncate(found)
        yield from self._add(source, partition, offset, ((*each, self._watermark) for each in gone))

    def _add(
        self,
        source: str,
        partition: TopicPartition,
        offset: int,
        derived: Iterable[tuple[int, Row, int | None]],
    ) -> Iterator[Event]:
        """Add rows to the bundle, each with the watermark before it."""
        for weight, row, watermark in derived:
            if self._joins is not None:
                if self._joins.add(source, row, weight):
                    yield from self._count_row()
                continue
            expanded = self._rows.expand(row)
            if self._rows.project(expanded[0]) is None:
                continue  # WHERE comes before the bundle, so its rows do not fill one
            if self._closing is not None:
                expanded = self._closing.still_open(expanded, watermark)
                if not expanded:
                    self._late.append(LateRowEvent(partition, offset, weight, row))
                    continue
            place = partition, offset
            if self._images:  # derived in the order of arrival, across partitions
                place = TopicPartition("", 0), self._row_count
            self._bundle.add(*place, [(weight, each) for each in expanded])
            yield from self._count_row()

    def _count_row(self) -> Iterator[Event]:
        self._row_count += 1
        if self._row_count == self._bundle_rows:
            yield from self.end_bundle()

    def reject(
        self, partition: TopicPartition, offset: int, why: Rejected, source: str = ""
    ) -> None:
        """Record a rejected message; `end_bundle` reports it."""
        self._rejected.append(RejectedMessage(partition, offset, why, source))

    def _derive(
        self,
        source: str,
        partition: TopicPartition,
        changes: Iterable[Signed],
        source_time: int | None,
    ) -> Iterator[tuple[int, Row, int | None]]:
        """Yield the rows to fold or to join, each with the watermark before it."""
        watermark, images = self._watermark, self._images.get(source)
        signed = list(changes)
        for sign, row in signed:
            own = None if self._time is None else self._time.take(sign, row)
            watermark = latest_of(self._watermark, own)
            if images is None:
                yield sign, row, watermark
        if images is not None:  # windows do not close, so no row is late
            number = number_partition(*partition)
            for weight, row in images.derive(signed, source_time, number):
                yield weight, row, watermark

    def _join(self) -> None:
        """Join the changes of the bundle; joined rows that fail count for nothing."""
        for batch in () if self._joins is None else self._joins.join():
            for row, weight in batch:
                if self._rows.failure(row) is None:
                    expanded = self._rows.expand(row)
                    self._bundle.add(_JOINED, 0, [(weight, each) for each in expanded])

    def end_bundle(self) -> Iterator[Event]:
        """Fold the rows of the bundle."""
        self._join()
        bundle, self._bundle = self._bundle, Bundle()
        row_count, self._row_count = self._row_count, 0
        rejected, self._rejected = self._rejected, []
        late, self._late = self._late, []
        yield from sorted(rejected, key=_position)
        yield from sorted(late, key=_position)
        yield from self._memory_fold.open_groups().changelog
        if row_count:
            yield from self._memory_fold.fold(
                bundle.consolidate(), self._now_ms, self._watermark
            ).changelog
            yield BundleEnd(row_count)
        for time in () if self._time is None else self._time.end_bundle(self._now_ms):
            yield from self.observe_watermark(time)

    # --- time -------------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> Iterator[Event]:
        """Let processing time pass.

        On the processing clock the bundle ends when its timer is due; on the event clock time
        alone does not end it. Groups expire in between.
        """
        until = self._now_ms + ms
        if self._event_clock is None and self._clock.next_timer <= until:
            yield from self._expire(self._clock.next_timer)
            if self._clock.pass_time(self._now_ms) is not None:
                yield from self.end_bundle()
        yield from self._expire(until)
        if self._event_clock is None:
            self._clock.pass_time(until)
        for time in () if self._time is None else self._time.pass_time(until):
            yield from self.observe_watermark(time)

    def _expire(self, until: int) -> Iterator[Event]:
        while (wakes_at := self._memory_fold.wakes_at) is not None and wakes_at <= until:
            self._now_ms = max(self._now_ms, wakes_at)
            yield from self._memory_fold.pass_time(
                self._now_ms, watermark=self._watermark
            ).changelog
        self._now_ms = until

    def observe_watermark(self, time: int) -> Iterator[Event]:
        """Take an input watermark.

        The event clock drops a watermark below its next boundary, and the bundle continues.
        """
        forwarded = time if self._event_clock is None else self._event_clock.pass_watermark(time)
        if forwarded is not None:
            yield from self._forward(forwarded)

    def end(self) -> Iterator[Event]:
        """End the input: emit a watermark that the event clock held back, then the maximal one."""
        held_back = None if self._event_clock is None else self._event_clock.finish()
        if held_back is not None:
            yield from self._forward(held_back)
        yield from self._forward(WATERMARK_MAX)

    def _forward(self, time: int) -> Iterator[Event]:
        """End the bundle, then emit the watermark; drop it if it is lower than the last one."""
        yield from self.end_bundle()
        if self._watermark is None or time > self._watermark:
            self._watermark = time
            if self._closing is not None or self._memory_fold.program.clock is Clock.EVENT:
                yield from self._memory_fold.pass_time(self._now_ms, watermark=time).changelog
            yield WatermarkEvent(time)


def list_evaluated_rows(plan: Plan, changes: Iterable[Signed]) -> Iterator[Row]:
    """Yield the rows of a message on which the expressions of a plan are evaluated.

    With dedupe a retraction may have only its key, so its row is skipped.
    """
    for sign, row in changes:
        if not plan.primary_key:
            yield row
        elif sign > 0:
            yield row[: len(plan.used)]


def _position(event: RejectedMessage | LateRowEvent) -> tuple[TopicPartition, int]:
    return event.topic_partition, event.offset
