"""One fold: what it reads, what it leaves, and what it counts.

The results themselves are in the change scripts and the histories; here are the promises beside
them: one read a bundle, a state that is not written, the search for the next extreme only when the
shown one has gone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jobs.core.aggregates.present_values import PresentValues
from jobs.core.fold.fold import FoldContext, FoldResult, fold
from jobs.core.fold.group_results import is_same_row
from jobs.core.fold.program import Program
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Counts, Group, Key, MemoryState
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row, Value
from jobs.core.values.order_key import encoder
from schemas.limits import DROPPED_KEYS_NAMED_MAX, KEYS_BELOW_ZERO_NAMED_MAX
from schemas.types.sql_types import SqlType

TYPES = {"k": SqlType.parse("STRING"), "v": SqlType.parse("INT"), "w": SqlType.parse("DOUBLE")}
ORDER = encoder((SqlType.parse("STRING"),))
NAN = math.nan


class WatchedState(MemoryState):
    """Tells how it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.searched: list[tuple[Key, bool]] = []

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        self.reads.append("groups")
        return super().groups(keys)

    def multisets(
        self, argument: int, asked: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        self.reads.append("multisets")
        return super().multisets(argument, asked)

    def present(self, argument: int, key: Key, overlay: Mapping[Value, int]) -> PresentValues[Any]:
        found = super().present(argument, key, overlay)
        return WatchedValues(found, lambda largest: self.searched.append((key, largest)))


class WatchedValues(PresentValues[Any]):
    """Tells from which end it was searched."""

    def __init__(self, values: PresentValues[Any], tell: Callable[[bool], None]) -> None:
        self._values = values
        self._tell = tell

    def _keys(self, descending: bool) -> Iterable[tuple[Any, int]]:
        return self._values._keys(descending)

    def _value(self, place: Any) -> Value:
        return self._values._value(place)

    def first(self, *, descending: bool = False) -> Value:
        self._tell(descending)
        return super().first(descending=descending)


class Bench:
    """A program and a state, fed with (key, value, weight) in the order of their positions; the
    value is that of every argument."""

    def __init__(self, aggregates: str, *, drop_early: bool = False) -> None:
        self.drop_early = drop_early
        self.program = Program(parse_query(f"SELECT k, {aggregates} FROM t GROUP BY k", TYPES))
        self.state = WatchedState()

    def fold(self, *rows: tuple[str, Value, int], refresh: bool = False) -> FoldResult:
        """Fold a bundle without committing it; a weight below 0 is a head."""
        keys, values, weights = zip(*rows, strict=True)
        positions = [at if weight >= 0 else ~at for at, weight in enumerate(weights)]
        arguments = [values] * len(self.program.plan.arguments)
        deltas = self.program.gather([(key,) for key in keys], *arguments, positions, weights)
        self.state.reads.clear()
        self.state.searched.clear()
        rules = Rules(refresh=refresh, drop_early=self.drop_early)
        return fold(self.program, self.state, deltas, FoldContext(ORDER, rules))

    def commit(self, *rows: tuple[str, Value, int]) -> FoldResult:
        folded = self.fold(*rows)
        self.state.apply(folded.upserts)
        return folded


def ops(folded: FoldResult) -> list[tuple[str, str, Row]]:
    return [(str(op), str(key[0]), row) for op, key, row in folded.changelog]


def test_a_fold_does_not_write_the_state() -> None:
    bench = Bench("MAX(v) AS top, SUM(v) AS s")
    bench.commit(("a", 5, 1), ("a", 3, 1))
    before = [bench.state.groups([("a",)]), bench.state.entries(0, ("a",))]
    first = bench.fold(("a", 5, -1), ("b", 1, 1))
    again = bench.fold(("a", 5, -1), ("b", 1, 1))
    assert [bench.state.groups([("a",)]), bench.state.entries(0, ("a",))] == before
    assert first == again
    assert ops(first) == [("-U", "a", (5, 8)), ("+U", "a", (3, 3)), ("+I", "b", (1, 1))]


def test_a_bundle_reads_the_groups_once_and_each_multiset_once() -> None:
    bench = Bench("MAX(v) AS top, SUM(v) AS s")
    bench.commit(*[(key, value, 1) for key in "abcde" for value in range(3)])
    bench.fold(*[(key, value, 1) for key in "abcdefg" for value in range(5)])
    assert bench.state.reads == ["groups", "multisets"]


def test_the_next_extreme_is_searched_only_when_the_shown_one_has_gone() -> None:
    bench = Bench("MAX(v) AS top, MIN(v) AS low")
    bench.commit(("a", 5, 1), ("a", 5, 1), ("a", 3, 1), ("a", 1, 1))
    bench.fold(("a", 9, 1), ("a", 3, -1), ("a", 5, -1))  # one 5 of two, and a value between
    assert bench.state.searched == []
    bench.fold(("a", 9, 1), ("a", 5, -1), ("a", 5, -1))  # a greater one came
    assert bench.state.searched == []
    bench.fold(("a", 0, 1), ("a", 1, -1))  # a smaller one came
    assert bench.state.searched == []
    bench.fold(("a", 4, 1), ("a", 5, -1), ("a", 5, -1))
    assert bench.state.searched == [(("a",), True)]
    bench.fold(("a", 1, -1))
    assert bench.state.searched == [(("a",), False)]


def test_keys_come_in_order_whatever_order_they_arrived_in() -> None:
    rng = random.Random(5)
    rows = [(name, 1, 1) for name in ("b", "a", "", "é", "aa", "z")]
    outcomes = set()
    for _ in range(10):
        rng.shuffle(rows)
        outcomes.add(repr(Bench("COUNT(*) AS n").fold(*rows).changelog))
    assert len(outcomes) == 1


def test_what_changes_nothing_leaves_nothing_for_the_state() -> None:
    bench = Bench("MAX(v) AS top, COUNT(*) AS n")
    bench.commit(("a", 5, 1), ("a", 5, 1))
    silent = bench.fold(("a", 7, 0), ("a", 5, 0))
    assert (silent.changelog, silent.upserts.groups, silent.upserts.multisets) == ([], [], [])
    assert silent.counters.groups_touched == 1


def test_a_change_that_does_not_show_is_kept_all_the_same() -> None:
    bench = Bench("MAX(v) AS top")
    bench.commit(("a", 10, 1), ("a", 5, 1))
    hidden = bench.commit(("a", 8, 1))
    assert hidden.changelog == []
    assert hidden.upserts.multisets == [(0, ("a",), {8: 1})]
    assert ops(bench.fold(("a", 10, -1))) == [("-U", "a", (10,)), ("+U", "a", (8,))]


def test_dropped_retractions_are_counted_per_key_and_named_up_to_a_bound() -> None:
    bench = Bench("COUNT(*) AS n", drop_early=True)
    some = bench.fold(("a", 1, -1), ("a", 2, -1), ("a", 3, 1), ("b", 1, -1))
    assert some.counters.dropped_retractions == 3
    assert some.counters.dropped_keys == [(("a",), 2), (("b",), 1)]
    many = bench.fold(*[(f"key {number}", 1, -1) for number in range(100)])
    assert many.counters.dropped_retractions == 100
    assert len(many.counters.dropped_keys) == DROPPED_KEYS_NAMED_MAX


def test_groups_below_zero_are_counted_once_and_named_up_to_a_bound() -> None:
    bench = Bench("COUNT(*) AS n")
    some = bench.commit(("a", 1, -1), ("b", 1, -1), ("c", 1, 1))
    assert (some.counters.below_zero_delta, some.counters.keys_below_zero) == (2, [("a",), ("b",)])
    assert bench.commit(("a", 1, -1)).counters.below_zero_delta == 0
    back = bench.commit(("a", 1, 1), ("a", 1, 1), ("b", 2, 1), ("b", 2, 1))
    assert back.counters.below_zero_delta == -2
    assert ops(back) == [("+I", "b", (1,))]
    many = bench.fold(*[(f"key {number}", 1, -1) for number in range(100)])
    assert many.counters.below_zero_delta == 100
    assert len(many.counters.keys_below_zero) == KEYS_BELOW_ZERO_NAMED_MAX


def test_a_group_ends_only_when_every_value_that_came_has_gone() -> None:
    bench = Bench("MAX(v) AS top")
    bench.commit(("a", 1, 1), ("a", 7, -1))
    assert bench.state.entries(0, ("a",)) == [(1, 1), (7, -1)]
    ended = bench.commit(("a", 1, -1), ("a", 7, 1))
    assert ended.upserts.groups == [(("a",), None)]
    assert bench.state.entries(0, ("a",)) == []


def test_retractions_that_match_nothing_are_counted_once() -> None:
    """The row count and each multiset may see one and the same retraction; it is one."""
    bench = Bench("MAX(v) AS top, COUNT(*) AS n", drop_early=True)
    bench.commit(("a", 1, 1), ("a", 2, 1))
    assert bench.fold(("a", 9, -1)).counters.unmatched_retractions == 1
    assert bench.fold(("a", 1, -1)).counters.unmatched_retractions == 0
    below = bench.fold(("a", 1, -1), ("a", 2, -1), ("a", 1, -1), ("a", 8, -1))
    assert ops(below) == [("-U", "a", (2, 2)), ("+U", "a", (None, -2))]
    assert below.counters.unmatched_retractions == 2
    counted = Bench("COUNT(*) AS n", drop_early=True)
    counted.commit(("a", 1, 1))
    below = counted.fold(("a", 1, -1), ("a", 1, -1), ("a", 1, -1))
    assert ops(below) == [("-U", "a", (1,)), ("+U", "a", (-2,))]
    assert below.counters.unmatched_retractions == 2


def test_a_group_that_ends_clears_every_entry_of_its_multisets() -> None:
    bench = Bench("MAX(v) AS top", drop_early=True)
    bench.commit(("a", 1, 1), ("a", 2, 1), ("a", 3, 1))
    ending = bench.commit(("a", 1, -1), ("a", 2, -1), ("a", 7, -1))
    assert ops(ending) == [("-D", "a", (3,))]
    assert ending.upserts.groups == [(("a",), None)]
    assert bench.state.entries(0, ("a",)) == []


def test_refresh_sends_equal_results_again_and_only_of_touched_groups() -> None:
    bench = Bench("COUNT(*) AS n")
    bench.commit(("a", 1, 1), ("b", 1, 1))
    again = bench.fold(("a", 2, 0), refresh=True)
    assert ops(again) == [("-U", "a", (1,)), ("+U", "a", (1,))]
    assert ops(bench.fold(("c", 2, 0), refresh=True)) == []


def test_results_with_nan_are_equal_to_themselves_and_to_nothing_else() -> None:
    assert is_same_row((1, NAN), (1, float("nan")), floating=True)
    assert not is_same_row((1, NAN), (1, 2.0), floating=True)
    assert not is_same_row((1, 2.0), (1, NAN), floating=True)
    assert not is_same_row((1, None), (1, NAN), floating=True)
    assert is_same_row((1, None), (1, None), floating=False)


def test_nan_is_the_greatest_and_leaves_the_extremes_when_it_goes() -> None:
    bench = Bench("MAX(w) AS top, MIN(w) AS low")
    bench.commit(("a", 1.0, 1), ("a", NAN, 1))
    assert ops(bench.fold(("a", math.inf, 1))) == []
    assert ops(bench.fold(("a", NAN, -1))) == [("-U", "a", (NAN, 1.0)), ("+U", "a", (1.0, 1.0))]
    _, (_, _, row) = ops(bench.fold(("a", 1.0, -1)))
    assert repr(row) == "(nan, nan)"
