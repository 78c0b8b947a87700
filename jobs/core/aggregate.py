"""Aggregate: the deltas of a bundle and the old groups become new groups and changelog rows.

    deltas ──► settle heads ──► touched multiset entries ──► cells, results ──► +I -U +U -D
                   ▲                     ▲                                        │
              old groups          old multiplicities                     upserts of the state

One state read and one state write for each touched group, whatever the number of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.core.change import Op, Row, Value
from jobs.core.program import FIRST_CELL, FIRST_PLUS, HEADS, ROW_COUNT, Delta, Program
from jobs.core.state import Group, Key, State, Upserts
from schemas.limits import DROPPED_KEYS_NAMED_MAX

ChangelogRow = tuple[Op, Key, Row]
Overlay = dict[Value, int]


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
        if groups[key] is None and deltas[key][HEADS] is not None:
            _drop_heads(program, key, deltas[key], counters)
    touched = [key for key in keys if refresh or not _idle(program, deltas[key])]
    overlays = [
        _touched_entries(program, state, argument, touched, deltas, groups)
        for argument in program.multisets
    ]
    changelog: list[ChangelogRow] = []
    upserts = Upserts([], [])
    for key in touched:
        own = [overlay.get(key) for overlay in overlays]
        _fold_group(program, state, key, groups[key], deltas[key], own, changelog, upserts,
                    counters, refresh)  # fmt: skip
    return Folded(changelog, upserts, counters)


def _drop_heads(program: Program, key: Key, delta: Delta, counters: Counters) -> None:
    """Without an accumulator, what is retracted before the first accumulate never was."""
    first_plus = delta[FIRST_PLUS]
    dropped = 0
    for position, *values in delta[HEADS]:
        if position < first_plus:
            program.restore(delta, *values)
            dropped += 1
    if dropped:
        counters.dropped_retractions += dropped
        if len(counters.dropped_keys) < DROPPED_KEYS_NAMED_MAX:
            counters.dropped_keys.append((key, dropped))


def _idle(program: Program, delta: Delta) -> bool:
    """Whether a delta changes nothing at all."""
    cells_end = FIRST_CELL + len(program.cells) - 1
    return (
        delta[ROW_COUNT] == 0
        and not any(delta[FIRST_CELL:cells_end])
        and not any(any(multiset.values()) for multiset in delta[cells_end:])
    )


def _touched_entries(
    program: Program,
    state: State,
    argument: int,
    keys: Sequence[Key],
    deltas: Mapping[Key, Delta],
    groups: Mapping[Key, Group | None],
) -> dict[Key, list[tuple[Value, int, int]]]:
    """Of each group the entries of one multiset that change: value, old and new multiplicity."""
    slot = program.multiset_slot(argument)
    asked: list[tuple[Key, Value]] = []
    weights: list[int] = []
    touched: dict[Key, list[tuple[Value, int, int]]] = {}
    for key in keys:
        multiset = deltas[key][slot]
        if groups[key] is None:  # nothing stored to ask for
            touched[key] = [(value, 0, weight) for value, weight in multiset.items() if weight]
            continue
        touched[key] = []
        for value, weight in multiset.items():
            if weight:
                asked.append((key, value))
                weights.append(weight)
    stored = state.multiplicities(argument, asked)
    for (key, value), weight, old in zip(asked, weights, stored, strict=True):
        touched[key].append((value, old, old + weight))
    return touched


def _fold_group(  # noqa: PLR0913
    program: Program,
    state: State,
    key: Key,
    old: Group | None,
    delta: Delta,
    entries: Sequence[list[tuple[Value, int, int]] | None],
    changelog: list[ChangelogRow],
    upserts: Upserts,
    counters: Counters,
    refresh: bool,
) -> None:
    cells = program.merge(None if old is None else old.cells, delta)
    if cells[0] == 0:
        if old is not None:
            changelog.append((Op.DELETE, key, old.result))
            upserts.groups.append((key, None))
            _clear(program, state, key, entries, upserts)
        return
    counters.unmatched_retractions += _unmatched(old, cells, entries)
    misfits = [0]
    extremes = _extremes(program, state, key, old, entries) if program.extremes else ()
    result = program.result(cells, extremes, misfits)
    counters.misfits += misfits[0]
    upserts.groups.append((key, Group(cells, result)))
    for argument, changed in zip(program.multisets, entries, strict=True):
        upserts.entries.extend((argument, key, value, new) for value, _, new in changed or ())
    if old is None:
        changelog.append((Op.INSERT, key, result))
    elif refresh or not same_row(old.result, result, floating=program.floating_results):
        changelog.append((Op.UPDATE_BEFORE, key, old.result))
        changelog.append((Op.UPDATE_AFTER, key, result))


def _clear(
    program: Program,
    state: State,
    key: Key,
    entries: Sequence[list[tuple[Value, int, int]] | None],
    upserts: Upserts,
) -> None:
    """A group that ends takes all of its entries along, unmatched ones too."""
    for argument in program.multisets:
        upserts.entries.extend(
            (argument, key, value, 0) for value, _ in state.entries(argument, key)
        )


def _unmatched(
    old: Group | None, cells: Sequence[int], entries: Sequence[list[tuple[Value, int, int]] | None]
) -> int:
    """How many retractions of this bundle took away what was not there, as far as it shows."""
    before = 0 if old is None else old.cells[0]
    most = min(before, 0) - min(cells[0], 0)
    for changed in entries:
        grown = sum(min(was, 0) - min(now, 0) for _, was, now in changed or ())
        most = max(most, grown)
    return max(most, 0)


def _extremes(
    program: Program,
    state: State,
    key: Key,
    old: Group | None,
    entries: Sequence[list[tuple[Value, int, int]] | None],
) -> list[Value]:
    """MAX and MIN over values with positive multiplicity; the stored multiset is searched only
    when the value shown so far has gone."""
    found = []
    for argument, largest in program.extremes:
        changed = entries[program.multisets.index(argument)] or ()
        shown = None if old is None else old.result[program.shown_by(argument, largest)]
        best = shown
        gone = False
        for value, _, new in changed:
            if new > 0:
                if best is None or beats(value, best, largest=largest):
                    best = value
            elif shown is not None and not (beats(value, shown, largest=largest)
                                            or beats(shown, value, largest=largest)):  # fmt: skip
                gone = True
        if gone and best is shown:
            overlay = {value: new for value, _, new in changed}
            best = state.extreme(argument, key, overlay, largest=largest)
        found.append(best)
    return found


def beats(value: Any, other: Any, *, largest: bool) -> bool:
    """Whether `value` is further out than `other`; NaN is the greatest float."""
    if value != value or other != other:
        greater, less = value != value and other == other, value == value and other != other
        return greater if largest else less
    return bool(value > other) if largest else bool(value < other)


def same_row(left: Row, right: Row, *, floating: bool) -> bool:
    """Equality of results, where NaN equals NaN."""
    if left == right:
        return True
    return floating and all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))
