"""Aggregate: the deltas of a bundle and the old groups become new groups and changelog rows.

    deltas ──► settle heads ──► touched multisets ──► cells, results ──► +I -U +U -D
                   ▲                    ▲                   │              │
              old groups         old multisets              │     upserts of the state
                                                            ▼              ▲
             time ──► withheld groups, windows, expiry ─────┴──────────────┘

One state read and one state write for each touched group, whatever the number of its rows. Under
the event clock, and in windows that are told when they are complete, rows go into cells and
multisets at once, and results are made when the time comes (`release`). Groups also end by
themselves: under a TTL when nobody writes them, in a window when that closes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from jobs.core.fold.group_results import NOTHING, Results, same_row
from jobs.core.fold.laws import BrokenLaw
from jobs.core.fold.program import (
    FIRST_CELL,
    FIRST_PLUS,
    HEADS,
    NEVER,
    ROW_COUNT,
    Cells,
    Delta,
    Program,
)
from jobs.core.fold.rules import FOR_EVER, Rules
from jobs.core.fold.state import (
    CLOSED,
    HIDDEN,
    SHOWN,
    UNSHOWN,
    WITHHELD,
    Counts,
    Group,
    GroupTimer,
    Key,
    State,
    Upserts,
)
from jobs.core.fold.timers import Clock
from jobs.core.fold.window_closing import COMPLETE, ENDED
from jobs.core.values.change import Op, Row
from schemas.limits import DROPPED_KEYS_NAMED_MAX

ChangelogRow = tuple[Op, Key, Row]
TTL = "ttl"  # the namespace of the timers that let groups expire
WITHHELD_EXPIRY_PARTS = 10
LAST = 1 << 62  # behind all times: the end of a bundle


@dataclass(slots=True)
class Counters:
    """What the fold noticed; sums over buckets and tasks make the epoch's counters."""

    groups_touched: int = 0
    dropped_retractions: int = 0
    dropped_keys: list[tuple[Key, int]] = field(default_factory=list)
    unmatched_retractions: int = 0
    misfits: int = 0
    expired: int = 0
    expired_silently: int = 0
    closed: int = 0


@dataclass(slots=True)
class Folded:
    """The outcome of one bundle over one state."""

    changelog: list[ChangelogRow]
    upserts: Upserts
    counters: Counters
    closed: list[Key] = field(default_factory=list)  # groups whose window has
    times: list[int] = field(default_factory=list)  # of `fold_time`: when each row was due


def fold(
    program: Program,
    state: State,
    deltas: Mapping[Key, Delta],
    *,
    order: Callable[[Key], Any],
    rules: Rules = FOR_EVER,
    now_ms: int = 0,
    watermark: int | None = None,
) -> Folded:
    """Fold a bundle into the state's groups; the state itself is not changed.

    Keys are taken in `order`, so that the same bundle gives the same rows. `now_ms` is when the
    groups are written, which only a TTL asks for; `watermark` is where it stood before the bundle,
    and what it made due is done.
    """
    counters = Counters(groups_touched=len(deltas))
    keys = sorted(deltas, key=order)
    groups = dict(zip(keys, state.groups(keys), strict=True))
    for key in keys:
        if deltas[key][HEADS] is not None and groups[key] is None:
            _drop_heads(program, key, deltas[key], counters)
    withheld = rules.withheld(keys, watermark)
    always = rules.refresh or rules.ttl_ms > 0
    touched = [
        key
        for key in keys
        if (
            _begins(deltas[key])
            if groups[key] is None and key in withheld
            else always or not _idle(program, deltas[key])
        )
    ]
    stored = [
        _stored(program, state, argument, touched, deltas, groups) for argument in program.multisets
    ]
    folding = _Folding(program, state, counters, rules, now_ms, watermark)
    for key in touched:
        take = folding.withhold if key in withheld else folding.group
        take(key, groups[key], deltas[key], stored)
    counters.misfits = folding.results.misfits[0]
    return Folded(folding.changelog, folding.upserts, counters)


