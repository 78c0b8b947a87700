"""Large multisets: whatever is asked of them is right epoch after epoch, and little is read for it.

each epoch: multiplicities of some values change ──► NaiveState, a flat dict
                                                └─► HotState: asked, remembered, caught up
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest

from jobs.core.fold.state import Counts, Key, Stamp, Upserts
from jobs.core.values.change import Value
from jobs.edge.state.argument_records import Marks
from jobs.edge.state.hot_records import Layout
from jobs.edge.state.hot_state import HotState
from jobs.edge.state.multiset_records import LargeMultiset
from schemas.types.sql_types import DOUBLE, INT, STRING, SqlType, row_of
from tests.support.histories.states import NaiveState, require_present

KEY: Key = ("g",)
VALUES = 400
POOLS: dict[SqlType, list[Value]] = {
    INT: list(range(-VALUES, VALUES, 2)),
    DOUBLE: [*(0.5 * number for number in range(VALUES - 1)), float("nan")],
    STRING: [f"{'long ' * 120 * (number % 3 == 0)}{number:04}" for number in range(VALUES)],
    row_of(INT, STRING): [(number % 9, str(number)) for number in range(VALUES)],
}


class Group:
    """One group's multiset in a hot state, and how it must be."""

    def __init__(self, directory: Path, sql_type: SqlType) -> None:
        self.state = HotState(directory, Layout("plan", (STRING,), (sql_type,)))
        self.naive = NaiveState()
        self.stamp = Stamp(0, "0", 0)
        values = Upserts([], [(0, KEY, dict.fromkeys(POOLS[sql_type], 1))])
        self.state.advance([(self.stamp, values)], since=None)
        self.naive.apply(values)

    def epoch(self, changed: Counts, questions: int, *, elsewhere: bool = False) -> None:
        """Ask what aggregates ask while this is folded, and go on; on another host without what
        the fold has found out."""
        upserts = Upserts([], [(0, KEY, changed)])
        after = Stamp(self.stamp.epoch + 1, str(self.stamp.epoch + 1), 0)
        with self.state.view(self.stamp) as view:
            view.multisets(0, [(KEY, changed)])
            found = view.present(0, KEY, changed)
            wanted = self.naive.present(0, KEY, changed)
            count = sum(times for _, times in wanted)
            if questions > 1:
                require_present(found, wanted)
            elif questions:
                found.at(count // 2, count)
                found.most_frequent()
            self.state.remember(after.epoch, after.uuid, view.to_records(upserts))
        remembered = None if elsewhere else self.state.recall(after)
        self.state.advance([(after, remembered or upserts)], since=self.stamp)
        self.naive.apply(upserts)
        self.stamp = after

    @property
    def commonest(self) -> Value:
        return max(self.naive.present(0, KEY, {}), key=itemgetter(1))[0]

    @property
    def marks(self) -> Marks:
        with self.state.view(self.stamp) as view:
            argument = view._keys.arguments[0]
            found = view._multiset(argument, view._entry_prefix(argument, KEY))
            assert isinstance(found, Marks)
            return found


@pytest.fixture
def group(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(tmp_path, request.param)
    yield made
    made.state.close()


@pytest.mark.parametrize("group", POOLS, indirect=True, ids=str)
def test_answers_are_right_whatever_was_found_out_before(
    group: Group, request: pytest.FixtureRequest
) -> None:
    pool = POOLS[request.node.callspec.params["group"]]
    chance = random.Random(str(request.node.callspec.id))
    for number in range(12):
        some = chance.sample(pool, chance.choice((0, 1, 5, 60)))
        if chance.random() < 0.5:
            some.append(group.commonest)
        group.epoch(
            {value: chance.choice((-1, 0, 0, 1, 2, 3)) for value in some},
            questions=2 if number % 4 == 3 else chance.choice((0, 1, 1)),
            elsewhere=chance.random() < 0.2,
        )


@pytest.mark.parametrize("group", [INT], indirect=True, ids=str)
def test_a_median_and_a_mode_are_looked_for_from_where_they_were(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    records = LargeMultiset._read_records

    def counted(self: LargeMultiset, descending: bool, value_key: bytes | None) -> Iterator[object]:
        for record in records(self, descending, value_key):
            read.append(record)
            yield record

    monkeypatch.setattr(LargeMultiset, "_read_records", counted)
    group.epoch({7: 3}, questions=1)
    assert len(read) > len(POOLS[INT])  # nothing was known
    assert [times for _, times in group.marks.value_keys] == [VALUES // 2]
    for number in range(5):
        read.clear()
        group.epoch({number: 1, -number - 1: 1}, questions=1)
        assert len(read) < 10


@pytest.mark.parametrize("group", [INT], indirect=True, ids=str)
def test_who_applies_what_another_has_folded_knows_nothing(group: Group) -> None:
    group.epoch({1: 1}, questions=1)
    assert group.marks != Marks()
    group.epoch({3: 1}, questions=1, elsewhere=True)
    assert group.marks == Marks()
    group.epoch({5: 1}, questions=1)
    assert group.marks != Marks()
    group.epoch({7: 1}, questions=0)
    assert group.marks == Marks()
