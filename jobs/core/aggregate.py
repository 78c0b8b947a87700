"""Aggregate: the deltas of a bundle and the old groups become new groups and changelog rows.

    deltas ──► settle heads ──► touched multisets ──► cells, results ──► +I -U +U -D
                   ▲                    ▲                                  │
              old groups         old multisets                    upserts of the state

One state read and one state write for each touched group, whatever the number of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.core.change import Op, Row, Value
from jobs.core.program import (
    FIRST_CELL,
    FIRST_PLUS,
    HEADS,
    LARGEST_LOST,
    ROW_COUNT,
    SMALLEST_LOST,
    Delta,
    Program,
)
from jobs.core.state import Counts, Group, Key, State, Upserts
from schemas.limits import DROPPED_KEYS_NAMED_MAX

ChangelogRow = tuple[Op, Key, Row]
NOTHING: Counts = {}  # what is stored of a group without accumulator


@dataclass(slots=True)
class Counters:
    """What the fold noticed; sums over buckets and tasks make the epoch's counters."""

    groups_touched: int = 0
    dropped_retractions: int = 0
    dropped_keys: list[tuple[Key, int]] = field(default_factory=list)
    unmatched_retractions: int = 0
    misfits: int = 0


@dataclass(slots=True)
class Folded:
    """The outcome of one bundle over one state."""

    changelog: list[ChangelogRow]
    upserts: Upserts
    counters: Counters


def fold(
    program: Program,
    state: State,
    deltas: Mapping[Key, Delta],
    *,
    order: Callable[[Key], Any],
    refresh: bool = False,
) -> Folded:
    """Fold a bundle into the state's groups; the state itself is not changed.

    Keys are taken in `order`, so that the same bundle gives the same rows. With `refresh` equal
    results are sent again, which keeps state downstream alive under a TTL.
    """
    counters = Counters(groups_touched=len(deltas))
    keys = sorted(deltas, key=order)
    groups = dict(zip(keys, state.groups(keys), strict=True))
    for key in keys:
        if deltas[key][HEADS] is not None and groups[key] is None:
            _drop_heads(program, key, deltas[key], counters)
    touched = [key for key in keys if refresh or not _idle(program, deltas[key])]
    stored = [
        _stored(program, state, argument, touched, deltas, groups) for argument in program.multisets
    ]
    folding = _Folding(program, state, counters, refresh)
    for key in touched:
        folding.group(key, groups[key], deltas[key], stored)
    return Folded(folding.changelog, folding.upserts, counters)


def _drop_heads(program: Program, key: Key, delta: Delta, counters: Counters) -> None:
    """Without an accumulator, what is retracted before the first accumulate never was."""
    dropped = 0
    for position, *values in delta[HEADS]:
        if position < delta[FIRST_PLUS]:
            program.restore(delta, *values)
            dropped += 1
    if dropped:
        counters.dropped_retractions += dropped
        if len(counters.dropped_keys) < DROPPED_KEYS_NAMED_MAX:
            counters.dropped_keys.append((key, dropped))


def _idle(program: Program, delta: Delta) -> bool:
    """Whether a delta changes nothing at all."""
    if delta[ROW_COUNT]:
        return False
    cells_end = FIRST_CELL + len(program.cells) - 1
    return not any(delta[FIRST_CELL:cells_end]) and not any(
        any(multiset.values()) for multiset in delta[cells_end:]
    )


def _stored(
    program: Program,
    state: State,
    argument: int,
    keys: Sequence[Key],
    deltas: Mapping[Key, Delta],
    groups: Mapping[Key, Group | None],
) -> Iterator[Counts]:
    """The old multisets, in the order in which they are met: one read for a whole bucket. Of a
    group without accumulator nothing is stored."""
    slot = program.multiset_slot(argument)
    asked = [(key, deltas[key][slot]) for key in keys if groups[key] is not None]
    return iter(state.multisets(argument, asked))


class _Folding:
    """One fold while it goes through its groups."""

    def __init__(self, program: Program, state: State, counters: Counters, refresh: bool) -> None:
        self.program = program
        self.state = state
        self.counters = counters
        self.refresh = refresh
        self.changelog: list[ChangelogRow] = []
        self.upserts = Upserts([], [])
        self.slots = [(argument, program.multiset_slot(argument)) for argument in program.multisets]

    def group(
        self, key: Key, old: Group | None, delta: Delta, stored: Sequence[Iterator[Counts]]
    ) -> None:
        """Fold one group: its cells, its entries, its result and what the changelog says."""
        program = self.program
        cells = program.merge(None if old is None else old.cells, delta)
        lasting = cells[0] != 0
        extremes: list[Value] = []
        gone = min(0 if old is None else old.cells[0], 0) - min(cells[0], 0)
        for (argument, slot), multisets in zip(self.slots, stored, strict=True):
            known = NOTHING if old is None else next(multisets)
            shown = program.shown(argument, None if old is None else old.result)
            changed, largest, smallest, lost, grown = program.touch[argument](
                delta[slot], known, *shown
            )
            gone = max(gone, grown)
            if lasting:
                if changed:
                    self.upserts.multisets.append((argument, key, changed))
                extremes += self._extremes(argument, key, changed, largest, smallest, lost)
        if not lasting:
            self._end(key, old)
            return
        self.counters.unmatched_retractions += max(gone, 0)
        misfits = [0]
        result = program.result(cells, extremes, misfits)
        self.counters.misfits += misfits[0]
        self.upserts.groups.append((key, Group(cells, result)))
        if old is None:
            self.changelog.append((Op.INSERT, key, result))
        elif self.refresh or not same_row(old.result, result, floating=program.floating_results):
            self.changelog.append((Op.UPDATE_BEFORE, key, old.result))
            self.changelog.append((Op.UPDATE_AFTER, key, result))

    def _extremes(
        self,
        argument: int,
        key: Key,
        changed: Counts,
        largest: Value,
        smallest: Value,
        lost: int,
    ) -> Iterator[Value]:
        """MAX and MIN over values with positive multiplicity; the stored multiset is searched
        only when the value shown so far has gone and none that came is further out."""
        for of, is_largest in self.program.extremes:
            if of != argument:
                continue
            if lost & (LARGEST_LOST if is_largest else SMALLEST_LOST):
                yield self.state.extreme(argument, key, changed, largest=is_largest)
            else:
                yield largest if is_largest else smallest

    def _end(self, key: Key, old: Group | None) -> None:
        """A group that ends takes all of its entries along, unmatched ones too."""
        if old is None:
            return
        self.changelog.append((Op.DELETE, key, old.result))
        self.upserts.groups.append((key, None))
        for argument, _ in self.slots:
            entries = self.state.entries(argument, key)
            if entries:
                self.upserts.multisets.append((argument, key, {value: 0 for value, _ in entries}))


def same_row(left: Row, right: Row, *, floating: bool) -> bool:
    """Equality of results, where NaN equals NaN."""
    if left == right:
        return True
    return floating and all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))
