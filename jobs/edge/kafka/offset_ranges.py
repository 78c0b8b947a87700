"""Plan which offsets of which partition an epoch reads, one range per task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from schemas.limits import RANGE_PIECE_RECORDS_MIN
from schemas.table.epoch import Offsets, TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets [start, end) of one partition; end is what Spark planned, not the last record."""

    topic: str
    partition: int
    start: int
    end: int
    source: str = ""  # who reads it, if the job has several sources

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} [{self.start}, {self.end})"


def ranges_between(starts: Offsets, ends: Offsets) -> tuple[OffsetRange, ...]:
    """Return the ranges between two sets of offsets; rows get their positions in this order."""
    ranges = []
    for topic, partitions in ends.items():
        for partition, end in partitions.items():
            start = starts.get(topic, {}).get(partition, 0)
            if end < start:
                raise ValueError(f"{topic}/{partition}: offset {end} is before {start}")
            if end > start:
                ranges.append(OffsetRange(topic, int(partition), start, end))
    return tuple(sorted(ranges))


def cut_ends(starts: Offsets, ends: Offsets, records: int) -> Offsets:
    """Return ends closer to the starts, so that an epoch reads about `records` records.

    Each partition gets its share, at least one record. If there are more partitions than records,
    only the first ones are read.
    """
    ranges = ranges_between(starts, ends)
    planned = count_planned_records(ranges)
    if planned <= records:
        return ends
    nearer: Offsets = {}
    for number, each in enumerate(ranges):
        share = max(1, (each.end - each.start) * records // planned) if number < records else 0
        nearer.setdefault(each.topic, {})[str(each.partition)] = min(each.end, each.start + share)
    return advance_offsets(ends, nearer)


def halve_ends(starts: Offsets, ends: Offsets) -> Offsets | None:
    """Return ends before these: half of the partitions, or half of the only one.

    None if there is only one record.
    """
    ranges = ranges_between(starts, ends)
    if count_planned_records(ranges) <= 1:
        return None
    half = ranges[: len(ranges) // 2]
    if not half:
        (only,) = ranges
        half = (replace(only, end=(only.start + only.end) // 2),)
    nearer: Offsets = {}
    for each in half:
        nearer.setdefault(each.topic, {})[str(each.partition)] = each.end
    return advance_offsets(starts, nearer)


def count_planned_records(ranges: Sequence[OffsetRange]) -> int:
    """Return the number of offsets in the ranges; the log may have fewer records."""
    return sum(each.end - each.start for each in ranges)


def split_ranges(ranges: tuple[OffsetRange, ...], tasks: int) -> tuple[OffsetRange, ...]:
    """Split long ranges, so that one core does not work on a long range alone.

    The order of the offsets stays, because it gives rows their positions.
    """
    most = max(RANGE_PIECE_RECORDS_MIN, -(-count_planned_records(ranges) // max(1, tasks)))
    return tuple(piece for each in ranges for piece in _split_range(each, most))


def _split_range(whole: OffsetRange, most: int) -> list[OffsetRange]:
    size = whole.end - whole.start
    if size <= most:
        return [whole]
    count = -(-size // most)
    cuts = [whole.start + size * number // count for number in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(cuts)]


def advance_offsets(starts: Offsets, ends: Offsets) -> Offsets:
    """Return the offsets after an epoch; partitions that it did not read keep their offsets."""
    return {topic: {**starts.get(topic, {}), **ends.get(topic, {})} for topic in {**starts, **ends}}
