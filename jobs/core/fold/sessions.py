"""Sessions: windows that end after a gap without rows; they grow, merge and split.

    rows ──gather──► deltas by instant ──fold──► panes: the accumulators of one instant
                           │                       │
          instants of a key, before and after ─────┴──► deltas of sessions ──fold──► changelog

An instant is the time of a row. A session is a group like any other, with its accumulator and its
multisets. The state also keeps a pane, the accumulator of one instant, for each instant of a key.
The fold builds sessions from panes, so a retraction can split a session. A pane's key has the
instant as start and no end. The instants of a key are a multiset under a key without start and end;
its entries alone determine the sessions of the key.

Only panes with a row count above 0 belong to a session. A retraction that comes before its row
takes a pane below zero, where it waits for the row until its instant is late.

A session whose bounds stay the same gets the changes of its panes. A session with new bounds is a
new group: the fold retracts the old session and adds the sum of all panes of the new one, so the
cost follows the length of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.core.fold.fold import FoldContext, FoldResult, fold, fold_time
from jobs.core.fold.group_results import empty_multisets
from jobs.core.fold.program import FIRST_CELL, ROW_COUNT, Delta, Program
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Clock, Counts, Group, GroupTimer, Key, State, Upserts, rank
from jobs.core.fold.window_closing import Closing
from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.values.change import Value

Instant = Any  # a value of the window's start
PANE_LATE = "pane late"  # the namespace of the timers of panes below zero
Span = tuple[Instant, Instant]  # a session's first instant, and its end
Term = tuple[Sequence[Any], int, Callable[[int], Counts]]  # cells, sign, and the multisets


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """Makes the three kinds of keys in the state of sessions."""

    start: int  # the indexes of the bounds in a key
    end: int
    gap: int  # in units of the bounds
    instants: int  # the index of the argument under which the instants of a key are stored

    @classmethod
    def of(cls, plan: Plan) -> SessionKeys | None:
        """Return the keys of a plan; None for a query without sessions."""
        window, instants = plan.window, plan.instants_argument
        if window is None or instants is None:
            return None
        bounds = [each.expression for each in plan.group]
        start, end = (
            next(i for i, b in enumerate(bounds) if isinstance(b, WindowBound) and b.end is is_end)
            for is_end in (False, True)
        )
        return cls(start, end, window.size_ms * window.unit, instants)

    def instants_key(self, key: Key) -> Key:
        return self._replace_bounds(key, None, None)

    def pane_key(self, key: Key, instant: Instant) -> Key:
        return self._replace_bounds(key, instant, None)

    def session_key(self, key: Key, span: Span) -> Key:
        return self._replace_bounds(key, *span)

    def find_sessions(self, instants: Iterable[Instant]) -> dict[Span, list[Instant]]:
        """Return the sessions of sorted instants; a longer pause than the gap ends a session."""
        sessions: list[list[Instant]] = []
        for instant in instants:
            if sessions and instant - sessions[-1][-1] <= self.gap:
                sessions[-1].append(instant)
            else:
                sessions.append([instant])
        return {(session[0], session[-1] + self.gap): session for session in sessions}

    def _replace_bounds(self, key: Key, start: Value, end: Value) -> Key:
        values = list(key)
        values[self.start], values[self.end] = start, end
        return tuple(values)


def fold_bundle(
    program: Program, state: State, deltas: Mapping[Key, Delta], context: FoldContext
) -> FoldResult:
    """Fold a bundle of any query."""
    of_query = fold if SessionKeys.of(program.plan) is None else fold_sessions
    return of_query(program, state, deltas, context)


def fold_due(
    program: Program, state: State, context: FoldContext, *, release: bool = False
) -> FoldResult:
    """Fold the work of any query which time alone makes due."""
    of_query = fold_time if SessionKeys.of(program.plan) is None else fold_time_sessions
    return of_query(program, state, context, release=release)


def fold_sessions(
    program: Program, state: State, deltas: Mapping[Key, Delta], context: FoldContext
) -> FoldResult:
    """Fold a bundle in which each row has a session of its own: its instant plus the gap."""
    keys = SessionKeys.of(program.plan)
    assert keys is not None
    pane_deltas = {keys.pane_key(key, key[keys.start]): delta for key, delta in deltas.items()}
    pane_rules = Rules(withhold=True, drop_early=context.rules.drop_early)  # never emitted
    folded_panes = fold(program, state, pane_deltas, FoldContext(context.order, pane_rules))
    closing = context.rules.closing
    panes = _Panes(program, state, keys, folded_panes.upserts, closing)
    session_deltas: dict[Key, Delta] = {}
    for key in dict.fromkeys(keys.instants_key(pane) for pane in pane_deltas):
        session_deltas |= panes.session_deltas(key)
    folded = fold(program, state, session_deltas, context)
    counters = folded_panes.counters
    counters.groups_touched = folded.counters.groups_touched
    counters.misfits = folded.counters.misfits
    return FoldResult(folded.changelog, _merge_upserts(panes.upserts, folded.upserts), counters)


def fold_time_sessions(
    program: Program, state: State, context: FoldContext, *, release: bool = False
) -> FoldResult:
    """Fold the work that time makes due; a session that closes is removed with its panes."""
    keys = SessionKeys.of(program.plan)
    assert keys is not None
    folded = fold_time(program, state, context, release=release)
    removals = Upserts([], [], [])
    for key in folded.closed:
        _remove_panes(program, state, keys, key, removals)
    for timer in folded.others:
        assert timer.namespace == PANE_LATE
        removals.timers.append((timer, False))
        if _remove_late_pane(program, state, keys, timer.key, removals):
            folded.counters.below_zero_delta -= 1
    folded.upserts = _merge_upserts(removals, folded.upserts)
    return folded


def _remove_panes(
    program: Program, state: State, keys: SessionKeys, session: Key, upserts: Upserts
) -> None:
    """Add the removal of a session's panes and instants to `upserts`."""
    instants_key = keys.instants_key(session)
    entries = state.entries(keys.instants, instants_key)
    instants = [at for at, _ in entries if session[keys.start] <= at < session[keys.end]]  # type: ignore[operator]
    for instant in instants:
        _remove_pane(program, state, keys.pane_key(session, instant), upserts)
    upserts.multisets.append((keys.instants, instants_key, dict.fromkeys(instants, 0)))


