"""The time of a job: combine the watermarks of its partitions into a watermark and a status.

    partition: generator, idleness timer ─┐
    partition: generator, idleness timer ─┼─► Multiplexer per topic ──► StatusWatermarkValve
    partition: ...                        ┘     │                          └─► watermark, status
                                                └─► Alignment: paused partitions

Each topic has a strategy of its own: times, generator, idleness, alignment, how often it emits.

For each epoch the driver reports what each range has read (`observe`) and then lets time pass
(`pass_time`). Both return the signals of the epoch; `paused` has the partitions not to read next.
The caller passes `now`, in epoch milliseconds. The epoch row stores `snapshot`, and a restarted
driver continues from it: time while no driver runs makes no partition idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from jobs.core.time.combine import Signal, Status, StatusWatermarkValve
from jobs.core.time.idleness import IdlenessTimer
from jobs.core.time.rows_in_order import AFTER_ALL, BEFORE_ALL, PartitionStart
from jobs.core.time.topic_time import Partition, PartitionTime, Source
from jobs.core.time.watermark_generators import (
    Followed,
    PartitionGenerator,
    latest_of,
    make_generator,
)
from schemas.spec.watermark import Watermark
from schemas.table.epoch import (
    END_OF_TIME,
    PartitionSnapshot,
    TimeSnapshot,
    TopicPartition,
    TopicSnapshot,
)

NO_OTHERS: Mapping[str, Iterable[int]] = {}


class JobTime:
    """The time of a whole job. Its methods return signals in the order to emit them in."""

    def __init__(
        self,
        strategies: Mapping[str, Watermark],  # of each topic
        now: int = 0,
        *,
        make: Callable[[Watermark], PartitionGenerator] = make_generator,
    ) -> None:
        """`make` makes the generator of a partition; the default makes those of the product."""
        self.now = now
        self._make = make
        self._sources = {topic: Source(each, now) for topic, each in strategies.items()}
        self._valve: StatusWatermarkValve[str] = StatusWatermarkValve(strategies)

    # --- the present state ------------------------------------------------------------------------

    @property
    def watermark(self) -> int | None:
        return self._valve.last

    @property
    def status(self) -> Status:
        return self._valve.status

    @property
    def paused_by_alignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ahead of their alignment group."""
        return frozenset(
            TopicPartition(topic, number)
            for topic, source in self._sources.items()
            if source.alignment
            for number in source.alignment.paused
        )

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that must not be read now: paused by alignment or by the operator."""
        stopped = (key for key, partition in self._all_partitions() if partition.stopped)
        return self.paused_by_alignment.union(stopped)

    @property
    def wakes_at(self) -> int | None:
        """The next time at which `pass_time` has work; None: at its first call."""
        times: list[int] = []
        for source in self._sources.values():
            if source.emitted_at is None:
                return None
            times.append(source.emitted_at + source.strategy.period_ms)
            if source.alignment:
                times.append(source.alignment.next_update_at)
        return min(times, default=None)

    def active_watermarks(self, group: str | None) -> list[int]:
        """Return the watermarks of the active topics of an alignment group."""
        found = (each.active_watermark for each in self._sources.values() if each.group == group)
        return [watermark for watermark in found if watermark is not None]

    # --- events -----------------------------------------------------------------------------------

    def add(self, topic: str, partition: int) -> list[Signal]:
        """Add a partition; the job's watermark waits for the partition's first watermark."""
        source = self._sources[topic]
        if partition in source.partitions:
            return []
        source.partitions[partition] = self._make_partition(source)
        source.combined.register(partition)
        return self._valve.apply(topic, source.combined.combine())

    def _make_partition(self, source: Source) -> Partition:
        after = source.strategy.idle_after_ms
        return Partition(self._make(source.strategy), IdlenessTimer(after) if after else None)

    def remove(self, topic: str, partition: int) -> None:
        """Remove a partition; the watermark can rise without it at the next emission."""
        source = self._sources[topic]
        del source.partitions[partition]
        source.combined.unregister(partition)
        if source.alignment:
            source.alignment.remove(partition)

    def observe(
        self,
        topic: str,
        partition: int,
        latest: int | None,
        records: int,
        state: PartitionSnapshot | None = None,
        *,
        unread: bool = False,
    ) -> list[Signal]:
        """Observe a range that was read, and return the signals that cannot wait.

        `latest` is the greatest time in the range, `state` its generator's state after it if the
        generator saw the rows one by one, `unread` whether the broker has more records. Signals
        that cannot wait are ACTIVE and punctuated watermarks.
        """

        def advance(generator: PartitionGenerator) -> int | None:
            if state is None:
                return generator.observe(latest, None, self.now)
            before = generator.last
            generator.restore(state)
            return None if generator.last == before else generator.last

        return self._observe(topic, partition, records, advance, unread=unread)

    def observe_row(
        self,
        topic: str,
        partition: int,
        time: int | None,
        row: Mapping[str, Any],
        mark: int | None,
        *,
        marked: bool,
    ) -> list[Signal]:
        """Observe one row at once; `mark` is the time that it carries if it is a mark."""

        def advance(generator: PartitionGenerator) -> int | None:
            at_once = generator.on_event(time, row, self.now)
            if marked:
                at_once = latest_of(at_once, generator.on_mark(mark, row, self.now))
            if self._sources[topic].strategy.within_epoch:
                at_once = latest_of(at_once, generator.emit(self.now))
            return at_once

        return self._observe(topic, partition, 1, advance)

    def follow(self, topic: str, watermark: int | None, *, idle: bool) -> list[Signal]:
        """Observe the watermark and the status of the job that writes a topic.

        Call it when every record that this watermark covers has been observed.
        """
        source = self._sources[topic]
        for number, partition in source.partitions.items():
            generator = partition.generator
            assert isinstance(generator, Followed)
            source.combined.mark_active(number)
            raised = None if watermark is None else generator.follow(watermark)
            if raised is not None:
                source.combined.advance(number, raised)
            if idle:
                source.combined.mark_idle(number)
        signals = self._valve.apply(topic, source.combined.combine())
        self._extend_alignment()
        return signals

    def end(self) -> list[Signal]:
        """End time: nothing follows in any partition, so every watermark is the last one."""
        signals: list[Signal] = []
        for topic, source in self._sources.items():
            for number, partition in source.partitions.items():
                source.combined.advance(number, partition.generator.end())
            signals += self._valve.apply(topic, source.combined.combine())
        return signals

    def start_of(self, topic: str, partition: int) -> PartitionStart:
        """Return the time of a partition before an epoch, for a task that sees its rows."""
        lowest = AFTER_ALL
        for name, source in self._sources.items():
            valve = self._valve.members[name]
            if name != topic and (valve.idle or not valve.counts):
                continue
            for number, member in source.combined.members.items():
                if not member.idle and (name, number) != (topic, partition):
                    at = BEFORE_ALL if member.watermark is None else member.watermark
                    lowest = min(lowest, at)
        generator = self._sources[topic].partitions[partition].generator
        return PartitionStart(generator.snapshot(), lowest, self.watermark)

    def _observe(
        self,
        topic: str,
        partition: int,
        records: int,
        advance: Callable[[PartitionGenerator], int | None],
        *,
        unread: bool = False,
    ) -> list[Signal]:
        signals = self.add(topic, partition)
        source = self._sources[topic]
        found = source.partitions[partition]
        found.unread = unread
        if records == 0 and not unread:
            return signals
        if source.strategy.follows is None and source.combined.members[partition].idle:
            source.combined.mark_active(partition)
            signals += self._valve.apply(topic, source.combined.combine())
        if records == 0:
            return signals
        found.last_record_at, found.fresh = self.now, True
        if found.timer:
            found.timer.record_activity()
        at_once = advance(found.generator)
        if at_once is not None:
            signals += self._valve.apply(topic, source.combined.advance_at_once(partition, at_once))
            self._extend_alignment()
        return signals

    def pause(self, topic: str, partition: int) -> None:
        self._sources[topic].partitions[partition].stopped = True
        self._pause_timers()

    def resume(self, topic: str, partition: int) -> None:
        self._sources[topic].partitions[partition].stopped = False
        self._pause_timers()

    def pass_time(self, now: int, others: Mapping[str, Iterable[int]] = NO_OTHERS) -> list[Signal]:
        """Advance to `now`, at the end of an epoch or in between; return the periodic signals.

        `others` are the watermarks that other jobs report to the alignment groups.
        """
        self.now = max(self.now, now)
        for _, partition in self._all_partitions():
            if partition.fresh:
                partition.last_record_at, partition.fresh = self.now, False
        due = [topic for topic, each in self._sources.items() if each.begin_emission(self.now)]
        signals = self._emit(due) if due else []
        self.advance(self.now, others)
        return signals

    def advance(self, now: int, others: Mapping[str, Iterable[int]] = NO_OTHERS) -> None:
        """Advance the clock, and update the alignment maxima that are due."""
        self.now = max(self.now, now)
        updated = False
        for source in self._sources.values():
            alignment, group = source.alignment, source.group
            if alignment and group and alignment.next_update_at <= self.now:
                reported = [*self.active_watermarks(group), *others.get(group, ())]
                alignment.update_allowed(reported, self.now)
                alignment.reset_paused(source.aligned_watermarks)
                updated = True
        if updated:
            self._pause_timers()

    def emit(self) -> list[Signal]:
        """Emit the periodic watermarks: probe each partition for idleness, call its generator."""
        return self._emit(self._sources)

    def _emit(self, topics: Iterable[str]) -> list[Signal]:
        signals: list[Signal] = []
        paused = self.paused
        for topic in topics:
            source = self._sources[topic]
            if source.strategy.follows:
                continue
            for number, partition in source.partitions.items():
                was_idle = source.combined.members[number].idle
                may_be_idle = was_idle or TopicPartition(topic, number) not in paused
                if self._probe(partition) and may_be_idle:
                    source.combined.mark_idle(number)
                elif (watermark := partition.generator.emit(self.now)) is not None:
                    source.combined.advance(number, watermark)
            signals += self._valve.apply(topic, source.combined.combine())
        self._extend_alignment()
        return signals

    def _probe(self, partition: Partition) -> bool:
        """Return whether the partition has been silent; the caller ignores it while paused."""
        if partition.timer is None:
            return False
        if partition.unread:
            partition.timer.record_activity()
        return partition.timer.probe(self.now)

    def _extend_alignment(self) -> None:
        extended = False
        for source in self._sources.values():
            if source.alignment:
                group = (
                    at
                    for each in self._sources.values()
                    if each.group == source.group
                    for at in each.aligned_watermarks.values()
                )
                extended |= source.alignment.extend_paused(source.aligned_watermarks, group)
        if extended:
            self._pause_timers()

    def _pause_timers(self) -> None:
        paused = self.paused_by_alignment
        for key, partition in self._all_partitions():
            if partition.timer is None:
                continue
            if partition.stopped or key in paused:
                partition.timer.pause(self.now)
            else:
                partition.timer.resume(self.now)

    def _all_partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for topic, source in self._sources.items():
            for number, partition in source.partitions.items():
                yield TopicPartition(topic, number), partition

    # --- views for status pages -------------------------------------------------------------------

    def list_partitions(self) -> list[PartitionTime]:
        """Return the time of every partition, ordered by topic and number."""
        holding, paused = self._find_holding(), self.paused
        return [
            self._view(key, partition, key in paused, key in holding)
            for key, partition in sorted(self._all_partitions(), key=lambda each: each[0])
        ]

    def list_holding(self) -> list[PartitionTime]:
        """Return the partitions that the job's watermark waits for."""
        return [partition for partition in self.list_partitions() if partition.holds]

    def _view(
        self, key: TopicPartition, time: Partition, paused: bool, holds: bool
    ) -> PartitionTime:
        topic, number = key
        member = self._sources[topic].combined.members[number]
        to_idle = time.timer and not (member.idle or paused or time.unread)
        return PartitionTime(
            topic=topic,
            partition=number,
            watermark=member.watermark,
            idle=member.idle,
            paused=paused,
            unread=time.unread,
            silent_ms=None if time.last_record_at is None else self.now - time.last_record_at,
            idle_in_ms=time.timer.time_to_idle(self.now) if time.timer and to_idle else None,
            holds=holds,
            follows=self._sources[topic].strategy.follows is not None,
        )

    def _find_holding(self) -> set[TopicPartition]:
        """Return the slowest partitions of the slowest topics, among the members that count."""
        if self.watermark == END_OF_TIME:
            return set()
        return {
            TopicPartition(topic, number)
            for topic in self._valve.find_slowest()
            for number in self._sources[topic].combined.find_slowest()
        }

    # --- snapshot and restore ---------------------------------------------------------------------

    def snapshot(self) -> TimeSnapshot:
        """Return the whole state."""
        return TimeSnapshot(
            now=self.now,
            combined=self.watermark,
            status=str(self.status),
            topics={
                topic: self._source_snapshot(topic, source)
                for topic, source in self._sources.items()
            },
        )

    def _source_snapshot(self, topic: str, source: Source) -> TopicSnapshot:
        return TopicSnapshot(
            watermark=source.combined.last,
            idle=source.combined.status is Status.IDLE,
            emitted=source.emitted_at,
            alignment=source.alignment.snapshot(self.now) if source.alignment else None,
            behind=not self._valve.members[topic].counts,
            partitions={
                str(number): self._partition_snapshot(TopicPartition(topic, number), partition)
                for number, partition in source.partitions.items()
            },
        )

    def _partition_snapshot(self, key: TopicPartition, partition: Partition) -> PartitionSnapshot:
        state = partition.generator.snapshot()
        if partition.timer:
            state = partition.timer.snapshot(self.now, state)
        heard = partition.last_record_at
        return replace(
            state,
            heard_ms=None if heard is None else self.now - heard,
            idle=self._sources[key.topic].combined.members[key.partition].idle,
            ahead=key in self.paused_by_alignment,
            stopped=partition.stopped,
            unread=partition.unread,
            fresh=partition.fresh,
        )

    def restore(self, state: TimeSnapshot, now: int | None = None) -> None:
        """Continue from a snapshot at `now`; the time since the snapshot makes no partition idle.

        Topics that the job does not read are ignored.
        """
        self.now = state.now if now is None else max(now, state.now)
        self._valve.restore(state.combined, Status(state.status))
        for topic in self._sources.keys() & state.topics.keys():
            self._restore_source(topic, state.topics[topic], self.now - state.now)
        self._pause_timers()

    def _restore_source(self, topic: str, state: TopicSnapshot, passed: int) -> None:
        source, member = self._sources[topic], self._valve.members[topic]
        source.combined.restore(state.watermark, Status.IDLE if state.idle else Status.ACTIVE)
        source.emitted_at = None if state.emitted is None else state.emitted + passed
        member.watermark, member.idle = state.watermark, state.idle
        member.counts = not (state.idle or state.behind)
        for text, kept in state.partitions.items():
            self._restore_partition(source, int(text), kept)
        if source.alignment and state.alignment is not None:
            ahead = (int(text) for text, kept in state.partitions.items() if kept.ahead)
            source.alignment.restore(state.alignment, ahead, self.now)

    def _restore_partition(self, source: Source, number: int, state: PartitionSnapshot) -> None:
        partition = self._make_partition(source)
        partition.generator.restore(state)
        if partition.timer:
            partition.timer.restore(state, self.now)
        heard = state.heard_ms
        partition.last_record_at = None if heard is None else self.now - heard
        partition.stopped, partition.unread = state.stopped, state.unread
        partition.fresh = state.fresh
        source.partitions[number] = partition
        source.combined.register(number)
        member = source.combined.members[number]
        member.watermark, member.idle = partition.generator.last, state.idle