def fold_time(
    program: Program,
    state: State,
    *,
    order: Callable[[Key], Any],
    rules: Rules = FOR_EVER,
    now_ms: int = 0,
    release: bool = False,
    watermark: int | None = None,
) -> Folded:
    """Fold what time alone makes due, in the order of (time, key): windows that `watermark`
    completes or closes, groups whose TTL has passed at `now_ms`, and last with `release` the
    results that were withheld."""
    passed: dict[Key, list[GroupTimer]] = {}
    if rules.closing is not None and watermark is not None:
        for timer in state.due(Clock.EVENT, watermark):
            passed.setdefault(timer.key, []).append(timer)
    expiring: dict[Key, list[GroupTimer]] = {}
    if rules.ttl_ms:
        for timer in state.due(Clock.PROCESSING, now_ms):
            if timer.namespace == TTL:
                expiring.setdefault(timer.key, []).append(timer)
    released = set(state.withheld()) if release else set()
    released -= rules.incomplete(released, watermark)
    found = list(released.union(passed, expiring))
    groups = dict(zip(found, state.groups(found), strict=True))

    def due_at(key: Key) -> int:
        group = groups[key]
        if key in passed:
            return passed[key][0].time
        if key in expiring and group is not None:  # its timer may be older than its last write
            return (group.written or 0) + rules.ttl_ms
        return LAST

    turns = sorted((due_at(key), order(key), key) for key in found)
    counters = Counters(groups_touched=len(turns))
    folding = _Folding(program, state, counters, rules, now_ms, watermark)
    times: list[int] = []
    for time, _, key in turns:
        group = groups[key]
        after = folding.after_window(key, group, passed.get(key, ()))
        after = folding.after_timers(key, after, expiring.get(key, ()))
        if after is not None and after.withheld and key in released:
            after = folding.release(key, after)
        if after is not group:
            folding.upserts.groups.append((key, after))
        times += repeat(time, len(folding.changelog) - len(times))
    folding.upserts.timers = list(dict(folding.upserts.timers).items())  # the last word on each
    counters.misfits = folding.results.misfits[0]
    return Folded(folding.changelog, folding.upserts, counters, folding.closed, times)


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


