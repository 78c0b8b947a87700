"""Ranges: which offsets of which partition an epoch reads, one range a task."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.epoch import Offsets


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets [start, end) of one partition; end is what Spark planned, not the last record."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} [{self.start}, {self.end})"


def ranges_between(starts: Offsets, ends: Offsets) -> tuple[OffsetRange, ...]:
    """The ranges from one set of offsets to another, in the order that gives rows positions."""
    ranges = []
    for topic, partitions in ends.items():
        for partition, end in partitions.items():
            start = starts.get(topic, {}).get(partition, 0)
            if end < start:
                raise ValueError(f"{topic}/{partition}: offset {end} is before {start}")
            if end > start:
                ranges.append(OffsetRange(topic, int(partition), start, end))
    return tuple(sorted(ranges))


def moved(starts: Offsets, ends: Offsets) -> Offsets:
    """The offsets after an epoch: those of partitions it did not read stay."""
    return {topic: {**starts.get(topic, {}), **ends.get(topic, {})} for topic in {**starts, **ends}}
