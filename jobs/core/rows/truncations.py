"""The TRUNCATEs of a job with `on_truncate: apply`: which rows they remove.

    partition 0    set a ── TRUNCATE ── set b      the order decides: a is gone, b stays
    partition 1    set c ─────── set d ─────       the time decides: gone if before the TRUNCATE

canal sends a TRUNCATE to one partition, and other partitions have no order against it. Its own time
is that of its beginning; it took effect between this time and the time at which it was read. A row
that another partition set in between stays, because a table is mostly emptied to be filled again;
it is counted as ambiguous, and so is a row without a time. The newest TRUNCATE of each partition is
remembered for a while: rows from before it may still come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Self

import msgspec

from schemas.limits import LEFT_KEY_KEPT_MS


class Truncation(msgspec.Struct, frozen=True, gc=False):
    """A TRUNCATE of the table that a job reads."""

    partition: int  # see `number_partition`
    time: int  # of the source: when it began
    until: int  # when it had taken effect for certain
    position: int | None = None  # of the row behind it, if it is in the current epoch

    @classmethod
    def of(cls, partition: int, es: int, ts: int | None, position: int) -> Self:
        """Return a TRUNCATE of the current epoch; `ts` is when it was read from the source."""
        return cls(partition, es, max(es, es if ts is None else ts), position)


class Fate(IntEnum):
    """What the TRUNCATEs do to a row."""

    STAYS = 0
    AMBIGUOUS = 1  # stays, but was perhaps set before
    GONE = 2


@dataclass(frozen=True)
class Truncations:
    """The TRUNCATEs that a job knows; at most one of earlier epochs for each partition."""

    known: tuple[Truncation, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.known)

    @cached_property
    def new(self) -> Truncations:
        """Those of the current epoch: only they can remove a row of earlier epochs."""
        return Truncations(tuple(each for each in self.known if each.position is not None))

    @cached_property
    def until(self) -> int:
        """The time after which a row of a later epoch is not concerned."""
        return max(each.until for each in self.known)

    def fate(self, time: int | None, partition: int | None, position: int = -1) -> Fate:
        """Return what becomes of a row that was set then and there; -1: in an earlier epoch."""
        fates = (_fate(each, time, partition, position) for each in self.known)
        return max(fates, default=Fate.STAYS)

    def add(self, found: Iterable[Truncation]) -> Truncations:
        """Return these and those of the current epoch.

        If the source repeats one, it is read late; it took effect when it was read first.
        """
        until = {(each.partition, each.time): each.until for each in self.known}
        added = list(self.known)
        for each in found:
            first = until.setdefault((each.partition, each.time), each.until)
            added.append(msgspec.structs.replace(each, until=min(first, each.until)))
        return Truncations(tuple(added))

    def forget_old(self, newest_ms: int | None) -> Truncations:
        """Return what later epochs need: the newest of each partition, without a position.

        `newest_ms` is the newest time of a row; long before it, a TRUNCATE is forgotten.
        """
        newest: dict[int, Truncation] = {}
        for each in self.known:
            if newest_ms is not None and each.until < newest_ms - LEFT_KEY_KEPT_MS:
                continue
            if each.partition not in newest or each.time >= newest[each.partition].time:
                newest[each.partition] = Truncation(each.partition, each.time, each.until)
        return Truncations(tuple(newest[partition] for partition in sorted(newest)))

    def to_json(self) -> list[list[int]]:
        """Return TRUNCATEs of earlier epochs for an epoch row."""
        return [[each.partition, each.time, each.until] for each in self.known]

    @classmethod
    def of_json(cls, stored: Iterable[Any]) -> Self:
        """Return the TRUNCATEs of an epoch row."""
        return cls(tuple(Truncation(*each) for each in stored))


def _fate(each: Truncation, time: int | None, partition: int | None, position: int) -> Fate:
    if partition == each.partition:
        removed = each.position is not None and position < each.position
        return Fate.GONE if removed else Fate.STAYS
    if time is None or each.time <= time <= each.until:
        return Fate.AMBIGUOUS
    return Fate.GONE if time < each.time else Fate.STAYS
