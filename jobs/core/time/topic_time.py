"""The time of one topic: its strategy, its partitions, and their combined watermark."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.core.time.alignment import Alignment
from jobs.core.time.combine import Multiplexer, Status
from jobs.core.time.idleness import IdlenessTimer
from jobs.core.time.watermark_generators import PartitionGenerator
from schemas.spec.watermark import Watermark
from schemas.table.epoch import END_OF_TIME


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """The time of one partition; durations are in milliseconds."""

    topic: str
    partition: int
    watermark: int | None  # None: no record has set one yet
    idle: bool
    paused: bool  # by alignment or by the operator
    unread: bool  # the broker has records that were not read yet
    silent_ms: int | None  # since its last record; None: no record yet
    idle_in_ms: int | None  # if no record comes; None: never
    holds: bool  # the job's watermark waits for this partition
    empty: bool = False  # the broker has no record that the job could read
    follows: bool = False  # the job that writes the topic, not its records

    def __str__(self) -> str:
        if self.follows:
            parts = ["follows the progress of the job that writes it"]
        elif self.silent_ms is None:
            parts = ["empty" if self.empty else "no record yet"]
        else:
            parts = [f"silent for {_seconds(self.silent_ms)}"]
        if self.idle:
            parts.append("idle")
        elif self.paused:
            parts.append("paused")
        elif self.unread:
            parts.append("with unread records")
        elif self.follows:
            pass
        elif self.idle_in_ms is None:
            parts.append("never idle (there is no idle_after)")
        else:
            parts.append(f"idle in {_seconds(self.idle_in_ms)}")
        return f"{self.topic} partition {self.partition}, {', '.join(parts)}"


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:.0f} s" if ms >= 10_000 else f"{ms / 1_000:.1f} s"


class Partition:
    """The time state of one partition."""

    __slots__ = ("fresh", "generator", "last_record_at", "stopped", "timer", "unread")

    def __init__(self, generator: PartitionGenerator, timer: IdlenessTimer | None) -> None:
        self.generator = generator
        self.timer = timer
        self.last_record_at: int | None = None  # processing time of its last record
        self.fresh = False  # had records since the last pass_time
        self.unread = False
        self.stopped = False  # paused by the operator, not by alignment


class Source:
    """One topic: its strategy, its partitions, and their combined watermark."""

    __slots__ = ("alignment", "combined", "emitted_at", "partitions", "strategy")

    def __init__(self, strategy: Watermark, now: int) -> None:
        self.strategy = strategy
        self.combined: Multiplexer[int] = Multiplexer()
        self.partitions: dict[int, Partition] = {}
        self.emitted_at: int | None = None
        align = strategy.align
        self.alignment: Alignment[int] | None = (
            Alignment(align.max_drift_ms, align.every_ms, now) if align else None
        )

    @property
    def group(self) -> str | None:
        """The alignment group of the topic."""
        align = self.strategy.align
        return None if align is None else align.group

    @property
    def active_watermark(self) -> int | None:
        """The watermark that the alignment group compares; None if the topic is idle or ended."""
        last, active = self.combined.last, self.combined.status is Status.ACTIVE
        return last if active and last is not None and last < END_OF_TIME else None

    @property
    def aligned_watermarks(self) -> dict[int, int]:
        """The watermarks of the partitions that take part in alignment."""
        if self.combined.last is None:
            return {}
        return {
            number: member.watermark
            for number, member in self.combined.members.items()
            if member.watermark is not None and not member.idle and member.watermark < END_OF_TIME
        }

    def begin_emission(self, now: int) -> bool:
        """Return whether a periodic emission is due, and count it as done."""
        every, before = self.strategy.period_ms, self.emitted_at
        if before is not None and now - before < every:
            return False
        self.emitted_at = now - (0 if before is None else (now - before) % every)
        return True
