"""The TRUNCATEs of a job with `on_truncate: apply`: which rows they remove.

    partition 0    set a ── TRUNCATE at e ── set b      the order decides: a is gone, b stays
    partition 1    set c ─────── set d ─────────        the time decides: gone if before e

canal sends a TRUNCATE to one partition, and other partitions have no order against it. A row that
another partition set in the very unit of time of the TRUNCATE stays, because a table is mostly
emptied to be filled again; it is counted as ambiguous, and so is a row without a time. The newest
TRUNCATE of each partition is remembered: rows from before it may still come.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec


class Truncation(msgspec.Struct, frozen=True, gc=False):
    """A TRUNCATE of the table that a job reads."""

    partition: int  # see `number_partition`
    time: int  # of the source
    position: int | None = None  # of the row behind it, if it is in the current epoch


class Fate(Enum):
    """What the TRUNCATEs do to a row."""

    STAYS = 0
    AMBIGUOUS = 1  # stays, but was perhaps set before
    GONE = 2


class Truncations(msgspec.Struct, frozen=True):
    """The TRUNCATEs that a job knows; at most one of earlier epochs for each partition."""

    known: tuple[Truncation, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.known)

    @property
    def new(self) -> Truncations:
        """Those of the current epoch: only they can remove a row of earlier epochs."""
        return Truncations(tuple(each for each in self.known if each.position is not None))

    def fate(self, time: int | None, partition: int | None, position: int = -1) -> Fate:
        """Return what becomes of a row that was set then and there; -1: in an earlier epoch."""
        fates = (_fate(each, time, partition, position) for each in self.known)
        return max(fates, key=_severity, default=Fate.STAYS)

    def add(self, found: Iterable[Truncation]) -> Truncations:
        """Return these and those of the current epoch."""
        return Truncations((*self.known, *found))

    def settle(self) -> Truncations:
        """Return what later epochs need: the newest of each partition, without a position."""
        newest: dict[int, int] = {}
        for each in self.known:
            newest[each.partition] = max(each.time, newest.get(each.partition, each.time))
        return Truncations(tuple(Truncation(*each) for each in sorted(newest.items())))

    def to_json(self) -> list[list[int]]:
        """Return the settled TRUNCATEs for an epoch row."""
        return [[each.partition, each.time] for each in self.settle().known]

    @classmethod
    def of_json(cls, stored: Iterable[Any]) -> Truncations:
        """Return the TRUNCATEs of an epoch row."""
        return cls(tuple(Truncation(*each) for each in stored))


def _fate(each: Truncation, time: int | None, partition: int | None, position: int) -> Fate:
    if partition == each.partition:
        removed = each.position is not None and position < each.position
        return Fate.GONE if removed else Fate.STAYS
    if time is None or time == each.time:
        return Fate.AMBIGUOUS
    return Fate.GONE if time < each.time else Fate.STAYS


def _severity(fate: Fate) -> int:
    return fate.value
