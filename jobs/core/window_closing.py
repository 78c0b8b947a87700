"""Windows that close: when their results are told, when they are forgotten, and what is late.

    watermark >= end - 1                      complete: with `emit: final` the window's groups are
                                              told now, once, and their later changes as they come
    watermark >= end - 1 + allowed lateness   closed: its groups are forgotten, without a word, and
                                              a row of it is late

A group waits for either with a timer of the event clock in the state, so whoever has the state
knows what is due. Results come before the watermark that made them due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jobs.core.aggregate import ChangelogRow, Folded
from jobs.core.bundle import Tally
from jobs.core.change import Op, Row
from jobs.core.consolidate import Consolidation
from jobs.core.plan import Plan, Window, WindowBound
from jobs.core.state import GroupTimer, Key, Upserts
from jobs.core.timers import Clock
from jobs.core.windows import units_of_ms

COMPLETE, CLOSED = "window complete", "window closed"  # what a timer is for: its namespace


class ClosingWindows:
    """A Tally over opened rows, whose windows close."""

    def __init__(
        self, plan: Plan, window: Window, tally: Tally, *, final: bool, lateness_ms: int = 0
    ) -> None:
        self.tally = tally
        self.watermark: int | None = None
        self.late_rows = 0
        self._final = final
        self._lateness = lateness_ms
        self._unit = units_of_ms(window)
        ends = (isinstance(e := each.expression, WindowBound) and e.end for each in plan.group)
        self._place = list(ends).index(True)

    def still_open(self, opened: Sequence[Row]) -> list[Row]:
        """Of the rows that one row was opened to, those whose window takes rows. Where none does,
        the row is late; one that is too late for some of its windows only is not."""
        found = [row for row in opened if not self._passed(self._last_ms(row[-1]) + self._lateness)]
        self.late_rows += not found
        return found

    def fold(self, ranges: Iterable[Consolidation], now_ms: int = 0) -> Folded:
        """Fold a bundle; of its changelog, what is not withheld until the window is complete."""
        folded = self.tally.fold(ranges, now_ms)
        self.tally.state.apply(Upserts([], [], self._timers(folded.upserts)))
        if self._final:
            folded.changelog = [row for row in folded.changelog if self._passed(self._last(row[1]))]
        return folded

    def advance(self, watermark: int) -> list[ChangelogRow]:
        """What a watermark makes due, in the order of time."""
        self.watermark = watermark
        state = self.tally.state
        changelog: list[ChangelogRow] = []
        upserts = Upserts([], [], [])
        for timer in state.due(Clock.EVENT, watermark):
            upserts.timers.append((timer, False))
            (group,) = state.groups([timer.key])
            if group is None:
                continue
            if timer.namespace == COMPLETE:
                changelog.append((Op.INSERT, timer.key, group.result))
            else:
                self._forget(timer.key, upserts)
        state.apply(upserts)
        return changelog

    def _timers(self, upserts: Upserts) -> list[tuple[GroupTimer, bool]]:
        """The timers of groups that were written; to set one again changes nothing."""
        timers = []
        for key, group in upserts.groups:
            if group is None:
                continue
            last = self._last(key)
            if self._final and not self._passed(last):
                timers.append((GroupTimer(Clock.EVENT, last, COMPLETE, key), True))
            timers.append((GroupTimer(Clock.EVENT, last + self._lateness, CLOSED, key), True))
        return timers

    def _forget(self, key: Key, upserts: Upserts) -> None:
        upserts.groups.append((key, None))
        for argument in self.tally.program.multisets:
            entries = self.tally.state.entries(argument, key)
            if entries:
                upserts.multisets.append((argument, key, {value: 0 for value, _ in entries}))

    def _last(self, key: Key) -> int:
        return self._last_ms(key[self._place])

    def _last_ms(self, end: Any) -> int:
        """The last millisecond of a window that ends there."""
        return int(end // self._unit) - 1

    def _passed(self, time_ms: int) -> bool:
        return self.watermark is not None and time_ms <= self.watermark
