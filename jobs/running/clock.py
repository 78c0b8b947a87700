"""Clock: track the time of a running job, in its epochs and between them.

    ranges of an epoch ──► observe ──► JobTime (pure) ──► the epoch row's `watermarks`
    ticks in between   ──► tick ─────►    │
                                          ├──► due: only time has changed something, so the
                                          │        driver commits an epoch without data
                                          └──► paused: partitions that wait for slower ones

Results come first and the watermark after them: the watermark of an epoch row holds once the rows
of the epoch are emitted. Only this module reads the machine's clock; the core gets `now` passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from jobs.core.time.followed import FollowedProgress, FollowedTopic
from jobs.core.time.job_time import JobTime
from jobs.core.time.rows_in_order import PartitionStart
from jobs.core.time.topic_time import PartitionTime
from jobs.core.time.watermark_generators import PartitionGenerator, latest_of, make_generator
from jobs.edge.kafka.offset_ranges import OffsetRange, advance_offsets
from jobs.edge.process.alignment_group import AlignmentGroup
from jobs.edge.tasks.range_report import RangeReport
from schemas.spec.job import JobSpec
from schemas.spec.watermark import Watermark
from schemas.table.epoch import EpochRow, Offsets, PartitionSnapshot, TimeSnapshot, TopicPartition
from schemas.types.json_types import JsonObject
from schemas.types.moments import now_ms


class _Read(NamedTuple):
    """The records that an epoch has read of one partition, and their greatest time.

    `generator` is the state of a generator that saw the rows in order.
    """

    records: int = 0
    latest: int | None = None
    generator: PartitionSnapshot | None = None

    def add(self, report: RangeReport) -> _Read:
        """Return the sum of this and the next range of the same partition."""
        return _Read(
            self.records + report.read,
            latest_of(self.latest, report.event_time_max),
            report.generator or self.generator,
        )


class JobClock:
    """The clock of one running job. Hold the pipeline's epoch lock to use it."""

    def __init__(
        self,
        spec: JobSpec,
        partitions: Mapping[str, int],  # how many each topic has
        newest: EpochRow,
        *,
        read_log_ends: Callable[[], Offsets],
        groups: Mapping[str, AlignmentGroup] = {},
        make: Callable[[Watermark], PartitionGenerator] = make_generator,
        read_followed: Callable[[str], FollowedProgress | None] = lambda _: None,
    ) -> None:
        """`read_followed` returns new progress of the job that writes a topic."""
        self._strategies = {topic: spec.strategies[topic] for topic in partitions}
        self._latency_ms = spec.minibatch.latency_ms
        self.read_log_ends = read_log_ends
        self._groups = groups
        self._read_followed = read_followed
        self._followed = {
            topic: FollowedTopic() for topic, each in self._strategies.items() if each.follows
        }
        self._anchor = now_ms(), time.monotonic()  # one moment on both clocks
        self.time = JobTime(self._strategies, self.now, make=make)
        if "topics" in newest.watermarks:
            self.time.restore(msgspec.convert(newest.watermarks, TimeSnapshot), self.now)
        self._seen: dict[str, int] = dict(newest.time.event_time_max)
        self._ends = newest.offsets
        self.changed = False  # since the last snapshot
        self._snapshot_ms = self.now
        # The main loop reads this while an epoch changes time in another thread, hence a copy.
        self.paused: frozenset[TopicPartition] = self.time.paused
        for topic, count in partitions.items():
            for partition in range(count):
                self.time.add(topic, partition)

    @property
    def now(self) -> int:
        """The present time in epoch milliseconds; it never goes back while the process runs.

        The monotonic clock goes on if the machine's clock is set back. It stands while the machine
        sleeps, and then the machine's clock is right.
        """
        (began_ms, began), wall = self._anchor, now_ms()
        passed = began_ms + int((time.monotonic() - began) * 1_000)
        if wall > passed:
            self._anchor = wall, time.monotonic()
        return max(wall, passed)

    @property
    def horizons(self) -> dict[str, int]:
        """The latest time that a row of each topic may have; a later row goes to quarantine."""
        now = self.now
        return {topic: now + each.future_skew_ms for topic, each in self._strategies.items()}

    @property
    def due(self) -> bool:
        """Whether an epoch without data must commit a change of time."""
        return self.changed and self.now - self._snapshot_ms >= self._latency_ms

    def observe(self, reports: Sequence[RangeReport], ends: Offsets) -> None:
        """Observe an epoch: what its ranges have read, and where it ends."""
        self._ends = advance_offsets(self._ends, ends)
        read: dict[TopicPartition, _Read] = {}
        for report in sorted(reports, key=lambda each: each.start):  # a long range has several
            if report.topic is not None:
                key = TopicPartition(report.topic, report.partition)
                read[key] = read.get(key, _Read()).add(report)
        unread = self._unread()
        # In a fixed order: a mark of one partition may pause it until the others have caught up.
        for topic, partitions in sorted(self._ends.items()):
            for text in sorted(partitions, key=int):
                key = TopicPartition(topic, int(text))
                found = read.get(key, _Read())
                self._observe_latest(topic, text, found.latest)
                self.time.observe(
                    *key, found.latest, found.records, found.generator, unread=key in unread
                )
        self._pass_time(epoch=True)

    def starts(self, ranges: Sequence[OffsetRange]) -> tuple[PartitionStart | None, ...]:
        """Return the time before an epoch of each range whose rows are checked in order."""
        return tuple(
            self.time.start_of(each.topic, each.partition)
            if self._strategies[each.topic].in_order
            else None
            for each in ranges
        )

    def _observe_latest(self, topic: str, partition: str, latest: int | None) -> None:
        if latest is not None:
            partition_name = f"{topic}/{partition}"
            self._seen[partition_name] = max(latest, self._seen.get(partition_name, latest))

    def tick(self) -> None:
        """Advance time between two epochs, if the next emission is due."""
        wakes_at = self.time.wakes_at
        if wakes_at is not None and self.now < wakes_at:
            return
        unread = self._unread()
        for view in self.time.list_partitions():
            key = TopicPartition(view.topic, view.partition)
            if view.unread or key in unread:
                self.time.observe(*key, None, 0, unread=key in unread)
        self._pass_time()

    def end(self) -> None:
        """End time, after the last row."""
        self.time.end()
        self.changed = True

    def snapshot(self) -> JsonObject:
        """Return the `watermarks` for the row of the epoch that is about to be committed."""
        self.changed, self._snapshot_ms = False, self.now
        snapshot: JsonObject = msgspec.to_builtins(self.time.snapshot())
        snapshot["event_time_max"] = dict(self._seen)
        holding = self._list_holding()
        if holding:
            snapshot["held_by"] = [str(each) for each in holding]
            snapshot["holding"] = [
                {"topic": each.topic, "partition": each.partition} for each in holding
            ]
        return snapshot

    def _list_holding(self) -> list[PartitionTime]:
        """Return the partitions that the watermark waits for; find out which of them are empty."""
        holding = self.time.list_holding()
        if all(each.silent_ms is not None for each in holding):
            return holding
        unread = self._find_unread()

        def is_empty(each: PartitionTime) -> bool:
            return each.silent_ms is None and (each.topic, each.partition) not in unread

        return [replace(each, empty=is_empty(each)) for each in holding]

    def _pass_time(self, *, epoch: bool = False) -> None:
        others = {name: group.others(self.now) for name, group in self._groups.items()}
        before = self._outcome
        self._follow()
        self.time.pass_time(self.now, others)
        if epoch:  # its row has the newest watermark, however short ago the last emission was
            self.time.emit()
        self.changed = self.changed or before != self._outcome
        self.paused = self.time.paused
        for name, group in self._groups.items():
            group.report(self.time.active_watermarks(name), self.now)

    def _follow(self) -> None:
        """Take the progress of the jobs that write topics, once its results are read here."""
        for topic, followed in self._followed.items():
            progress = self._read_followed(topic)
            if progress is not None:
                followed.observe(progress)
            released = followed.release(self._ends.get(topic, {}))
            if released is not None:
                self.time.follow(topic, released.watermark, idle=released.idle)

    @property
    def follows(self) -> bool:
        """Whether some topic has the watermark of the job that writes it."""
        return bool(self._followed)

    @property
    def _outcome(self) -> tuple[object, ...]:
        """The part of time that readers see; its changes need an epoch."""
        return self.time.watermark, self.time.status, self.time.paused

    def _unread(self) -> set[TopicPartition]:
        """Return the partitions with unread records, if idleness or alignment needs them."""
        needed = (each.idle_after_ms or each.align for each in self._strategies.values())
        return self._find_unread() if any(needed) else set()

    def _find_unread(self) -> set[TopicPartition]:
        """Return the partitions with unread records at the broker."""
        return {
            TopicPartition(topic, int(text))
            for topic, partitions in self.read_log_ends().items()
            for text, end in partitions.items()
            if end > self._ends.get(topic, {}).get(text, 0)
        }
