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
from dataclasses import dataclass
from typing import Any

from jobs.core.aggregate import ChangelogRow, Counters, Folded
from jobs.core.bundle import Tally
from jobs.core.change import Op, Row
from jobs.core.consolidate import Consolidation
from jobs.core.plan import Plan, Window, WindowBound
from jobs.core.program import Program
from jobs.core.state import GroupTimer, Key, State, Upserts
from jobs.core.timers import Clock
from jobs.core.windows import units_of_ms

COMPLETE, CLOSED = "window complete", "window closed"  # what a timer is for: its namespace


@dataclass(frozen=True, slots=True)
class Closing:
    """When the windows of a plan are complete, and when they close; a value, so that it travels."""

    place: int  # of the window's end in a key
    unit: int  # of its values, in a millisecond
    final: bool
    lateness_ms: int

    @classmethod
    def of(cls, plan: Plan, window: Window, *, final: bool, lateness_ms: int) -> Closing:
        ends = [isinstance(e := each.expression, WindowBound) and e.end for each in plan.group]
        return cls(ends.index(True), units_of_ms(window), final, lateness_ms)

    def complete_at(self, key: Key) -> int:
        """The last millisecond of a group's window."""
        return self._last_ms(key[self.place])

    def closed_at(self, key: Key) -> int:
        return self.complete_at(key) + self.lateness_ms

    def still_open(self, opened: Sequence[Row], watermark: int | None) -> list[Row]:
        """Of the rows that one row was opened to, those whose window takes rows. Where none does,
        the row is late; one that is too late for some of its windows only is not."""
        if watermark is None:
            return list(opened)
        return [row for row in opened if self._last_ms(row[-1]) + self.lateness_ms > watermark]

    def told(self, changelog: Iterable[ChangelogRow], watermark: int | None) -> list[ChangelogRow]:
        """What of a bundle's changelog is not withheld until its window is complete."""
        if not self.final:
            return list(changelog)
        return [row for row in changelog if self._is_complete(row[1], watermark)]

    def timers(self, upserts: Upserts, watermark: int | None) -> list[tuple[GroupTimer, bool]]:
        """The timers of groups that were written; to set one again changes nothing."""
        timers = []
        for key, group in upserts.groups:
            if group is None:
                continue
            if self.final and not self._is_complete(key, watermark):
                timers.append((GroupTimer(Clock.EVENT, self.complete_at(key), COMPLETE, key), True))
            timers.append((GroupTimer(Clock.EVENT, self.closed_at(key), CLOSED, key), True))
        return timers

    def _is_complete(self, key: Key, watermark: int | None) -> bool:
        return watermark is not None and self.complete_at(key) <= watermark

    def _last_ms(self, end: Any) -> int:
        return int(end // self.unit) - 1


def pass_watermark(program: Program, state: State, watermark: int) -> Folded:
    """What a watermark makes due, in the order of time: windows that are complete are told, those
    that close are forgotten."""
    changelog: list[ChangelogRow] = []
    upserts = Upserts([], [], [])
    for timer in state.due(Clock.EVENT, watermark):
        if timer.namespace not in (COMPLETE, CLOSED):
            continue
        upserts.timers.append((timer, False))
        (group,) = state.groups([timer.key])
        if group is None:
            continue
        if timer.namespace == COMPLETE:
            changelog.append((Op.INSERT, timer.key, group.result))
        else:
            _forget(program, state, timer.key, upserts)
    return Folded(changelog, upserts, Counters())


def _forget(program: Program, state: State, key: Key, upserts: Upserts) -> None:
    upserts.groups.append((key, None))
    for argument in program.multisets:
        entries = state.entries(argument, key)
        if entries:
            upserts.multisets.append((argument, key, {value: 0 for value, _ in entries}))


class ClosingWindows:
    """A Tally over opened rows, whose windows close."""

    def __init__(self, tally: Tally, closing: Closing) -> None:
        self.tally = tally
        self.closing = closing
        self.watermark: int | None = None
        self.late_rows = 0

    def still_open(self, opened: Sequence[Row]) -> list[Row]:
        """The rows that one row was opened to and that are folded; none where it is late."""
        found = self.closing.still_open(opened, self.watermark)
        self.late_rows += not found
        return found

    def fold(self, ranges: Iterable[Consolidation], now_ms: int = 0) -> Folded:
        """Fold a bundle; its changelog is what is told of it now."""
        folded = self.tally.fold(ranges, now_ms)
        timers = self.closing.timers(folded.upserts, self.watermark)
        self.tally.state.apply(Upserts([], [], timers))
        folded.changelog = self.closing.told(folded.changelog, self.watermark)
        return folded

    def advance(self, watermark: int) -> Folded:
        """What a watermark makes due; it goes on after that."""
        self.watermark = watermark
        folded = pass_watermark(self.tally.program, self.tally.state, watermark)
        self.tally.state.apply(folded.upserts)
        return folded
