"""Alignment: pause the partitions that are ahead of their group until the others catch up.


    every source of the group    ──► reports its watermark ──► minimum + max_drift = allowed
    every partition of this job  ──► own watermark > allowed? ──► paused

The allowed maximum is valid for `every` milliseconds. Only a new maximum resumes a partition.
Between two maxima, a partition that exceeds the maximum is paused too. It is not paused if only
the maximum is old: in Flink a group whose slowest partitions have caught up waits for the next
maximum, here it continues. Idle sources and sources without a watermark neither limit others nor
are limited.

There is no deadlock: the slowest partition of the slowest source is never ahead of that source's
own watermark, so it is always read. (Flink never resumed a paused partition that became idle,
FLINK-40093. Here a paused partition never becomes idle, and every partition is checked.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from schemas.table.epoch import AlignmentSnapshot

Name = TypeVar("Name", bound=Hashable)


class Alignment(Generic[Name]):
    """Which partitions of one job are paused; the caller passes in the group's watermarks."""

    __slots__ = ("_drift", "_every", "_updated_at", "allowed", "paused")

    def __init__(self, max_drift: int, every: int, now: int) -> None:
        self._drift = max_drift
        self._every = every
        self._updated_at = now
        self.allowed: int | None = None  # None: no limit
        self.paused: frozenset[Name] = frozenset()

    @property
    def next_update_at(self) -> int:
        """The time at which the next maximum is due."""
        return self._updated_at + self._every

    def update_allowed(self, reported: Iterable[int], now: int) -> None:
        """Set a new maximum from the watermarks that the sources of the group report.

        One call is enough, however many updates were due.
        """
        self._updated_at = now - (now - self._updated_at) % self._every
        slowest = min(reported, default=None)
        self.allowed = None if slowest is None else slowest + self._drift

    def reset_paused(self, watermarks: Mapping[Name, int]) -> bool:
        """Pause exactly the partitions ahead of the maximum; return whether the set changed.

        `watermarks` has the partitions that may be paused: not idle, and with a watermark.
        """
        return self._set_paused(self._find_ahead(watermarks, self.allowed))

    def extend_paused(self, watermarks: Mapping[Name, int], group: Iterable[int] = ()) -> bool:
        """Pause further partitions between two maxima; return whether the set changed.

        Paused partitions stay paused. A partition joins them if it is ahead of the maximum and too
        far ahead of the slowest partition now; `group` has the partitions of other topics too.
        """
        if self.allowed is None or not watermarks:
            return False
        limit = max(self.allowed, min((*watermarks.values(), *group)) + self._drift)
        return self._set_paused(self.paused | self._find_ahead(watermarks, limit))

    def remove(self, name: Name) -> bool:
        """Remove a partition that this job no longer reads; return whether it was paused."""
        return self._set_paused(self.paused - {name})

    def _find_ahead(self, watermarks: Mapping[Name, int], limit: int | None) -> frozenset[Name]:
        if limit is None:
            return frozenset()
        return frozenset(name for name, at in watermarks.items() if at > limit)

    def _set_paused(self, paused: frozenset[Name]) -> bool:
        before, self.paused = self.paused, paused
        return paused != before

    def snapshot(self, now: int) -> AlignmentSnapshot:
        """Return the maximum and its age; `JobTime` stores which partitions are paused."""
        return AlignmentSnapshot(told_ms=now - self._updated_at, allowed=self.allowed)

    def restore(self, state: AlignmentSnapshot, paused: Iterable[Name], now: int) -> None:
        """Continue from a snapshot, as if no time had passed since it."""
        self._updated_at, self.allowed = now - state.told_ms, state.allowed
        self.paused = frozenset(paused)
