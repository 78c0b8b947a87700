"""Fold: combine a bundle's deltas with the stored groups into new groups and changelog rows.

    deltas ──► update multisets ──► cells, results ──► +I -U +U -D
                      ▲                   │                 │
             old groups, multisets        │        upserts of the state
                                          ▼                 ▲
    time ──► withheld groups, windows, expiry ──────────────┘

A group is state as long as a cell or an entry of it is not zero, and it has a row while its row
count is above 0. A group of `empty_keys` always has its row, once `open_groups` has emitted it.
So changes may come in any order: a retraction that comes before its row takes the group below zero,
and the row brings it back. With `drop_early` the fold drops the retractions
before the first row of a group instead, as Flink does.

The fold reads and writes the state once for each changed group, however many rows the group has.
Under the event clock, and in windows that emit when they are complete, the fold adds rows to cells
and multisets at once and computes the results when they are due (`release`). Time ends groups too:
a TTL ends groups without new rows, and a window ends its groups when it closes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

from jobs.core.fold.emission import emit_change
from jobs.core.fold.group_results import (
    CLASS,
    NO_COUNTS,
    GroupResults,
    empty_multisets,
    is_same_row,
    read_multisets,
)
from jobs.core.fold.laws import BrokenLaw
from jobs.core.fold.program import (
    HEADS,
    ROW_COUNT,
    Cells,
    Delta,
    MultisetChange,
    Program,
    drop_heads,
    is_empty,
    starts_group,
)
from jobs.core.fold.rules import DEFAULT_RULES, Rules
from jobs.core.fold.state import Clock, Counts, Group, GroupTimer, Key, State, Upserts, rank
from jobs.core.fold.visibility import Action, next_visibility
from jobs.core.fold.window_closing import CLOSED, COMPLETE
from jobs.core.values.change import Op, Row, Value
from schemas.limits import DROPPED_KEYS_NAMED_MAX, KEYS_BELOW_ZERO_NAMED_MAX, WITHHELD_EXPIRY_PARTS

ChangelogRow = tuple[Op, Key, Row]
TTL = "ttl"  # the namespace of the timers that let groups expire
END_OF_BUNDLE = 1 << 62  # later than every time


@dataclass(slots=True)
class Counters:
    """The counters of one fold; the epoch's counters are their sums over buckets and tasks."""

    groups_touched: int = 0
    dropped_retractions: int = 0
    dropped_keys: list[tuple[Key, int]] = field(default_factory=list)
    below_zero_delta: int = 0  # additional groups in the state without a row
    keys_below_zero: list[Key] = field(default_factory=list)  # of these, the first ones
    unmatched_retractions: int = 0
    misfits: int = 0
    expired: int = 0
    expired_silently: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class FoldContext:
    """The inputs of a fold besides its program, its state and its deltas."""

    order: Callable[[Key], Any]  # of keys, so that the same bundle gives the same rows
    rules: Rules = DEFAULT_RULES
    now_ms: int = 0  # processing time, which a TTL uses, and timers of classes
    watermark: int | None = None  # work that it made due is done by earlier epochs


@dataclass(slots=True)
class FoldResult:
    """The outcome of one bundle over one state."""

    changelog: list[ChangelogRow]
    upserts: Upserts
    counters: Counters
    closed: list[Key] = field(default_factory=list)  # groups of closed windows
    times: list[int] = field(default_factory=list)  # from `fold_time`: when each row was due
    others: list[GroupTimer] = field(default_factory=list)  # due timers of no window or TTL


