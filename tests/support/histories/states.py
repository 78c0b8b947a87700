"""Random histories of a State, and a state simple enough to be correct."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from hypothesis import strategies as st

from jobs.core.aggregates.present_values import PresentValues
from jobs.core.fold.state import (
    Clock,
    Counts,
    Group,
    GroupTimer,
    Key,
    State,
    Upserts,
    gather_multisets,
)
from jobs.core.fold.visibility import Visibility
from jobs.core.values.change import Value
from schemas.types.sql_types import BINARY, BOOLEAN, DOUBLE, INT, STRING, SqlType, decimal, row_of
from tests.support.histories.order import sql_rank

LONG = "x" * 500
POOLS: dict[SqlType, list[Any]] = {
    BOOLEAN: [None, False, True],
    INT: [None, -(2**31), -1, 0, 1, 255, 256, 2**31 - 1],
    decimal(38, 2): [None, -(10**38) + 1, -(2**64), 2**63, 2**64, 10**38 - 1],
    DOUBLE: [None, -math.inf, -1.5, 0.0, 5e-324, math.inf, float("nan"), float("nan")],
    STRING: [None, "", "\0", "a", "a\0b", "é", "\U0001f600", LONG, LONG + "a", LONG + "b", "y"],
    row_of(DOUBLE, STRING): [
        None,
        (None, "a"),
        (1.5, None),
        (1.5, "\0"),
        (1.5, "a"),
        (-1.5, "z"),
        (0.0, ""),
        (math.nan, "b"),
        (math.inf, "b"),
        (1.5, LONG + "a"),
        (1.5, LONG + "b"),
        (None, None),
    ],
    BINARY: [None, b"", b"\0", b"\xff", b"\0\xff", b"z" * 450 + b"1", b"z" * 450 + b"2"],
}
GROUP_TYPES: list[tuple[SqlType, ...]] = [
    (),
    (STRING,),
    (DOUBLE,),
    (BINARY, decimal(38, 2)),
    (STRING, INT, BOOLEAN),
]
ARGUMENT_TYPES = tuple(POOLS)
CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 1 << 2100, -(1 << 2100)]),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.binary(max_size=5),
)
VISIBILITIES = st.sampled_from(
    [Visibility.SHOWN, Visibility.SHOWN, Visibility.WITHHELD, Visibility.UNSHOWN]
)
TIMES = st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1, 1_551_169_050_000])
NAMESPACES = st.sampled_from(["ttl", "emit", "a window: 0 to 10"])
MULTIPLICITIES = st.integers(-2, 3) | st.sampled_from([127, 128, -(2**40), 2**62])


@dataclass(frozen=True)
class History:
    """Epochs of upserts, and overlays for queries of extremes."""

    group_types: tuple[SqlType, ...]
    epochs: list[Upserts]
    overlays: list[tuple[int, Key, dict[Value, int]]]


def pool(sql_type: SqlType) -> st.SearchStrategy[Any]:
    return st.sampled_from(POOLS[sql_type])


@st.composite
def histories(draw: st.DrawFn) -> History:
    group_types = draw(st.sampled_from(GROUP_TYPES))
    keys = st.tuples(*map(pool, group_types))
    cells = st.lists(CELLS, max_size=4).map(tuple)
    groups = st.tuples(keys, st.none() | st.builds(Group, cells, cells, VISIBILITIES, TIMES, TIMES))
    timer = st.builds(GroupTimer, st.sampled_from(Clock), TIMES, NAMESPACES, keys)
    arguments = st.integers(0, len(ARGUMENT_TYPES) - 1)
    entries = arguments.flatmap(
        lambda i: st.tuples(st.just(i), keys, pool(ARGUMENT_TYPES[i]), MULTIPLICITIES)
    )
    overlays = arguments.flatmap(
        lambda i: st.tuples(
            st.just(i),
            keys,
            st.dictionaries(pool(ARGUMENT_TYPES[i]), st.integers(-1, 2), max_size=4),
        )
    )
    upserts = st.builds(
        Upserts,
        st.lists(groups, max_size=6),
        st.lists(entries, min_size=5, max_size=30).map(gather_multisets),
        st.lists(st.tuples(timer, st.booleans()), max_size=8),
    )
    epochs = draw(st.lists(upserts, min_size=1, max_size=4))
    return History(group_types, epochs, draw(st.lists(overlays, max_size=10)))


class NaiveState:
    """Flat dicts by rank; order and extremes come from sorting everything."""

    def __init__(self) -> None:
        self.group_of: dict[tuple[Any, ...], Group] = {}
        self.entry_of: dict[tuple[Any, ...], tuple[Value, int]] = {}
        self.timers: dict[tuple[Any, ...], GroupTimer] = {}
        self.held: dict[tuple[Any, ...], Key] = {}

    def apply(self, upserts: Upserts) -> None:
        for key, group in upserts.groups:
            self.group_of.pop(ranks(key), None)
            self.held.pop(ranks(key), None)
            if group is not None:
                self.group_of[ranks(key)] = group
                if group.visibility:
                    self.held[ranks(key)] = key
        for timer, is_set in upserts.timers:
            place = timer_rank(timer)
            self.timers.pop(place, None)
            if is_set:
                self.timers[place] = timer
        for argument, key, counts in upserts.multisets:
            for value, multiplicity in counts.items():
                place = (argument, ranks(key), sql_rank(value))
                self.entry_of.pop(place, None)
                if multiplicity:
                    self.entry_of[place] = (value, multiplicity)

    def withheld(self) -> list[Key]:
        return list(self.held.values())

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        mine = [timer for timer in self.timers.values() if timer.clock is clock]
        return sorted((t for t in mine if t.time <= time), key=lambda timer: timer.time)

    def next_timer(self, clock: Clock, after: int | None = None) -> int | None:
        times = [t.time for t in self.timers.values() if t.clock is clock]
        return min((t for t in times if after is None or t > after), default=None)

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        return [self.group_of.get(ranks(key)) for key in keys]

    def multisets(
        self, argument: int, asked: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        return [
            {
                value: self.entry_of.get((argument, ranks(key), sql_rank(value)), (None, 0))[1]
                for value in values
            }
            for key, values in asked
        ]

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        mine = [place for place in self.entry_of if place[:2] == (argument, ranks(key))]
        return [self.entry_of[place] for place in sorted(mine)]

    def present(
        self, argument: int, key: Key, overlay: Mapping[Value, int]
    ) -> list[tuple[Value, int]]:
        counts = {sql_rank(value): (value, count) for value, count in self.entries(argument, key)}
        counts |= {sql_rank(value): (value, count) for value, count in overlay.items()}
        return [counts[seen] for seen in sorted(seen for seen, (_, n) in counts.items() if n > 0)]


def ranks(key: Key) -> tuple[Any, ...]:
    return tuple(map(sql_rank, key))


def timer_rank(timer: GroupTimer) -> tuple[Any, ...]:
    return (*timer[:3], ranks(timer.key))


def require_equal(state: State, naive: NaiveState, history: History) -> None:
    """Compare all answers of both states that the history may change."""
    keys = [key for epoch in history.epochs for key, _ in epoch.groups]
    keys += [key for epoch in history.epochs for _, key, _ in epoch.multisets]
    assert state.groups(keys) == naive.groups(keys)
    assert sorted(map(ranks, state.withheld())) == sorted(map(ranks, naive.withheld()))
    for clock in Clock:
        assert state.next_timer(clock) == naive.next_timer(clock)
        for time in (-1, 3, 2**63 - 1):
            due, expected = state.due(clock, time), naive.due(clock, time)
            assert state.next_timer(clock, time) == naive.next_timer(clock, time)
            assert [timer.time for timer in due] == [timer.time for timer in expected]
            assert set(map(timer_rank, due)) == set(map(timer_rank, expected))
    for argument, sql_type in enumerate(ARGUMENT_TYPES):
        asked = [(key, dict.fromkeys(POOLS[sql_type])) for key in keys]
        stored = zip(
            state.multisets(argument, asked), naive.multisets(argument, asked), strict=True
        )
        for found, wanted in stored:
            assert {value: found.get(value, 0) for value in wanted} == wanted
        for key in keys:
            entries = state.entries(argument, key)
            assert ranked(entries) == ranked(naive.entries(argument, key))
            require_equal_present(state, naive, argument, key, {})
    for argument, key, overlay in history.overlays:
        require_equal_present(state, naive, argument, key, overlay)


def require_equal_present(
    state: State, naive: NaiveState, argument: int, key: Key, overlay: dict[Value, int]
) -> None:
    require_present(state.present(argument, key, overlay), naive.present(argument, key, overlay))


def require_present(found: PresentValues[Any], wanted: list[tuple[Value, int]]) -> None:
    """Check all operations that aggregates use on present values."""
    least, greatest = (wanted[0][0], wanted[-1][0]) if wanted else (None, None)
    for answer, right in (
        (found.first(), least),
        (found.first(descending=True), greatest),
        (found.most_frequent(), max(wanted, key=itemgetter(1), default=(None, 0))[0]),
    ):
        assert sql_rank(answer) == sql_rank(right)
        assert type(answer) is type(right)
    assert ranked(list(found.entries())) == ranked(wanted)
    assert ranked(list(found.entries(descending=True))) == ranked(wanted[::-1])
    for distinct in (False, True):
        require_ranks(found, [(v, 1) for v, _ in wanted] if distinct else wanted, distinct)


def require_ranks(
    found: PresentValues[Any], wanted: list[tuple[Value, int]], distinct: bool
) -> None:
    """Check the first and last rank of each value, and the value after it."""
    count = sum(times for _, times in wanted)
    before = 0
    for at, (value, times) in enumerate(wanted):
        behind = wanted[min(at + 1, len(wanted) - 1)][0]
        for rank_of, next_one in (
            (before + 1, value if times > 1 else behind),
            (before + times, behind),
        ):
            pair = found.at(rank_of, count, distinct=distinct)
            assert list(map(sql_rank, pair)) == [sql_rank(value), sql_rank(next_one)]
        before += times


def ranked(entries: list[tuple[Value, int]]) -> list[tuple[Any, int]]:
    return [(sql_rank(value), multiplicity) for value, multiplicity in entries]
