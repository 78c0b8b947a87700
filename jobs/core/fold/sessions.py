"""Sessions: windows that end when a gap passes without a row; they grow, merge and split again.

    rows ──gather──► deltas by instant ──fold──► panes: what the rows of one instant add up to
                           │                       │
          instants of a key, before and after ─────┴──► deltas of sessions ──fold──► changelog

A session is a group like any other, with its accumulator and its multisets. Beside it the state
keeps a pane for each instant, from which sessions are put together and taken apart: that is what
lets a retraction split one. The pane's key has the instant and no end; the instants of a key are a
multiset under a key without either, so a key's sessions can be told from its entries alone.

A session whose bounds stay takes the deltas of its panes. One that gets other bounds is another
group: what it was goes, and what its panes add up to comes, so it costs as much as it is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.fold.fold import Folded, emptied, fold, fold_time
from jobs.core.fold.program import FIRST_CELL, ROW_COUNT, Delta, Program
from jobs.core.fold.rules import FOR_EVER, Rules
from jobs.core.fold.state import Counts, Group, Key, State, Upserts, rank
from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.values.change import Value

Instant = Any  # a value of the window's start
Span = tuple[Instant, Instant]  # a session's first instant, and its end
_PANES = Rules(withhold=True)  # nobody is told of them


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The three kinds of keys that the state of sessions has."""

    start: int  # the places of the bounds in a key
    end: int
    gap: int  # in values of the bounds
    instants: int  # the argument under whose number the instants of a key are kept

    @classmethod
    def of(cls, plan: Plan) -> SessionKeys | None:
        """None for a query without sessions."""
        window, instants = plan.window, plan.instants
        if window is None or instants is None:
            return None
        bounds = [each.expression for each in plan.group]
        start, end = (
            next(i for i, b in enumerate(bounds) if isinstance(b, WindowBound) and b.end is is_end)
            for is_end in (False, True)
        )
        return cls(start, end, window.size_ms * window.unit, instants)

    def of_instants(self, key: Key) -> Key:
        return self._bounded(key, None, None)

    def of_pane(self, key: Key, instant: Instant) -> Key:
        return self._bounded(key, instant, None)

    def of_session(self, key: Key, span: Span) -> Key:
        return self._bounded(key, *span)

    def spans(self, instants: Iterable[Instant]) -> dict[Span, list[Instant]]:
        """The sessions of instants in their order: one goes on while no gap has passed."""
        sessions: list[list[Instant]] = []
        for instant in instants:
            if sessions and instant - sessions[-1][-1] <= self.gap:
                sessions[-1].append(instant)
            else:
                sessions.append([instant])
        return {(found[0], found[-1] + self.gap): found for found in sessions}

    def _bounded(self, key: Key, start: Value, end: Value) -> Key:
        values = list(key)
        values[self.start], values[self.end] = start, end
        return tuple(values)


def fold_of(program: Program) -> Callable[..., Folded]:
    """How the bundles of a query are folded."""
    return fold if SessionKeys.of(program.plan) is None else fold_sessions


def fold_time_of(program: Program) -> Callable[..., Folded]:
    """How a query folds what time alone makes due."""
    return fold_time if SessionKeys.of(program.plan) is None else fold_time_sessions


def fold_sessions(
    program: Program,
    state: State,
    deltas: Mapping[Key, Delta],
    *,
    order: Callable[[Key], Any],
    rules: Rules = FOR_EVER,
    now_ms: int = 0,
    watermark: int | None = None,
) -> Folded:
    """Fold a bundle whose rows come each as a session of its own, from its instant to its end."""
    keys = SessionKeys.of(program.plan)
    assert keys is not None
    panes = {keys.of_pane(key, key[keys.start]): delta for key, delta in deltas.items()}
    folded_panes = fold(program, state, panes, order=order, rules=_PANES)
    after = _Panes(program, state, keys, panes, folded_panes.upserts)
    of_sessions: dict[Key, Delta] = {}
    for key in dict.fromkeys(keys.of_instants(pane) for pane in panes):
        of_sessions |= after.session_deltas(key)
    folded = fold(
        program, state, of_sessions,
        order=order, rules=rules, now_ms=now_ms, watermark=watermark,
    )  # fmt: skip
    counters = folded_panes.counters
    counters.groups_touched = folded.counters.groups_touched
    counters.misfits = folded.counters.misfits
    return Folded(folded.changelog, _together(after.upserts, folded.upserts), counters)


def fold_time_sessions(program: Program, state: State, **passing: Any) -> Folded:
    """Fold what time makes due: a session that closes takes its panes along."""
    keys = SessionKeys.of(program.plan)
    assert keys is not None
    folded = fold_time(program, state, **passing)
    gone = Upserts([], [], [])
    for key in folded.closed:
        _forget_panes(program, state, keys, key, gone)
    folded.upserts = _together(gone, folded.upserts)
    return folded


def _forget_panes(
    program: Program, state: State, keys: SessionKeys, session: Key, gone: Upserts
) -> None:
    of_key = keys.of_instants(session)
    entries = state.entries(keys.instants, of_key)
    instants = [at for at, _ in entries if session[keys.start] <= at < session[keys.end]]  # type: ignore[operator]
    for instant in instants:
        _end_pane(program, state, keys.of_pane(session, instant), gone)
    gone.multisets.append((keys.instants, of_key, dict.fromkeys(instants, 0)))