def fold(
    program: Program, state: State, deltas: Mapping[Key, Delta], context: FoldContext
) -> FoldResult:
    """Fold a bundle into the state's groups, and return the changes; the state is read-only."""
    rules = context.rules
    counters = Counters(groups_touched=len(deltas))
    keys = sorted(deltas, key=context.order)
    groups = dict(zip(keys, state.groups(keys), strict=True))
    if rules.drop_early:
        for key in keys:
            if deltas[key][HEADS] is not None and groups[key] is None:
                dropped = drop_heads(program, deltas[key])
                counters.dropped_retractions += dropped
                if dropped and len(counters.dropped_keys) < DROPPED_KEYS_NAMED_MAX:
                    counters.dropped_keys.append((key, dropped))
    withheld = rules.find_withheld(keys, context.watermark)
    always = rules.refresh or rules.ttl_ms > 0
    changed = [
        key
        for key in keys
        if (
            starts_group(deltas[key])
            if rules.drop_early and groups[key] is None and key in withheld
            else always
            or not is_empty(program, deltas[key])
            or (groups[key] is None and key in program.plan.empty_keys)
        )
    ]
    stored = [
        read_multisets(program, state, argument, changed, deltas, groups)
        for argument in program.multisets
    ]
    groups_fold = _GroupsFold(program, state, counters, context)
    for key in changed:
        fold_group = groups_fold.withhold if key in withheld else groups_fold.emit
        fold_group(key, groups[key], deltas[key], stored)
    counters.misfits = groups_fold.results.misfits[0]
    return FoldResult(groups_fold.changelog, groups_fold.upserts, counters)


def open_groups(
    program: Program, state: State, keys: Iterable[Key], context: FoldContext
) -> FoldResult:
    """Emit the rows that groups have without input, unless the state has these groups."""
    deltas = {key: program.empty_delta() for key in keys}
    rules = replace(context.rules, withhold=False)
    return fold(program, state, deltas, replace(context, rules=rules))


def fold_time(
    program: Program, state: State, context: FoldContext, *, release: bool = False
) -> FoldResult:
    """Fold the work that becomes due without rows, in the order of (time, key).

    The work is timers of operators' classes, windows that the watermark completes or closes, groups
    whose TTL has passed, and last, with `release`, the withheld results.
    """
    rules, watermark = context.rules, context.watermark
    window_timers, class_timers, ttl_timers = (dict[Key, list[GroupTimer]]() for _ in range(3))
    others: list[GroupTimer] = []
    kinds = {COMPLETE: window_timers, CLOSED: window_timers, CLASS: class_timers, TTL: ttl_timers}
    timers: list[GroupTimer] = []
    if (rules.closing is not None or program.clock is Clock.EVENT) and watermark is not None:
        timers += state.due(Clock.EVENT, watermark)
    if rules.ttl_ms or program.clock is Clock.PROCESSING:
        timers += state.due(Clock.PROCESSING, context.now_ms)
    for timer in timers:
        if (known := kinds.get(timer.namespace)) is None:
            others.append(timer)
        else:
            known.setdefault(timer.key, []).append(timer)
    released = set(state.withheld()) if release else set()
    released -= rules.find_incomplete(released, watermark)
    keys = list(released.union(window_timers, class_timers, ttl_timers))
    groups = dict(zip(keys, state.groups(keys), strict=True))

    def due_at(key: Key) -> int:
        group = groups[key]
        if key in window_timers or key in class_timers:
            return min(each[key][0].time for each in (window_timers, class_timers) if key in each)
        if key in ttl_timers and group is not None:  # its timer may be older than its last write
            return (group.written or 0) + rules.ttl_ms
        return END_OF_BUNDLE

    due = sorted((due_at(key), context.order(key), key) for key in keys)
    counters = Counters(groups_touched=len(due))
    groups_fold = _GroupsFold(program, state, counters, context)
    times: list[int] = []
    for time, _, key in due:
        old = groups[key]
        # A group expires by its timer, which is later than its TTL if the spec has shortened that.
        expires = key in ttl_timers and rules.has_expired(old, context.now_ms)
        fires = key in window_timers or not expires
        new = groups_fold.fire_class_timers(key, old, class_timers.get(key, ()), fires=fires)
        new = groups_fold.fire_window_timers(key, new, window_timers.get(key, ()))
        new = groups_fold.fire_ttl_timers(key, new, ttl_timers.get(key, ()))
        if new is not None and new.withheld and key in released:
            new = groups_fold.release(key, new)
        if new is not old:
            groups_fold.put_group(key, old, new)
        times += repeat(time, len(groups_fold.changelog) - len(times))
    upserts = groups_fold.upserts
    upserts.timers = list(dict(upserts.timers).items())  # of several changes of a timer the last
    counters.misfits = groups_fold.results.misfits[0]
    return FoldResult(groups_fold.changelog, upserts, counters, groups_fold.closed, times, others)


