"""Clock: the time of a running job, beside its epochs.

    ranges of an epoch ──► observe ──► JobTime (pure) ──► the epoch row's `watermarks`
    ticks in between   ──► tick ─────►    │
                                          ├──► due: time alone has moved something, so an epoch
                                          │        without data says so
                                          └──► paused: partitions that wait for slower ones

Results first, watermark after: what an epoch row says of time holds once its rows are out. The
clock of the machine is read here and nowhere below.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jobs.core.time.job_time import JobTime, Place
from jobs.core.time.time_view import PartitionTime
from jobs.core.time.watermark_generators import Generator, later
from jobs.edge.kafka.ranges import moved
from jobs.edge.process.alignment_group import AlignmentGroup
from jobs.edge.table.epoch_files import now_ms
from jobs.edge.tasks.range_reading import RangeReport
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets


class _Read(NamedTuple):
    """What an epoch has read of a partition: records, the greatest time, and the greatest one up
    to the last marked row."""

    records: int = 0
    latest: int | None = None
    marked: int | None = None

    def then(self, report: RangeReport) -> _Read:
        marked = report.event_time_marked
        return _Read(
            self.records + report.read,
            later(self.latest, report.event_time_max),
            self.marked if marked is None else later(self.latest, marked),
        )


class JobClock:
    """Used under the pipeline's epoch lock."""

    def __init__(
        self,
        spec: JobSpec,
        partitions: Mapping[str, int],  # how many each topic has
        newest: EpochRow,
        *,
        log_ends: Callable[[], Offsets],
        group: AlignmentGroup | None = None,
        make: Callable[[], Generator] | None = None,
    ) -> None:
        self._spec = spec.watermark
        self._latency_ms = spec.minibatch.latency_ms
        self._log_ends = log_ends
        self._group = group
        # A machine's clock may be set; the time that has passed since the start may not.
        self._started_ms, self._started = now_ms(), time.monotonic()
        self.time = JobTime(spec.watermark, tuple(partitions), self.now, make=make)
        if "topics" in newest.watermarks:
            self.time.restore(newest.watermarks, self.now)
        self._seen: dict[str, int] = dict(newest.watermarks.get("event_time_max", {}))
        self._ends = newest.offsets
        self.changed = False  # in what others are told
        self._told_ms = self.now
        # Read by the thread that runs no epoch, so never looked up while an epoch changes time.
        self.paused: frozenset[Place] = self.time.paused
        for topic, count in partitions.items():
            for partition in range(count):
                self.time.add(topic, partition)

    @property
    def now(self) -> int:
        """Epoch milliseconds that never go back while the process lives."""
        return self._started_ms + int((time.monotonic() - self._started) * 1_000)

    @property
    def horizon(self) -> int:
        """The latest time that a row may have."""
        return self.now + self._spec.future_skew_ms

    @property
    def due(self) -> bool:
        """Whether something that nobody was told yet has changed for long enough."""
        return self.changed and self.now - self._told_ms >= self._latency_ms

    def observe(self, reports: Sequence[RangeReport], ends: Offsets) -> None:
        """An epoch was computed: what its ranges have read, and where it ends."""
        self._ends = moved(self._ends, ends)
        read: dict[Place, _Read] = {}
        for report in sorted(reports, key=lambda each: each.start):  # a long range has several
            if report.topic is not None:
                place = (report.topic, report.partition)
                read[place] = read.get(place, _Read()).then(report)
        unread = self._unread()
        for topic, partitions in self._ends.items():
            for text in partitions:
                place = (topic, int(text))
                records, latest, marked = read.get(place, _Read())
                self._see(topic, text, latest)
                self.time.observe(*place, latest, records, marked, unread=place in unread)
        self._pass_time(epoch=True)

    def _see(self, topic: str, partition: str, latest: int | None) -> None:
        if latest is not None:
            place = f"{topic}/{partition}"
            self._seen[place] = max(latest, self._seen.get(place, latest))

    def tick(self) -> None:
        """A look between two epochs."""
        wakes_at = self.time.wakes_at
        if wakes_at is not None and self.now < wakes_at:
            return
        unread = self._unread()
        for view in self.time.partitions():
            place = (view.topic, view.partition)
            if view.unread or place in unread:
                self.time.observe(*place, None, 0, unread=place in unread)
        self._pass_time()

    def told(self) -> dict[str, Any]:
        """For the row of an epoch that is about to be committed: everything about time."""
        self.changed, self._told_ms = False, self.now
        told = self.time.snapshot()
        told["event_time_max"] = self._seen
        held = [str(partition) for partition in self.time.held_by()]
        if held:
            told["held_by"] = held
        return told

    def partitions(self) -> list[PartitionTime]:
        return self.time.partitions()

    def _pass_time(self, *, epoch: bool = False) -> None:
        others = self._group.others(self.now) if self._group else ()
        before = self._outcome
        self.time.pass_time(self.now, others)
        if epoch:  # it is there to be told at once, however short ago the last emission was
            self.time.emit()
        self.changed = self.changed or before != self._outcome
        self.paused = self.time.paused
        if self._group:
            self._group.report(self.time.reported(), self.now)

    @property
    def _outcome(self) -> tuple[object, ...]:
        """What others are told: where it changes without data, an epoch says so."""
        return self.time.watermark, self.time.status, self.time.paused

    def _unread(self) -> set[Place]:
        """Partitions whose records at the broker were not all read; asked only where it matters."""
        if self._spec.idle_after_ms is None and self._spec.align is None:
            return set()
        return {
            (topic, int(text))
            for topic, partitions in self._log_ends().items()
            for text, end in partitions.items()
            if end > self._ends.get(topic, {}).get(text, 0)
        }
