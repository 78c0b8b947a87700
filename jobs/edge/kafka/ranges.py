"""Ranges: which offsets of which partition an epoch reads, one range a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from schemas.limits import RANGE_PIECE_RECORDS_MIN
from schemas.table.epoch import Offsets


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


def cut(starts: Offsets, ends: Offsets, records: int) -> Offsets:
    """Return ends closer to the starts, for about so many records: of each partition its share,
    and at least one; of more partitions than records, the first ones."""
    ranges = ranges_between(starts, ends)
    planned = planned_records(ranges)
    if planned <= records:
        return ends
    nearer: Offsets = {}
    for number, each in enumerate(ranges):
        share = max(1, (each.end - each.start) * records // planned) if number < records else 0
        nearer.setdefault(each.topic, {})[str(each.partition)] = min(each.end, each.start + share)
    return moved(ends, nearer)


def planned_records(ranges: Sequence[OffsetRange]) -> int:
    """At most so many: a log has gaps."""
    return sum(each.end - each.start for each in ranges)


def shared_out(ranges: tuple[OffsetRange, ...], tasks: int) -> tuple[OffsetRange, ...]:
    """The same offsets in pieces, so that one long range does not keep one core busy alone; their
    order, which gives rows their positions, stays."""
    most = max(RANGE_PIECE_RECORDS_MIN, -(-planned_records(ranges) // max(1, tasks)))
    return tuple(piece for each in ranges for piece in _pieces(each, most))


def _pieces(whole: OffsetRange, most: int) -> list[OffsetRange]:
    size = whole.end - whole.start
    count = -(-size // most)
    cuts = [whole.start + size * number // count for number in range(count + 1)]
    return [OffsetRange(whole.topic, whole.partition, start, end) for start, end in pairwise(cuts)]


def moved(starts: Offsets, ends: Offsets) -> Offsets:
    """The offsets after an epoch: those of partitions it did not read stay."""
    return {topic: {**starts.get(topic, {}), **ends.get(topic, {})} for topic in {**starts, **ends}}