class _GroupsFold:
    """Folds group after group; collects their changelog rows, upserts and counters."""

    def __init__(
        self, program: Program, state: State, counters: Counters, context: FoldContext
    ) -> None:
        rules = context.rules
        self.program = program
        self.state = state
        self.counters = counters
        self.rules = rules
        self.refresh = rules.refresh
        self.closing = rules.closing
        self.has_timers = rules.ttl_ms > 0 or self.closing is not None
        self.now_ms = context.now_ms
        self.watermark = context.watermark
        self.changelog: list[ChangelogRow] = []
        self.upserts = Upserts([], [], [])
        self.multiset_updates = list(program.update_multiset.items())
        self.results = GroupResults(program, state, context.now_ms, context.watermark)
        self.rows = program.rows
        self.closed: list[Key] = []
        self.null_result: Row = (None,) * len(program.plan.kept_results)

    # --- rows -----------------------------------------------------------------------------------

    def emit(
        self, key: Key, old: Group | None, delta: Delta, stored: Sequence[Iterator[Counts]]
    ) -> None:
        """Fold one group: its cells, its entries, its result and its changelog rows."""
        if old is not None and old.withheld:
            raise BrokenLaw(f"changes of {key!r} are withheld; release them before the fold")
        results = self.results
        timer = results.find_timer(key, old)
        results.begin(key)
        changes, cells, unmatched = self._merge(key, old, delta, stored, find_extremes=True)
        if self._has_ended(key, old, cells, changes):
            if old is not None:
                self._end_group(key, old, timer)
                self.put_group(key, old, None)
            return
        for argument, change in changes:
            if change.counts:
                self.upserts.multisets.append((argument, key, change.counts))
            results.find_extremes(argument, change)
        self.counters.unmatched_retractions += max(unmatched, 0)
        result, action = self._emit_row(key, old, cells, results.compute(cells), timer)
        if action is Action.EMIT and not self.has_timers:
            group = Group(cells, result, timer=results.next_timer)
        else:
            group = self._make_group(key, old, cells, result, action)
        self.put_group(key, old, group)

    def withhold(
        self, key: Key, old: Group | None, delta: Delta, stored: Sequence[Iterator[Counts]]
    ) -> None:
        """Fold one group without emitting.

        The group stays in the state even if nothing is left of it: until the bundle ends, its last
        row is still to be retracted.
        """
        changes, cells, unmatched = self._merge(key, old, delta, stored, find_extremes=False)
        for argument, change in changes:
            if change.counts:
                self.upserts.multisets.append((argument, key, change.counts))
        self.counters.unmatched_retractions += max(unmatched, 0)
        result = self.null_result if old is None else old.result
        if self.rules.ttl_ms:
            self.upserts.timers += self.results.remove_timer(key, old)
        self.results.keep_timer(old)
        self.put_group(key, old, self._make_group(key, old, cells, result, Action.WITHHOLD))

    def _merge(
        self,
        key: Key,
        old: Group | None,
        delta: Delta,
        stored: Sequence[Iterator[Counts]],
        *,
        find_extremes: bool,
    ) -> tuple[list[tuple[int, MultisetChange]], Cells, int]:
        """Return the changes of a group's multisets, its new cells, and what sank below zero."""
        program = self.program
        count = 0 if old is None else old.cells[0]
        unmatched = min(count, 0) - min(count + delta[ROW_COUNT], 0)
        changes = []
        for (argument, update_multiset), multisets in zip(
            self.multiset_updates, stored, strict=True
        ):
            counts = NO_COUNTS if old is None else next(multisets)
            extremes: tuple[Value, Value] = (None, None)
            if find_extremes:
                extremes = program.emitted_extremes(argument, None if old is None else old.result)
            change = update_multiset(delta, counts, *extremes)
            unmatched = max(unmatched, change.unmatched)
            changes.append((argument, change))
        return changes, program.merge(None if old is None else old.cells, delta), unmatched

    def _has_ended(
        self,
        key: Key,
        old: Group | None,
        cells: Cells,
        changes: Sequence[tuple[int, MultisetChange]],
    ) -> bool:
        """Return whether nothing of a group is left after these changes."""
        if cells[0] != 0 or key in self.program.plan.empty_keys:
            return False
        if self.rules.drop_early:
            return True
        if any(cells) or any(any(change.counts.values()) for _, change in changes):
            return False
        if old is None:
            return True
        gone = {argument: {rank(value) for value in change.counts} for argument, change in changes}
        return not any(
            rank(value) not in gone.get(argument, ())
            for argument in self.program.multisets
            for value, _ in self.state.entries(argument, key)
        )

    def put_group(self, key: Key, old: Group | None, new: Group | None) -> None:
        """Store a group, and count it if it becomes or no longer is state without a row."""
        is_below = self._is_below_zero(key, new)
        if is_below != self._is_below_zero(key, old):
            self.counters.below_zero_delta += 1 if is_below else -1
            if is_below and len(self.counters.keys_below_zero) < KEYS_BELOW_ZERO_NAMED_MAX:
                self.counters.keys_below_zero.append(key)
        self.upserts.groups.append((key, new))

    def _is_below_zero(self, key: Key, group: Group | None) -> bool:
        if group is None or self.rules.drop_early or group.cells[0] > 0:
            return False
        return any(group.cells) or not (group.withheld or key in self.program.plan.empty_keys)

    def _has_rows(self, key: Key, cells: Cells) -> bool:
        if key in self.program.plan.empty_keys:
            return True
        return cells[0] != 0 if self.rules.drop_early else cells[0] > 0

    def _make_group(
        self, key: Key, old: Group | None, cells: Cells, result: Row, action: Action
    ) -> Group:
        """Return the group after this bundle, and set its timers.

        A new group of a closing window gets its timers at once. Under a TTL a group has one timer,
        which may be early: when it fires it is set again, so a write to the group costs no timer.
        """
        visibility = next_visibility(None if old is None else old.visibility, action)
        assert visibility is not None
        if old is None and self.closing is not None:
            timers = self.closing.timers(key, self.watermark)
            self.upserts.timers += [(timer, True) for timer in timers]
        if not self.rules.ttl_ms:
            return Group(cells, result, visibility, timer=self.results.next_timer)
        due = self.now_ms + self.rules.ttl_ms
        timer = None if old is None or old.written is None else old.timer
        if timer is None or timer > due:  # no timer yet, or from a longer TTL
            self._set_timer(key, timer, due)
            timer = due
        return Group(cells, result, visibility, self.now_ms, timer)

    def _set_timer(self, key: Key, before: int | None, after: int | None) -> None:
        for time, is_set in ((before, False), (after, True)):
            if time is not None:
                timer = GroupTimer(Clock.PROCESSING, time, TTL, key)
                self.upserts.timers.append((timer, is_set))

    # --- time -----------------------------------------------------------------------------------

    def fire_class_timers(
        self, key: Key, group: Group | None, timers: Sequence[GroupTimer], *, fires: bool
    ) -> Group | None:
        """Return the group after timers of operators' classes; a withheld one fires on release."""
        self.upserts.timers += [(timer, False) for timer in timers]
        if not timers or group is None or group.withheld or not fires:
            return group
        refresh, self.refresh = self.refresh, False  # no row of the group was written
        new = self.release(key, group)
        self.refresh = refresh
        return new

    def fire_window_timers(
        self, key: Key, group: Group | None, timers: Sequence[GroupTimer]
    ) -> Group | None:
        """Return the group after its window timers fired: emitted, closed or unchanged.

        Withheld results are emitted before the group closes.
        """
        self.upserts.timers += [(timer, False) for timer in timers]
        if not timers or group is None:
            return group
        assert self.closing is not None
        assert self.watermark is not None
        namespaces = {timer.namespace for timer in timers}
        closed_at = self.closing.closed_at(key)
        closes = closed_at <= self.watermark
        if group.withheld and (closes or (COMPLETE in namespaces and not self.rules.withhold)):
            emitted = self.release(key, group)
            if emitted is None:
                return None
            group = emitted
        if closes:
            self.counters.closed += 1
            self.closed.append(key)
            self._remove_entries(key)
            self.upserts.timers += self.results.remove_timer(key, group)
            closed = next_visibility(group.visibility, Action.CLOSE)
            return None if closed is None else Group(group.cells, group.result, closed)
        if CLOSED in namespaces:  # the timer was set under a shorter allowed lateness
            timer = GroupTimer(Clock.EVENT, closed_at, CLOSED, key)
            self.upserts.timers.append((timer, True))
        return group

    def fire_ttl_timers(
        self, key: Key, group: Group | None, timers: Iterable[GroupTimer]
    ) -> Group | None:
        """Return the group after its TTL timers fired: unchanged, with a later timer, or None.

        A withheld group does not expire; its timer is set again, a part of the TTL later.
        """
        for timer in timers:
            self.upserts.timers.append((timer, False))
            ttl = self.rules.ttl_ms  # 0 if the spec has none any more
            if not ttl or group is None or group.written is None or timer.time != group.timer:
                continue
            written = group.written
            due = written + ttl
            if group.withheld:
                due = max(due, self.now_ms + ttl // WITHHELD_EXPIRY_PARTS + 1)
            if due > self.now_ms:
                self._set_timer(key, None, due)
                group = Group(group.cells, group.result, group.visibility, written, due)
            else:
                self._expire(key, group)
                group = None
        return group

    def _expire(self, key: Key, group: Group) -> None:
        self.counters.expired += 1
        row = self.program.row(group)
        if self.rules.emit_expired:
            self._emit(key, row, None)
        elif row is not None:
            self.counters.expired_silently += 1
        self.upserts.timers += self.results.remove_timer(key, group)
        self._remove_entries(key)

    def release(self, key: Key, group: Group) -> Group | None:
        """Emit the net change of a group since its last result, and return the new group."""
        if self._has_ended(key, group, group.cells, ()):
            self._end_group(key, group, group.class_timer)
            return None
        result = self.results.compute_stored(key, group.cells)
        result, action = self._emit_row(key, group, group.cells, result, group.class_timer)
        visibility = next_visibility(group.visibility, action)
        assert visibility is not None
        timer = self.results.next_timer if group.written is None else group.timer
        return Group(group.cells, result, visibility, group.written, timer)

    def _emit_row(
        self, key: Key, old: Group | None, cells: Cells, aggregates: Row, timer: int | None
    ) -> tuple[Row, Action]:
        """Emit what changed for readers of a group, and move the first timer of its classes.

        Return the result to store, and whether the group has a row.
        """
        self.upserts.timers += self.results.move_timer(key, timer, self.results.next_timer)
        stored, row, has_row = aggregates, aggregates, self._has_rows(key, cells)
        if self.rows is not None:
            stored, passes = self.rows.compute(key, aggregates, self.results.misfits)
            row, has_row = self.rows.select(stored), has_row and passes
        self._emit(key, self.program.row(old), row if has_row else None)
        return stored, Action.EMIT if has_row else Action.EMIT_NO_ROW

    def _emit(self, key: Key, before: Row | None, after: Row | None) -> None:
        floating = self.program.floating_results
        differ = (
            self.refresh
            or before is None
            or after is None
            or not is_same_row(before, after, floating=floating)
        )
        self.changelog += emit_change(key, before, after, differ=differ)

    def _end_group(self, key: Key, old: Group, timer: int | None) -> None:
        """End a group: remove all of its entries, unmatched ones too, and its timers."""
        self._emit(key, self.program.row(old), None)
        self.upserts.timers += self.results.move_timer(key, timer, None)
        if old.written is not None:
            self._set_timer(key, old.timer, None)
        self._remove_entries(key)

    def _remove_entries(self, key: Key) -> None:
        self.upserts.multisets += empty_multisets(self.program, self.state, key)
