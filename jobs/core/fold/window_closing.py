"""Windows that close: when results are emitted, when groups end, and which rows are late.

    watermark >= end - 1                      complete: with `emit: final` the window's groups are
                                              emitted once now, and later changes as they come
    watermark >= end - 1 + allowed lateness   closed: the last results stay in the table, the
                                              state is deleted, and further rows are late

The state has an event-clock timer of each group for both times, so the state alone shows what is
due. Results are emitted before the watermark that made them due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.core.fold.state import Clock, GroupTimer, Key
from jobs.core.plan.tree import Plan, Window, WindowBound
from jobs.core.rows.consolidate import Booleans, Integers
from jobs.core.values.change import Row

COMPLETE, CLOSED = "window complete", "window closed"  # the namespaces of timers


class Late(NamedTuple):
    """Which rows of a column are late: for all of their windows, or for one at least."""

    whole: Booleans
    partly: Booleans


@dataclass(frozen=True, slots=True)
class Closing:
    """When the windows of a plan complete and close; a picklable value."""

    window: Window
    index: int  # of the window's end in a key
    final: bool
    lateness_ms: int

    @classmethod
    def of(cls, plan: Plan, *, final: bool, lateness_ms: int) -> Closing | None:
        """Return the closing of a plan's windows; None for a query without windows."""
        bounds = [each.expression for each in plan.group]
        for index, bound in enumerate(bounds):
            if isinstance(bound, WindowBound) and bound.end:
                return cls(bound.window, index, final, lateness_ms)
        return None

    def complete_at(self, key: Key) -> int:
        """Return the last millisecond of a group's window."""
        return self._last_ms(key[self.index])

    def closed_at(self, key: Key) -> int:
        """Return the watermark at which a group's window closes."""
        return self.complete_at(key) + self.lateness_ms

    def withholds(self, key: Key, watermark: int | None) -> bool:
        """Return whether a group emits nothing yet."""
        return self.final and (watermark is None or self.complete_at(key) > watermark)

    def timers(self, key: Key, watermark: int | None) -> list[GroupTimer]:
        timers = [GroupTimer(Clock.EVENT, self.closed_at(key), CLOSED, key)]
        if self.withholds(key, watermark):
            timers.append(GroupTimer(Clock.EVENT, self.complete_at(key), COMPLETE, key))
        return timers

    def open_end(self, watermark: int) -> int:
        """Return the end of the first window that is still open, in units of the window's time."""
        return (watermark - self.lateness_ms + 2) * self.window.unit

    def still_open(self, opened: Sequence[Row], watermark: int | None) -> list[Row]:
        """Return the copies of one row whose windows are still open; without any, it is late."""
        if watermark is None:
            return list(opened)
        first: Any = self.open_end(watermark)
        return [row for row in opened if row[-1] >= first]

    def late(self, times_ms: Integers, watermark: int | Integers) -> Late:
        """Return which rows of a column are late for all of their windows, and for at least one.

        The watermark is one for all rows, or each row's own."""
        first_end, last_end = self.window.find_ends(times_ms)
        open_end = watermark - self.lateness_ms + 2
        return Late(whole=last_end < open_end, partly=first_end < open_end)

    def _last_ms(self, end: Any) -> int:
        return int(end // self.window.unit) - 1
