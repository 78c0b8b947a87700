"""Group results: compute the result row of a group from its cells and multisets.

    changed multisets ──find_extremes──► MAX, MIN, multisets to scan ──┐
                                                   cells ──────────────┴─compute──► result

`GroupResults.find_extremes` finds the next MAX or MIN after a retraction. A MAX that is still
present costs nothing. Other aggregates that scan a multiset get an iterator over its present
values, and read as many as they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.core.aggregates.operator_class import AggregateFailed, GroupClock
from jobs.core.aggregates.present_values import PresentValues
from jobs.core.fold.program import (
    LARGEST_RETRACTED,
    SMALLEST_RETRACTED,
    Cells,
    Delta,
    MultisetChange,
    Program,
)
from jobs.core.fold.state import Clock, Counts, Group, GroupTimer, Key, State
from jobs.core.values.change import Row, Value

NO_COUNTS: Counts = {}
CLASS = "class"  # the namespace of the first timers that operators' classes wait for


class GroupResults:
    """Computes the results of one fold, group by group; `misfits` counts those that overflow."""

    def __init__(
        self, program: Program, state: State, now_ms: int = 0, watermark: int | None = None
    ) -> None:
        """The timers of operators' classes fire up to the time of their clock."""
        self.misfits = [0]
        until = now_ms if program.clock is Clock.PROCESSING else watermark
        self.clock = GroupClock(until) if program.clock else None
        self._program = program
        self._state = state
        self._scanned = frozenset(program.scanned)
        self._key: Key = ()
        self._extremes: list[Value] = []
        self._present: dict[int, PresentValues[Any]] = {}

    @property
    def next_timer(self) -> int | None:
        """The first timer that the classes of the computed group wait for."""
        return None if self.clock is None else self.clock.next

    def keep_timer(self, old: Group | None) -> None:
        """Take the timer of a group that is not computed."""
        if self.clock is not None:
            self.clock.next = None if old is None else old.class_timer

    def find_timer(self, key: Key, old: Group | None) -> int | None:
        """Return the first timer of the classes of a stored group.

        Under a TTL a group keeps the timer of that instead, so this one is computed again. While
        its results are withheld it has none."""
        if self.clock is None or old is None:
            return None
        if old.written is None or old.withheld:
            return old.class_timer
        counted = self.misfits[0]
        self.compute_stored(key, old.cells)
        self.misfits[0] = counted
        return self.clock.next

    def move_timer(
        self, key: Key, before: int | None, after: int | None
    ) -> Iterator[tuple[GroupTimer, bool]]:
        """Yield the changes from the first timer of a group's classes to the next one."""
        clock = self._program.clock
        for time, is_set in ((None if before == after else before, False), (after, True)):
            if clock is not None and time is not None:
                yield GroupTimer(clock, time, CLASS, key), is_set

    def remove_timer(self, key: Key, old: Group | None) -> Iterator[tuple[GroupTimer, bool]]:
        """Yield the change that removes the first timer of a stored group's classes."""
        return self.move_timer(key, self.find_timer(key, old), None)

    def begin(self, key: Key) -> None:
        """Begin a group; call `find_extremes` for each of its multisets next."""
        self._key = key
        self._extremes = []

    def find_extremes(self, argument: int, change: MultisetChange) -> None:
        """Find MAX and MIN of an argument after the change of its multiset.

        If the emitted extreme was retracted and no new value replaces it, search the stored
        multiset for the next one. Only values with a positive multiplicity count.
        """
        if change.retracted or argument in self._scanned:
            present = self._present[argument] = self._state.present(
                argument, self._key, change.counts
            )
        for of, is_largest in self._program.extremes:
            if of != argument:
                continue
            if change.retracted & (LARGEST_RETRACTED if is_largest else SMALLEST_RETRACTED):
                self._extremes.append(present.first(descending=is_largest))
            else:
                self._extremes.append(change.largest if is_largest else change.smallest)

    def compute(self, cells: Cells) -> Row:
        """Return the result of the group, after `find_extremes` for each of its multisets."""
        program = self._program
        if not program.scanned:
            return program.result(cells, self._extremes, self.misfits)
        present = [self._present[argument] for argument in program.scanned]
        try:
            if self.clock is None:
                return program.result(cells, self._extremes, self.misfits, present)
            self.clock.next = None
            return program.result(cells, self._extremes, self.misfits, present, self.clock)
        except AggregateFailed as failed:
            raise AggregateFailed(f"{failed} (in the group {self._key!r})") from failed

    def compute_stored(self, key: Key, cells: Cells) -> Row:
        """Return the result of a group from its stored multisets alone."""
        self._key = key
        for argument in self._program.multisets:
            self._present[argument] = self._state.present(argument, key, NO_COUNTS)
        self._extremes = [
            self._present[argument].first(descending=is_largest)
            for argument, is_largest in self._program.extremes
        ]
        return self.compute(cells)


def read_multisets(
    program: Program,
    state: State,
    argument: int,
    keys: Sequence[Key],
    deltas: Mapping[Key, Delta],
    groups: Mapping[Key, Group | None],
) -> Iterator[Counts]:
    """Read the stored multisets of all groups at once; yield them in the order of `keys`.

    A group without accumulator has no stored multiset and is skipped.
    """
    slot = program.multiset_slot(argument)
    wanted = [(key, deltas[key][slot]) for key in keys if groups[key] is not None]
    return iter(state.multisets(argument, wanted))


def is_same_row(left: Row, right: Row, *, floating: bool) -> bool:
    """Return whether two results are equal, where NaN equals NaN."""
    if left == right:
        return True
    return floating and all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))


def empty_multisets(program: Program, state: State, key: Key) -> Iterator[tuple[int, Key, Counts]]:
    """Yield the changes that remove every multiset entry of a group that ends."""
    for argument in program.multisets:
        entries = state.entries(argument, key)
        if entries:
            yield argument, key, {value: 0 for value, _ in entries}