def _remove_late_pane(
    program: Program, state: State, keys: SessionKeys, pane: Key, upserts: Upserts
) -> bool:
    """Add the removal of a pane that waits for late rows to `upserts`; return if it does."""
    (group,) = state.groups([pane])
    waits = group is not None and group.cells[0] <= 0
    if waits:
        _remove_pane(program, state, pane, upserts)
        instants: Counts = {pane[keys.start]: 0}
        upserts.multisets.append((keys.instants, keys.instants_key(pane), instants))
    return waits


def _remove_pane(program: Program, state: State, pane: Key, upserts: Upserts) -> None:
    upserts.groups.append((pane, None))
    upserts.multisets += empty_multisets(program, state, pane)


def _merge_upserts(first: Upserts, then: Upserts) -> Upserts:
    return Upserts(
        first.groups + then.groups, first.multisets + then.multisets, first.timers + then.timers
    )


class _Panes:
    """The panes of a bundle's keys after the bundle, and the session deltas that follow."""

    def __init__(
        self,
        program: Program,
        state: State,
        keys: SessionKeys,
        pane_upserts: Upserts,
        closing: Closing | None,
    ) -> None:
        self.program = program
        self.state = state
        self.keys = keys
        self.closing = closing
        self.upserts = Upserts([], [], [])
        self._cells: dict[Key, tuple[Any, ...]] = {}
        self._changed: dict[tuple[int, Key], Counts] = {}
        self._row_counts: dict[Key, dict[Instant, int]] = {}  # of changed panes, by instants key
        for argument, pane, counts in pane_upserts.multisets:
            self._changed[argument, pane] = counts
        for pane, group in pane_upserts.groups:
            assert group is not None
            self._add_pane(pane, group)

    def _add_pane(self, pane: Key, group: Group) -> None:
        """Store a changed pane, or remove it if nothing of it is left.

        The fold keeps a withheld group in any case, so an empty pane is removed here.
        """
        instants_key = self.keys.instants_key(pane)
        self._row_counts.setdefault(instants_key, {})[pane[self.keys.start]] = group.cells[0]
        self._cells[pane] = group.cells
        if not any(group.cells) and not any(
            any(self._entries(pane, argument).values()) for argument in self.program.multisets
        ):
            _remove_pane(self.program, self.state, pane, self.upserts)
            return
        self.upserts.groups.append((pane, group))
        if group.cells[0] <= 0 and self.closing is not None:
            instant: Any = pane[self.keys.start]
            alone = self.keys.session_key(pane, (instant, instant + self.keys.gap))
            late = GroupTimer(Clock.EVENT, self.closing.closed_at(alone), PANE_LATE, pane)
            self.upserts.timers.append((late, True))
        for argument in self.program.multisets:
            changed = self._changed.get((argument, pane))
            if changed:
                self.upserts.multisets.append((argument, pane, changed))

    def session_deltas(self, instants_key: Key) -> dict[Key, Delta]:
        keys, row_counts = self.keys, self._row_counts.get(instants_key, {})
        if not row_counts:
            return {}
        self.upserts.multisets.append((keys.instants, instants_key, dict(row_counts)))
        stored: dict[Instant, int] = dict(self.state.entries(keys.instants, instants_key))
        rows_before = {at: rows for at, rows in stored.items() if rows > 0}
        present = sorted(at for at, rows in (stored | row_counts).items() if rows > 0)
        before, after = keys.find_sessions(sorted(rows_before)), keys.find_sessions(present)
        deltas: dict[Key, Delta] = {}
        for span in before:
            session = keys.session_key(instants_key, span)
            (group,) = self.state.groups([session])
            if span not in after:
                if group is not None:
                    deltas[session] = self._negate(session, group)
            elif group is not None:
                changed = [at for at in row_counts if span[0] <= at < span[1]]
                if changed:
                    deltas[session] = self._sum_of_changes(instants_key, changed, rows_before)
                after.pop(span)
        for span, instants in after.items():
            deltas[keys.session_key(instants_key, span)] = self._sum_of_panes(
                instants_key, instants
            )
        return deltas

    def _negate(self, session: Key, group: Group) -> Delta:
        """Return the delta that retracts a whole session."""
        return self._sum([(group.cells, -1, partial(self._stored_entries, session))])

    def _sum_of_changes(
        self, instants_key: Key, instants: Sequence[Instant], rows_before: Mapping[Instant, int]
    ) -> Delta:
        """Return how the bundle changes what the panes at these instants add to their session."""
        terms: list[Term] = []
        for instant in instants:
            pane = self.keys.pane_key(instants_key, instant)
            if instant in rows_before:
                (group,) = self.state.groups([pane])
                assert group is not None
                terms.append((group.cells, -1, partial(self._stored_entries, pane)))
            if self._cells[pane][0] > 0:
                terms.append((self._cells[pane], 1, partial(self._entries, pane)))
        return self._sum(terms)

    def _sum_of_panes(self, instants_key: Key, instants: Sequence[Instant]) -> Delta:
        """Return the sum of the panes at these instants, after the bundle."""
        panes = [self.keys.pane_key(instants_key, instant) for instant in instants]
        unchanged = [pane for pane in panes if pane not in self._cells]
        for pane, group in zip(unchanged, self.state.groups(unchanged), strict=True):
            assert group is not None
            self._cells[pane] = group.cells
        return self._sum([(self._cells[pane], 1, partial(self._entries, pane)) for pane in panes])

    def _sum(self, terms: Sequence[Term]) -> Delta:
        """Return the sum of cells and multisets, each times its sign."""
        total = self.program.empty_delta()
        for cells, sign, _ in terms:
            total[ROW_COUNT] += sign * cells[0]
            for index in range(1, len(self.program.cells)):
                total[FIRST_CELL + index - 1] += sign * cells[index]
        for argument in self.program.multisets:
            counts: Counts = {}
            by_rank: dict[Any, Value] = {}  # NaN is one value, in many objects
            for _, sign, entries in terms:
                for value, count in entries(argument).items():
                    same = by_rank.setdefault(rank(value), value)
                    counts[same] = counts.get(same, 0) + sign * count
            total[self.program.multiset_slot(argument)] = counts
        return total

    def _stored_entries(self, key: Key, argument: int) -> Counts:
        return dict(self.state.entries(argument, key))

    def _entries(self, pane: Key, argument: int) -> Counts:
        """Return the multiset of a pane after the bundle."""
        stored = self.state.entries(argument, pane)
        changed = self._changed.get((argument, pane), {})
        replaced = {rank(value) for value in changed}
        return {value: count for value, count in stored if rank(value) not in replaced} | changed
