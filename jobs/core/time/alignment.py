"""Alignment: who runs ahead of its group stops being read until the others have caught up.

    every source of the group ──► its watermark, reported ──► minimum + max_drift = allowed
    every partition of ours   ──► its own watermark > allowed? ──► paused

The allowed maximum stands for `every` milliseconds. Only a new one lets a partition go on. Who runs
beyond it in between is paused as well, unless that only says that the maximum is old: in Flink a
group whose slowest have caught up stands until the next one, here it goes on. Idle sources and
those that have no watermark yet neither limit anyone nor are limited.

There is no deadlock: the slowest partition of the slowest source is never ahead of that source's
own watermark, so it is always read. (In Flink a paused partition that turned idle was never
resumed, FLINK-40093; here paused ones never turn idle, and all are looked at.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Alignment(Generic[Name]):
    """The partitions of one job in a group; what the group's other jobs report is handed in."""

    __slots__ = ("_drift", "_every", "_told_at", "allowed", "paused")

    def __init__(self, max_drift: int, every: int, now: int) -> None:
        self._drift = max_drift
        self._every = every
        self._told_at = now
        self.allowed: int | None = None  # None: no limit
        self.paused: frozenset[Name] = frozenset()

    @property
    def tells_at(self) -> int:
        """When a new maximum is due."""
        return self._told_at + self._every

    def tell(self, reported: Iterable[int], now: int) -> None:
        """A new maximum, from the watermarks that the sources of the group report. One is enough,
        however many were due."""
        self._told_at = now - (now - self._told_at) % self._every
        slowest = min(reported, default=None)
        self.allowed = None if slowest is None else slowest + self._drift

    def resume(self, watermarks: Mapping[Name, int]) -> bool:
        """Who is paused under the present maximum; whether that is another set than before.

        `watermarks` has the partitions that may be paused: not idle, and with a watermark.
        """
        return self._set(self._ahead(watermarks, self.allowed))

    def pause(self, watermarks: Mapping[Name, int]) -> bool:
        """The same between two maxima: whoever is paused stays so, and who is ahead both of the
        maximum and of the slowest now joins them."""
        if self.allowed is None or not watermarks:
            return False
        limit = max(self.allowed, min(watermarks.values()) + self._drift)
        return self._set(self.paused | self._ahead(watermarks, limit))

    def forget(self, name: Name) -> bool:
        """A partition that is no longer read by this job."""
        return self._set(self.paused - {name})

    def _ahead(self, watermarks: Mapping[Name, int], limit: int | None) -> frozenset[Name]:
        if limit is None:
            return frozenset()
        return frozenset(name for name, at in watermarks.items() if at > limit)

    def _set(self, paused: frozenset[Name]) -> bool:
        before, self.paused = self.paused, paused
        return paused != before

    def snapshot(self, now: int) -> dict[str, Any]:
        """The maximum and its age; who is paused follows from the watermarks and is kept there."""
        state: dict[str, Any] = {"told_ms": now - self._told_at}
        return state if self.allowed is None else state | {"allowed": self.allowed}

    def restore(self, state: Mapping[str, Any], paused: Iterable[Name], now: int) -> None:
        self._told_at = now - state["told_ms"]
        self.allowed = state.get("allowed")
        self.paused = frozenset(paused)