def _end_pane(program: Program, state: State, pane: Key, gone: Upserts) -> None:
    gone.groups.append((pane, None))
    gone.multisets += emptied(program, state, pane)


def _together(first: Upserts, then: Upserts) -> Upserts:
    return Upserts(
        first.groups + then.groups, first.multisets + then.multisets, first.timers + then.timers
    )


class _Panes:
    """The panes of a bundle's keys as it leaves them, and what that does to sessions."""

    def __init__(
        self,
        program: Program,
        state: State,
        keys: SessionKeys,
        deltas: Mapping[Key, Delta],
        folded: Upserts,
    ) -> None:
        self.program = program
        self.state = state
        self.keys = keys
        self.deltas = deltas
        self.upserts = Upserts([], [], [])
        self._cells: dict[Key, tuple[Any, ...]] = {}
        self._changed: dict[tuple[int, Key], Counts] = {}
        self._touched: dict[Key, dict[Instant, int]] = {}  # by key: rows of its instants
        for argument, pane, changed in folded.multisets:
            self._changed[argument, pane] = changed
        for pane, group in folded.groups:
            assert group is not None
            self._take(pane, group)

    def _take(self, pane: Key, group: Group) -> None:
        """A pane that nothing is left of goes; the fold would keep it for its bundle's end."""
        of_key = self.keys.of_instants(pane)
        self._touched.setdefault(of_key, {})[pane[self.keys.start]] = group.cells[0]
        self._cells[pane] = group.cells
        if group.cells[0] == 0:
            _end_pane(self.program, self.state, pane, self.upserts)
            return
        self.upserts.groups.append((pane, group))
        for argument in self.program.multisets:
            changed = self._changed.get((argument, pane))
            if changed:
                self.upserts.multisets.append((argument, pane, changed))

    def session_deltas(self, of_key: Key) -> dict[Key, Delta]:
        """What a bundle does to the sessions of one key."""
        keys, touched = self.keys, self._touched.get(of_key, {})
        if not touched:
            return {}
        self.upserts.multisets.append((keys.instants, of_key, dict(touched)))
        stored: dict[Instant, int] = dict(self.state.entries(keys.instants, of_key))
        present = sorted(at for at, rows in (stored | touched).items() if rows)
        before, after = keys.spans(stored), keys.spans(present)
        found: dict[Key, Delta] = {}
        for span in before:
            session = keys.of_session(of_key, span)
            (group,) = self.state.groups([session])
            if span not in after:
                if group is not None:
                    found[session] = self._taken_back(session, group)
            elif group is not None:
                moved = [at for at in touched if span[0] <= at < span[1]]
                if moved:
                    found[session] = self._sum_of_deltas(of_key, moved)
                after.pop(span)
        for span, instants in after.items():
            found[keys.of_session(of_key, span)] = self._sum_of_panes(of_key, instants)
        return found

    def _taken_back(self, session: Key, group: Group) -> Delta:
        """All of a session, with the sign turned."""
        delta = self.program.beginning()
        self._add(delta, group.cells, -1)
        for argument in self.program.multisets:
            entries = self.state.entries(argument, session)
            delta[self.program.multiset_slot(argument)] = {value: -n for value, n in entries}
        return delta

    def _sum_of_deltas(self, of_key: Key, instants: Sequence[Instant]) -> Delta:
        total = self.program.beginning()
        deltas = [self.deltas[self.keys.of_pane(of_key, instant)] for instant in instants]
        for delta in deltas:
            self._add(total, (delta[ROW_COUNT], *delta[FIRST_CELL:]), 1)
        for argument in self.program.multisets:
            slot = self.program.multiset_slot(argument)
            total[slot] = _sum(delta[slot] for delta in deltas)
        return total

    def _sum_of_panes(self, of_key: Key, instants: Sequence[Instant]) -> Delta:
        total = self.program.beginning()
        panes = [self.keys.of_pane(of_key, instant) for instant in instants]
        untouched = [pane for pane in panes if pane not in self._cells]
        for pane, group in zip(untouched, self.state.groups(untouched), strict=True):
            assert group is not None
            self._cells[pane] = group.cells
        for pane in panes:
            self._add(total, self._cells[pane], 1)
        for argument in self.program.multisets:
            slot = self.program.multiset_slot(argument)
            total[slot] = _sum(self._entries(argument, pane) for pane in panes)
        return total

    def _entries(self, argument: int, pane: Key) -> Counts:
        """The multiset of a pane as the bundle leaves it."""
        stored = self.state.entries(argument, pane)
        changed = self._changed.get((argument, pane), {})
        gone = {rank(value) for value in changed}
        return {value: count for value, count in stored if rank(value) not in gone} | changed

    def _add(self, delta: Delta, cells: Sequence[Any], sign: int) -> None:
        delta[ROW_COUNT] += sign * cells[0]
        for place in range(1, len(self.program.cells)):
            delta[FIRST_CELL + place - 1] += sign * cells[place]


def _sum(multisets: Iterable[Counts]) -> Counts:
    total: Counts = {}
    known: dict[Any, Value] = {}  # NaN is one value, in many objects
    for counts in multisets:
        for value, count in counts.items():
            same = known.setdefault(rank(value), value)
            total[same] = total.get(same, 0) + count
    return total
