"""Group results: what the cells and multisets of a group give, as a row of the changelog.

    touched multisets ──see──► extremes, overlays ──┐
                                    cells ──of──────┴──► result

An extreme that is shown already and has not gone costs nothing; aggregates that look into a
multiset are handed its present values, and read as much as they need.
"""

from __future__ import annotations

from typing import Any

from jobs.core.aggregates.present_values import PresentValues
from jobs.core.fold.program import LARGEST_LOST, SMALLEST_LOST, Cells, Program
from jobs.core.fold.state import Counts, Key, State
from jobs.core.values.change import Row, Value

NOTHING: Counts = {}


class Results:
    """Makes the results of one fold, group after group; `misfits` counts what did not fit."""

    def __init__(self, program: Program, state: State) -> None:
        self.misfits = [0]
        self._program = program
        self._state = state
        self._looked_into = frozenset(program.looked_into)
        self._key: Key = ()
        self._extremes: list[Value] = []
        self._present: dict[int, PresentValues[Any]] = {}

    def begin(self, key: Key) -> None:
        """A group whose multisets are seen next, one after the other."""
        self._key = key
        self._extremes = []

    def see(
        self, argument: int, changed: Counts, largest: Value, smallest: Value, lost: int
    ) -> None:
        """What has become of one multiset. MAX and MIN are over values with positive
        multiplicity; the stored multiset is searched only when the value shown so far has gone
        and none that came is further out."""
        if lost or argument in self._looked_into:
            present = self._present[argument] = self._state.present(argument, self._key, changed)
        for of, is_largest in self._program.extremes:
            if of != argument:
                continue
            if lost & (LARGEST_LOST if is_largest else SMALLEST_LOST):
                self._extremes.append(present.first(descending=is_largest))
            else:
                self._extremes.append(largest if is_largest else smallest)

    def of(self, cells: Cells) -> Row:
        """The result of the group whose multisets were seen."""
        program = self._program
        if not program.looked_into:
            return program.result(cells, self._extremes, self.misfits)
        present = [self._present[argument] for argument in program.looked_into]
        return program.result(cells, self._extremes, self.misfits, present)

    def stored(self, key: Key, cells: Cells) -> Row:
        """The result of a group of which nothing changes."""
        for argument in self._program.multisets:
            self._present[argument] = self._state.present(argument, key, NOTHING)
        self._extremes = [
            self._present[argument].first(descending=is_largest)
            for argument, is_largest in self._program.extremes
        ]
        return self.of(cells)


def same_row(left: Row, right: Row, *, floating: bool) -> bool:
    """Equality of results, where NaN equals NaN."""
    if left == right:
        return True
    return floating and all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))
