"""Group results: what the cells and multisets of a group give, as a row of the changelog.

    touched multisets ──see──► extremes, overlays ──┐
                                    cells ──of──────┴──► result

An extreme that is shown already and has not gone costs nothing; aggregates that go through the
entries of a multiset are handed the way to do so, and read as much as they need.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobs.core.change import Row, Value
from jobs.core.program import LARGEST_LOST, SMALLEST_LOST, Cells, Program
from jobs.core.state import Counts, Key, State

NOTHING: Counts = {}


class Results:
    """Makes the results of one fold, group after group; `misfits` counts what did not fit."""

    def __init__(self, program: Program, state: State) -> None:
        self.misfits = [0]
        self._program = program
        self._state = state
        self._walked = frozenset(program.walked)
        self._key: Key = ()
        self._extremes: list[Value] = []
        self._walks: dict[int, Walk] = {}

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
        if argument in self._walked:
            self._walks[argument] = Walk(self._state, argument, self._key, changed)
        for of, is_largest in self._program.extremes:
            if of != argument:
                continue
            if lost & (LARGEST_LOST if is_largest else SMALLEST_LOST):
                found = self._state.extreme(argument, self._key, changed, largest=is_largest)
                self._extremes.append(found)
            else:
                self._extremes.append(largest if is_largest else smallest)

    def of(self, cells: Cells) -> Row:
        """The result of the group whose multisets were seen."""
        program = self._program
        if not program.walked:
            return program.result(cells, self._extremes, self.misfits)
        walks = [self._walks[argument] for argument in program.walked]
        return program.result(cells, self._extremes, self.misfits, walks)

    def stored(self, key: Key, cells: Cells) -> Row:
        """The result of a group of which nothing changes."""
        self._extremes = [
            self._state.extreme(argument, key, NOTHING, largest=is_largest)
            for argument, is_largest in self._program.extremes
        ]
        for argument in self._program.walked:
            self._walks[argument] = Walk(self._state, argument, key, NOTHING)
        return self.of(cells)


class Walk:
    """The way through the present values of one multiset; a small one is read only once."""

    __slots__ = ("_asked", "_overlay", "_state", "_whole")

    def __init__(self, state: State, argument: int, key: Key, overlay: Counts) -> None:
        self._state = state
        self._asked = (argument, key)
        self._overlay = overlay
        self._whole: list[tuple[Value, int]] | None = None

    def __call__(self, descending: bool) -> Iterable[tuple[Value, int]]:
        if self._whole is None:
            found = self._state.present(*self._asked, self._overlay, descending=descending)
            if not isinstance(found, list):
                return found
            self._whole = found[::-1] if descending else found
        return reversed(self._whole) if descending else self._whole


def same_row(left: Row, right: Row, *, floating: bool) -> bool:
    """Equality of results, where NaN equals NaN."""
    if left == right:
        return True
    return floating and all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))
