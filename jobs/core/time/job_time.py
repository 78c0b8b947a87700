"""The time of a job: what its partitions have shown, combined into one watermark and one status.

    partition: generator, idleness timer ──┐
    partition: generator, idleness timer ──┼─► Multiplexer a topic ──► Valve ──► watermark, status
    partition: ...                         ┘          │
                                                      └─► Alignment: who is paused

Per epoch the driver tells what each range has read (`observe`) and then lets time pass
(`pass_time`); out come the signals of the epoch, and who is to be read next. Now is always told,
in epoch milliseconds. `snapshot` is part of the epoch's row, and a restarted driver goes on from
it: while nobody ran, nobody was silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.core.time.alignment import Alignment
from jobs.core.time.combine import Multiplexer, Signal, Status, Valve
from jobs.core.time.idleness import IdlenessTimer
from jobs.core.time.time_view import PartitionTime
from jobs.core.time.watermark_generators import Generator, generator
from schemas.spec.job import Watermark

Place = tuple[str, int]  # topic and partition


class Partition:
    """What is remembered of one partition."""

    __slots__ = ("fresh", "generator", "heard_at", "stopped", "timer", "unread")

    def __init__(self, generator: Generator, timer: IdlenessTimer | None) -> None:
        self.generator = generator
        self.timer = timer
        self.heard_at: int | None = None
        self.fresh = False  # heard since time last passed
        self.unread = False
        self.stopped = False  # paused by somebody, not by alignment


class Source:
    """One topic: its partitions, and their combination."""

    __slots__ = ("combined", "partitions")

    def __init__(self) -> None:
        self.combined: Multiplexer[int] = Multiplexer()
        self.partitions: dict[int, Partition] = {}


class JobTime:
    """All of a job's time. Signals come in the order in which they are to be passed on."""

    def __init__(
        self,
        spec: Watermark,
        topics: Sequence[str],
        now: int = 0,
        *,
        make: Callable[[], Generator] | None = None,
    ) -> None:
        """`make` gives the generator of a partition where the spec names a class."""
        self.now = now
        self._spec = spec
        self._make = make or (lambda: generator(spec))
        self._sources = {topic: Source() for topic in topics}
        self._valve: Valve[str] = Valve(topics)
        self._emitted_at: int | None = None
        align = spec.align
        self._alignment: Alignment[Place] | None = (
            Alignment(align.max_drift_ms, align.every_ms, now) if align else None
        )

    # --- where time stands ------------------------------------------------------------------------

    @property
    def watermark(self) -> int | None:
        return self._valve.last

    @property
    def status(self) -> Status:
        return self._valve.status

    @property
    def aligned_out(self) -> frozenset[Place]:
        """Who is ahead of the group, and waits for it."""
        return self._alignment.paused if self._alignment else frozenset()

    @property
    def paused(self) -> frozenset[Place]:
        """Whoever is not to be read now."""
        stopped = (place for place, partition in self._places() if partition.stopped)
        return self.aligned_out.union(stopped)

    @property
    def wakes_at(self) -> int | None:
        """When `pass_time` has something to do again; None: whenever it is first called."""
        if self._emitted_at is None:
            return None
        emission = self._emitted_at + self._spec.emit_every_ms
        return min(emission, self._alignment.tells_at) if self._alignment else emission

    def reported(self) -> list[int]:
        """What this job's sources tell their alignment group: those that are active, and have a
        watermark."""
        combined = (source.combined for source in self._sources.values())
        return [
            each.last for each in combined if each.last is not None and each.status is Status.ACTIVE
        ]

    # --- what happens -----------------------------------------------------------------------------

    def add(self, topic: str, partition: int) -> list[Signal]:
        """A partition that is read from now on; the watermark waits for its first one."""
        source = self._sources[topic]
        if partition in source.partitions:
            return []
        after = self._spec.idle_after_ms
        timer = None if after is None else IdlenessTimer(after)
        source.partitions[partition] = Partition(self._make(), timer)
        source.combined.register(partition)
        return self._valve.take(topic, source.combined.combine())

    def remove(self, topic: str, partition: int) -> None:
        """A partition that is read no longer; the others go on with the next emission."""
        source = self._sources[topic]
        del source.partitions[partition]
        source.combined.unregister(partition)
        if self._alignment:
            self._alignment.forget((topic, partition))

    def observe(
        self,
        topic: str,
        partition: int,
        latest: int | None,
        records: int,
        marked: int | None = None,
        *,
        unread: bool = False,
    ) -> list[Signal]:
        """A range that was read: how many records, the greatest time in it, the greatest time up
        to its last mark (None: there is none), and whether the broker has more.

        Only what cannot wait comes out: that the job is active again, and punctuation.
        """
        signals = self.add(topic, partition)
        source = self._sources[topic]
        found = source.partitions[partition]
        found.unread = unread
        if records == 0 and not unread:
            return signals
        if source.combined.members[partition].idle:
            source.combined.active(partition)
            signals += self._valve.take(topic, source.combined.combine())
        if records == 0:
            return signals
        found.heard_at, found.fresh = self.now, True
        if found.timer:
            found.timer.activity()
        at_once = found.generator.observe(latest, marked, self.now)
        if at_once is not None:
            signals += self._valve.take(topic, source.combined.immediate(partition, at_once))
            self._align_between()
        return signals

    def pause(self, topic: str, partition: int) -> None:
        self._sources[topic].partitions[partition].stopped = True
        self._pause_timers()

    def resume(self, topic: str, partition: int) -> None:
        self._sources[topic].partitions[partition].stopped = False
        self._pause_timers()

    def pass_time(self, now: int, others: Iterable[int] = ()) -> list[Signal]:
        """The end of an epoch, or a look in between: what time and the observations bring.

        `others` are the watermarks that the other jobs of the alignment group report.
        """
        self.now = max(self.now, now)
        for _, partition in self._places():
            if partition.fresh:
                partition.heard_at, partition.fresh = self.now, False
        signals: list[Signal] = []
        every, before = self._spec.emit_every_ms, self._emitted_at
        if before is None or self.now - before >= every:
            self._emitted_at = self.now - (0 if before is None else (self.now - before) % every)
            signals = self.emit()
        self.advance(self.now, others)
        return signals

    def advance(self, now: int, others: Iterable[int] = ()) -> None:
        """Let the clock go on, and a new alignment maximum be told when it is due."""
        self.now = max(self.now, now)
        if self._alignment and self._alignment.tells_at <= self.now:
            self._alignment.tell([*self.reported(), *others], self.now)
            self._alignment.resume(self._running())
            self._pause_timers()

    def emit(self) -> list[Signal]:
        """The periodic emission: every partition's silence is probed, every generator asked."""
        signals: list[Signal] = []
        paused = self.paused
        for topic, source in self._sources.items():
            for number, partition in source.partitions.items():
                was_idle = source.combined.members[number].idle
                may_turn = was_idle or (topic, number) not in paused
                if self._silent(partition) and may_turn:
                    source.combined.idle(number)
                elif (watermark := partition.generator.emit(self.now)) is not None:
                    source.combined.advance(number, watermark)
            signals += self._valve.take(topic, source.combined.combine())
        self._align_between()
        return signals

    def _silent(self, partition: Partition) -> bool:
        """What a probe says; a paused partition does not turn idle, whatever it says."""
        if partition.timer is None:
            return False
        if partition.unread:
            partition.timer.activity()
        return partition.timer.probe(self.now)

    def _align_between(self) -> None:
        if self._alignment and self._alignment.pause(self._running()):
            self._pause_timers()

    def _running(self) -> dict[Place, int]:
        """Watermarks of the partitions that take part in alignment."""
        return {
            (topic, number): member.watermark
            for topic, source in self._sources.items()
            if source.combined.last is not None
            for number, member in source.combined.members.items()
            if member.watermark is not None and not member.idle
        }

    def _pause_timers(self) -> None:
        paused = self.aligned_out
        for place, partition in self._places():
            if partition.timer is None:
                continue
            if partition.stopped or place in paused:
                partition.timer.pause(self.now)
            else:
                partition.timer.resume(self.now)

    def _places(self) -> Iterator[tuple[Place, Partition]]:
        for topic, source in self._sources.items():
            for number, partition in source.partitions.items():
                yield (topic, number), partition

    # --- what a person is told --------------------------------------------------------------------

    def partitions(self) -> list[PartitionTime]:
        """Every partition, in order."""
        held, paused = self._holding(), self.paused
        return [
            self._view(place, partition, place in paused, place in held)
            for place, partition in sorted(self._places(), key=lambda each: each[0])
        ]

    def held_by(self) -> list[PartitionTime]:
        """The partitions that the job's watermark waits for."""
        return [partition for partition in self.partitions() if partition.holds]

    def _view(self, place: Place, found: Partition, paused: bool, holds: bool) -> PartitionTime:
        topic, number = place
        member = self._sources[topic].combined.members[number]
        to_idle = found.timer and not (member.idle or paused or found.unread)
        return PartitionTime(
            topic=topic,
            partition=number,
            watermark=member.watermark,
            idle=member.idle,
            paused=paused,
            unread=found.unread,
            silent_ms=None if found.heard_at is None else self.now - found.heard_at,
            idle_in_ms=found.timer.idle_in(self.now) if found.timer and to_idle else None,
            holds=holds,
        )

    def _holding(self) -> set[Place]:
        """The lowest partitions of the lowest topics, among those that count."""
        return {
            (topic, number)
            for topic in self._valve.slowest()
            for number in self._sources[topic].combined.slowest()
        }

    # --- what survives a restart ------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All of it as JSON; what is as at the start is left out."""
        state: dict[str, Any] = {"now": self.now}
        if self._emitted_at is not None:
            state["emitted"] = self._emitted_at
        if self.watermark is not None:
            state["combined"] = self.watermark
        state["status"] = str(self.status)
        if self._alignment:
            state["alignment"] = self._alignment.snapshot(self.now)
        state["topics"] = {
            topic: self._source_snapshot(topic, source) for topic, source in self._sources.items()
        }
        return state

    def _source_snapshot(self, topic: str, source: Source) -> dict[str, Any]:
        state = source.combined.snapshot()
        if not self._valve.members[topic].counts:
            state["behind"] = True
        state["partitions"] = {
            str(number): self._partition_snapshot((topic, number), partition)
            for number, partition in source.partitions.items()
        }
        return state

    def _partition_snapshot(self, place: Place, partition: Partition) -> dict[str, Any]:
        state = partition.generator.snapshot()
        if partition.timer:
            state |= partition.timer.snapshot(self.now)
        if partition.heard_at is not None:
            state["heard_ms"] = self.now - partition.heard_at
        marks = {
            "idle": self._sources[place[0]].combined.members[place[1]].idle,
            "ahead": place in self.aligned_out,
            "stopped": partition.stopped,
            "unread": partition.unread,
            "fresh": partition.fresh,
        }
        return state | {name: True for name, holds in marks.items() if holds}

    def restore(self, state: Mapping[str, Any], now: int | None = None) -> None:
        """Go on from a snapshot, at `now`; time since the snapshot counts for no silence. Topics
        that the job does not read are left alone."""
        self.now = state["now"] if now is None else max(now, state["now"])
        emitted = state.get("emitted")
        self._emitted_at = None if emitted is None else emitted + self.now - state["now"]
        self._valve.last = state.get("combined")
        self._valve.status = Status(state["status"])
        ahead: list[Place] = []
        for topic in self._sources.keys() & state["topics"].keys():
            ahead += self._restore_source(topic, state["topics"][topic])
        if self._alignment and "alignment" in state:
            self._alignment.restore(state["alignment"], ahead, self.now)
        self._pause_timers()

    def _restore_source(self, topic: str, state: Mapping[str, Any]) -> list[Place]:
        source, member = self._sources[topic], self._valve.members[topic]
        source.combined.restore(state)
        member.watermark = source.combined.last
        member.idle = source.combined.status is Status.IDLE
        member.counts = not (member.idle or state.get("behind"))
        for text, kept in state["partitions"].items():
            self._restore_partition(source, int(text), kept)
        numbers = (int(text) for text, kept in state["partitions"].items() if kept.get("ahead"))
        return [(topic, number) for number in numbers]

    def _restore_partition(self, source: Source, number: int, state: Mapping[str, Any]) -> None:
        after = self._spec.idle_after_ms
        timer = None if after is None else IdlenessTimer(after)
        partition = Partition(self._make(), timer)
        partition.generator.restore(state)
        if timer:
            timer.restore(state, self.now)
        heard = state.get("heard_ms")
        partition.heard_at = None if heard is None else self.now - heard
        partition.stopped, partition.unread = "stopped" in state, "unread" in state
        partition.fresh = "fresh" in state
        source.partitions[number] = partition
        source.combined.register(number)
        member = source.combined.members[number]
        member.watermark, member.idle = partition.generator.last, "idle" in state