def _begins(delta: Delta) -> bool:
    """Whether a delta begins a group that is withheld: an accumulate does, even if nothing of it
    is left."""
    return bool(delta[FIRST_PLUS] < NEVER)


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

    def __init__(
        self,
        program: Program,
        state: State,
        counters: Counters,
        rules: Rules,
        now_ms: int,
        watermark: int | None,
    ) -> None:
        self.program = program
        self.state = state
        self.counters = counters
        self.rules = rules
        self.refresh = rules.refresh
        self.closing = rules.closing
        self.timed = rules.ttl_ms > 0 or self.closing is not None
        self.now_ms = now_ms
        self.watermark = watermark
        self.changelog: list[ChangelogRow] = []
        self.upserts = Upserts([], [], [])
        self.slots = [
            (argument, program.multiset_slot(argument), argument in program.settled)
            for argument in program.multisets
        ]
        self.results = Results(program, state)
        self.rows = program.rows
        self.closed: list[Key] = []
        self.no_result: Row = (None,) * len(program.plan.kept)

    # --- rows -----------------------------------------------------------------------------------

    def group(
        self, key: Key, old: Group | None, delta: Delta, stored: Sequence[Iterator[Counts]]
    ) -> None:
        """Fold one group: its cells, its entries, its result and what the changelog says."""
        program = self.program
        if old is not None and old.withheld:
            raise BrokenLaw(f"the changes of {key!r} are withheld, and were not released")
        count = 0 if old is None else old.cells[0]
        gone = min(count, 0) - min(count + delta[ROW_COUNT], 0)
        lasting = count + delta[ROW_COUNT] != 0
        results = self.results
        results.begin(key)
        for (argument, slot, settled), multisets in zip(self.slots, stored, strict=True):
            known = NOTHING if old is None else next(multisets)
            shown = program.shown(argument, None if old is None else old.result)
            touch = program.touch[argument]
            changed, largest, smallest, lost, grown = (
                touch(delta[slot], known, *shown, delta)
                if settled
                else touch(delta[slot], known, *shown)
            )
            gone = max(gone, grown)
            if lasting:
                if changed:
                    self.upserts.multisets.append((argument, key, changed))
                results.see(argument, changed, largest, smallest, lost)
        if not lasting:
            if old is not None:
                self._end(key, old, announce=True)
                self.upserts.groups.append((key, None))
            return
        cells = program.merge(None if old is None else old.cells, delta)
        self.counters.unmatched_retractions += max(gone, 0)
        result = results.of(cells)
        if self.rows is not None:
            result, held = self._told(key, program.row(old), result)
            self.upserts.groups.append((key, self._written(key, old, cells, result, held)))
            return
        group = self._written(key, old, cells, result) if self.timed else Group(cells, result)
        self.upserts.groups.append((key, group))
        if old is None:
            self.changelog.append((Op.INSERT, key, result))
        elif self.refresh or not same_row(old.result, result, floating=program.floating_results):
            self.changelog.append((Op.UPDATE_BEFORE, key, old.result))
            self.changelog.append((Op.UPDATE_AFTER, key, result))

    def withhold(
        self, key: Key, old: Group | None, delta: Delta, stored: Sequence[Iterator[Counts]]
    ) -> None:
        """Fold one group and say nothing yet. It stays at a row count of 0 too: until the bundle
        ends it has an accumulator, which later retractions find."""
        program = self.program
        count = 0 if old is None else old.cells[0]
        gone = min(count, 0) - min(count + delta[ROW_COUNT], 0)
        for (argument, slot, settled), multisets in zip(self.slots, stored, strict=True):
            known = NOTHING if old is None else next(multisets)
            touch = program.touch[argument]
            changed, _, _, _, grown = (
                touch(delta[slot], known, None, None, delta)
                if settled
                else touch(delta[slot], known, None, None)
            )
            gone = max(gone, grown)
            if changed:
                self.upserts.multisets.append((argument, key, changed))
        cells = program.merge(None if old is None else old.cells, delta)
        self.counters.unmatched_retractions += max(gone, 0)
        unshown = old is None or old.held in (UNSHOWN, HIDDEN)
        result = self.no_result if old is None else old.result
        held = UNSHOWN if unshown else WITHHELD
        self.upserts.groups.append((key, self._written(key, old, cells, result, held)))

    def _written(
        self, key: Key, old: Group | None, cells: Cells, result: Row, held: int = SHOWN
    ) -> Group:
        """The group as this bundle leaves it. One of a window that closes has timers from its
        beginning. Under a TTL it has one, which may be early: then it is set anew, so that a write
        costs none."""
        if old is None and self.closing is not None:
            timers = self.closing.timers(key, self.watermark)
            self.upserts.timers += [(timer, True) for timer in timers]
        if not self.rules.ttl_ms:
            return Group(cells, result, held)
        due = self.now_ms + self.rules.ttl_ms
        timer = None if old is None else old.timer
        if timer is None or timer > due:  # none yet, or of a longer TTL
            self._set_timer(key, timer, due)
            timer = due
        return Group(cells, result, held, self.now_ms, timer)

    def _set_timer(self, key: Key, before: int | None, after: int | None) -> None:
        for time, is_set in ((before, False), (after, True)):
            if time is not None:
                timer = GroupTimer(Clock.PROCESSING, time, TTL, key)
                self.upserts.timers.append((timer, is_set))

    # --- time -----------------------------------------------------------------------------------

    def after_window(
        self, key: Key, group: Group | None, timers: Sequence[GroupTimer]
    ) -> Group | None:
        """The group once the watermark has passed what it waited for: told, or closed, for which
        it says its last word before."""
        self.upserts.timers += [(timer, False) for timer in timers]
        if not timers or group is None:
            return group
        assert self.closing is not None
        assert self.watermark is not None
        reached = {timer.namespace for timer in timers}
        closed_at = self.closing.closed_at(key)
        closes = closed_at <= self.watermark
        if group.withheld and (closes or (COMPLETE in reached and not self.rules.withhold)):
            told = self.release(key, group)
            if told is None:
                return None
            group = told
        if closes:
            self.counters.closed += 1
            self.closed.append(key)
            self._end_entries(key)
            return None if group.held == HIDDEN else Group(group.cells, group.result, CLOSED)
        if ENDED in reached:  # by a shorter allowed lateness than there is now
            timer = GroupTimer(Clock.EVENT, closed_at, ENDED, key)
            self.upserts.timers.append((timer, True))
        return group

    def after_timers(
        self, key: Key, group: Group | None, timers: Iterable[GroupTimer]
    ) -> Group | None:
        """The group once its timers have fired: as it was, with a later one, or gone. What is
        withheld does not expire; it is looked at again in a part of the TTL."""
        for timer in timers:
            self.upserts.timers.append((timer, False))
            if group is None or timer.time != group.timer:
                continue
            ttl, written = self.rules.ttl_ms, group.written or 0
            due = written + ttl
            if group.withheld:
                due = max(due, self.now_ms + ttl // WITHHELD_EXPIRY_PARTS + 1)
            if due > self.now_ms:
                self._set_timer(key, None, due)
                group = Group(group.cells, group.result, group.held, written, due)
            else:
                self._expire(key, group)
                group = None
        return group

    def _expire(self, key: Key, group: Group) -> None:
        self.counters.expired += 1
        row = self.program.row(group)
        if row is not None and self.rules.emit_expired:
            self.changelog.append((Op.DELETE, key, row))
        elif row is not None:
            self.counters.expired_silently += 1
        self._end_entries(key)

    def release(self, key: Key, group: Group) -> Group | None:
        """The group once its net change since it was last emitted is told."""
        before = self.program.row(group)
        if group.cells[0] == 0:
            self._end(key, group, announce=before is not None)
            return None
        result = self.results.stored(key, group.cells)
        if self.rows is not None:
            result, held = self._told(key, before, result)
            return Group(group.cells, result, held, group.written, group.timer)
        floating = self.program.floating_results
        if before is None:
            self.changelog.append((Op.INSERT, key, result))
        elif self.refresh or not same_row(before, result, floating=floating):
            self.changelog.append((Op.UPDATE_BEFORE, key, before))
            self.changelog.append((Op.UPDATE_AFTER, key, result))
        return Group(group.cells, result, SHOWN, group.written, group.timer)

    # --- both ------------------------------------------------------------------------------------

    def _told(self, key: Key, before: Row | None, aggregates: Row) -> tuple[Row, int]:
        """What is stored of a group's result, and whether it has a row, where the query has HAVING
        or expressions over aggregates; what has changed of the row is told."""
        assert self.rows is not None
        stored, passes = self.rows.stored(key, aggregates, self.results.misfits)
        after = self.rows.row(stored) if passes else None
        if before is None or after is None:
            if after is not None:
                self.changelog.append((Op.INSERT, key, after))
            elif before is not None:
                self.changelog.append((Op.DELETE, key, before))
        elif self.refresh or not same_row(before, after, floating=self.program.floating_results):
            self.changelog.append((Op.UPDATE_BEFORE, key, before))
            self.changelog.append((Op.UPDATE_AFTER, key, after))
        return stored, SHOWN if passes else HIDDEN

    def _end(self, key: Key, old: Group, *, announce: bool) -> None:
        """A group that ends takes all of its entries along, unmatched ones too, and its timer."""
        row = self.program.row(old)
        if announce and row is not None:
            self.changelog.append((Op.DELETE, key, row))
        if old.timer is not None:
            self._set_timer(key, old.timer, None)
        self._end_entries(key)

    def _end_entries(self, key: Key) -> None:
        self.upserts.multisets += emptied(self.program, self.state, key)


def emptied(program: Program, state: State, key: Key) -> Iterator[tuple[int, Key, Counts]]:
    """The multisets of a group as it leaves them when it ends: no entry stays."""
    for argument in program.multisets:
        entries = state.entries(argument, key)
        if entries:
            yield argument, key, {value: 0 for value, _ in entries}
