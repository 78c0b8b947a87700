"""What time makes due, held against simpler ways: one bundle for many withheld epochs, and a model
of the TTL that is a dict.

Everything follows from seeds; a failure names the one it failed for.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from jobs.core.fold.fold import TTL
from jobs.core.fold.in_memory import MemoryFold
from jobs.core.fold.laws import BrokenLaw
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Clock, GroupTimer, Key, MemoryState, Upserts
from jobs.core.rows.consolidate import Consolidation
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Op, Row, Value
from schemas.types.sql_types import INT, SqlType
from tests.support.histories.folded_changelog import fold_changelog

PLAN = parse_query(
    "SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS top, MIN(v) AS low FROM t GROUP BY k",
    {"k": SqlType.parse("STRING"), "v": SqlType.parse("INT")},
)
STREAMS = 300
Signed = list[tuple[int, Row]]


def memory_fold(**rules: bool | int) -> MemoryFold:
    return MemoryFold(PLAN, lambda row: ((row[0],), (row[1],)), rules=Rules(**rules))  # type: ignore[arg-type]


def bundle(changes: Signed, ordinal: int = 0) -> list[Consolidation]:
    consolidation = Consolidation(ordinal)
    consolidation.add(changes)
    return [consolidation]


def odd_changes(rng: random.Random, most: int) -> Signed:
    """Changes in which a retraction need not match anything."""
    return [
        (rng.choice((-1, 1)), (rng.choice(("a", "b", None)), rng.choice((0, 1, 2, None))))
        for _ in range(rng.randint(0, most))
    ]


# --- withheld results -------------------------------------------------------------------------


def test_a_row_without_input_is_emitted_although_results_are_withheld() -> None:
    plan = replace(parse_query("SELECT COUNT(v) AS n FROM t", {"v": INT}), empty_keys=((),))
    made = MemoryFold(plan, lambda row: ((), row), rules=Rules(withhold=True))
    assert made.open_groups().changelog == [(Op.INSERT, (), (0,))]
    assert not made.fold(bundle([(1, (5,)), (1, (6,)), (-1, (5,))])).changelog
    assert not made.open_groups().changelog
    released = made.pass_time(release=True).changelog
    assert released == [(Op.UPDATE_BEFORE, (), (0,)), (Op.UPDATE_AFTER, (), (1,))]


def test_epochs_withheld_until_the_end_of_their_bundle_say_what_one_bundle_says() -> None:
    said = 0
    for seed in range(STREAMS):
        rng = random.Random(f"withheld {seed}")
        whole, cut = memory_fold(), memory_fold(withhold=True)
        for number in range(rng.randint(1, 4)):
            epochs = [odd_changes(rng, 6) for _ in range(rng.randint(1, 4))]
            at_once = whole.fold(bundle([change for epoch in epochs for change in epoch]))
            quiet = [cut.fold(bundle(epoch)) for epoch in epochs]
            released = cut.pass_time(release=True)
            assert not any(folded.changelog for folded in quiet)
            assert released.changelog == at_once.changelog, f"withheld {seed}, bundle {number}"
            dropped = sum(folded.counters.dropped_retractions for folded in quiet)
            assert dropped == at_once.counters.dropped_retractions
            assert not cut.state.withheld()
            said += len(released.changelog)
    assert said > STREAMS


def test_the_state_after_a_release_is_that_of_one_bundle() -> None:
    for seed in range(STREAMS):
        rng = random.Random(f"released {seed}")
        whole, cut = memory_fold(), memory_fold(withhold=True)
        epochs = [odd_changes(rng, 6) for _ in range(3)]
        whole.fold(bundle([change for epoch in epochs for change in epoch]))
        for epoch in epochs:
            cut.fold(bundle(epoch))
        cut.pass_time(release=True)
        keys: list[Key] = [("a",), ("b",), (None,)]
        assert cut.state.groups(keys) == whole.state.groups(keys), f"released {seed}"
        for key in keys:
            left, right = cut.state.entries(0, key), whole.state.entries(0, key)
            if cut.state.groups([key]) == [None]:
                assert left == []
            # A multiset knows no difference between a multiplicity of 0 and none.
            assert dict(left) == dict(right), f"released {seed}"


def test_a_fold_that_does_not_withhold_refuses_what_was_withheld() -> None:
    cut = memory_fold(withhold=True)
    cut.fold(bundle([(1, ("a", 1))]))
    cut._rules = Rules()
    with pytest.raises(BrokenLaw, match="withheld"):
        cut.fold(bundle([(1, ("a", 2))]))
    assert cut.pass_time(release=True).changelog == [(Op.INSERT, ("a",), (1, 1, 1, 1))]
    cut.fold(bundle([(1, ("a", 2))]))


# --- the TTL ------------------------------------------------------------------------------------

TTL_MS = 1_000


@dataclass(slots=True)
class MortalGroup:
    values: Counter[Value] = field(default_factory=Counter)
    written: int = 0


class NaiveTtl:
    """Groups of well-formed rows in a dict; whoever was written too long ago is taken out."""

    def __init__(self) -> None:
        self.groups: dict[Key, MortalGroup] = {}

    def pass_time(self, now: int) -> set[Key]:
        dead = {key for key, group in self.groups.items() if group.written + TTL_MS <= now}
        for key in dead:
            del self.groups[key]
        return dead

    def fold(self, changes: Signed, now: int) -> None:
        for sign, (key, value) in changes:
            group = self.groups.setdefault((key,), MortalGroup())
            group.values[value] += sign
            group.written = now
        for (key,) in {(row[0],) for _, row in changes}:
            if not +self.groups[key,].values:
                del self.groups[key,]

    def table(self) -> dict[Key, Row]:
        return {key: self._result(group.values) for key, group in self.groups.items()}

    def _result(self, values: Counter[Value]) -> Row:
        there = [value for value in values.elements() if isinstance(value, int)]
        total = sum(there) if there else None
        return (values.total(), total, max(there, default=None), min(there, default=None))


def live_changes(rng: random.Random, naive: NaiveTtl) -> Signed:
    """Inserts, and deletes of rows that the groups have."""
    changes: Signed = []
    left = {key: group.values.copy() for key, group in naive.groups.items()}
    for _ in range(rng.randint(0, 5)):
        key: Key = (rng.choice(("a", "b", "c", None)),)
        there = list(left.setdefault(key, Counter()).elements())
        insert = not there or rng.random() < 0.6
        value = rng.choice((0, 1, 2, None)) if insert else rng.choice(there)
        left[key][value] += 1 if insert else -1
        changes.append((1 if insert else -1, (key[0], value)))
    return changes


@pytest.mark.parametrize("refresh", [False, True])
def test_groups_expire_as_in_a_naive_model(refresh: bool) -> None:
    expired = ended = 0
    for seed in range(STREAMS):
        rng = random.Random(f"ttl {seed}")
        naive, real = NaiveTtl(), memory_fold(ttl_ms=TTL_MS, refresh=refresh)
        now, table = 0, dict[Key, Row]()
        for number in range(12):
            now += rng.choice((0, 1, 300, 500, 999, 1_000))
            gone = real.pass_time(now)
            wanted = naive.pass_time(now)
            assert {key for _, key, _ in gone.changelog} == wanted, f"ttl {seed}, step {number}"
            assert {op for op, _, _ in gone.changelog} <= {Op.DELETE}
            assert gone.counters.expired == len(wanted)
            changes = live_changes(rng, naive)
            folded = real.fold(bundle(changes), now)
            naive.fold(changes, now)
            fold_changelog(table, [*gone.changelog, *folded.changelog])
            assert table == naive.table(), f"ttl {seed}, step {number}"
            assert_one_timer_each(real.state, now)
            expired += len(wanted)
            ended += sum(op is Op.DELETE for op, _, _ in folded.changelog)
    assert min(expired, ended) > STREAMS / 2


def assert_one_timer_each(state: MemoryState, now: int) -> None:
    """Each group has the timer that it says it has, and nobody else has one."""
    timers = state.due(Clock.PROCESSING, now + 10 * TTL_MS)
    groups = state.groups([timer.key for timer in timers])
    for timer, group in zip(timers, groups, strict=True):
        assert group is not None
        assert (timer.namespace, timer.time) == (TTL, group.timer)
        assert now < timer.time <= (group.written or 0) + TTL_MS
    assert {timer.key for timer in timers} == set(state._groups)
    assert len(timers) == len(state._groups)


def test_a_shorter_ttl_moves_the_timer_of_a_group_that_is_written() -> None:
    real = memory_fold(ttl_ms=TTL_MS)
    real.fold(bundle([(1, ("a", 1))]), 0)
    real._rules = Rules(ttl_ms=100)
    real.fold(bundle([(1, ("a", 1))]), 10)
    assert real.wakes_at == 110
    assert [op for op, _, _ in real.pass_time(110).changelog] == [Op.DELETE]
    assert real.wakes_at is None


def test_a_group_from_before_the_ttl_lives_by_it_from_its_next_write_on() -> None:
    real = memory_fold()
    real.fold(bundle([(1, ("a", 1)), (1, ("b", 1))]))
    real._rules = Rules(ttl_ms=TTL_MS)
    real.fold(bundle([(1, ("a", 1))]), 50)
    assert [key for _, key, _ in real.pass_time(5 * TTL_MS).changelog] == [("a",)]


def test_timers_of_another_purpose_are_left_alone() -> None:
    real = memory_fold(ttl_ms=TTL_MS)
    other = GroupTimer(Clock.PROCESSING, 5, "a window", ("a",))
    real.state.apply(Upserts(timers=[(other, True)]))
    assert real.pass_time(100).changelog == []
    assert real.state.due(Clock.PROCESSING, 100) == [other]
