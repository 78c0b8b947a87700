"""What every State does, checked on random histories against a state too simple to be wrong.

    history of upserts ──► NaiveState: one flat dict, sorted and searched from scratch
                       └─► the state under test: MemoryState here, HotState in tests/edge

Pools of keys and values are small, so that entries meet: they are overwritten, deleted, negative,
hidden by overlays. The pools have the values that representations trip over.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given

from jobs.core.aggregates.present_values import MergedValues
from jobs.core.fold.state import Group, MemoryState, Upserts, rank
from jobs.core.values.change import Value
from tests.support.examples import examples
from tests.support.histories.states import History, NaiveState, histories, require_equal


@examples(25)
@given(histories())
def test_memory_state_answers_as_the_naive_state(history: History) -> None:
    state, naive = MemoryState(), NaiveState()
    for epoch in history.epochs:
        state.apply(epoch)
        naive.apply(epoch)
        require_equal(state, naive, history)


def test_a_nan_finds_the_group_of_another_nan() -> None:
    state = MemoryState()
    group = Group((1,), ())
    state.apply(Upserts([((float("nan"), "a"), group)], []))
    assert state.groups([(float("nan"), "a")]) == [group]


def test_a_multiplicity_of_zero_leaves_nothing_behind() -> None:
    state = MemoryState()
    state.apply(Upserts([], [(0, ("a",), {1: 2})]))
    state.apply(Upserts([], [(0, ("a",), {1: 0}), (0, ("b",), {1: 0})]))
    assert state.entries(0, ("a",)) == []
    assert state.multisets(0, [(("a",), {1: 1})]) == [{1: 0}]


@pytest.mark.parametrize(
    ("overlay", "largest", "wanted"),
    [
        ({}, True, 9),
        ({9: 0}, True, 5),
        ({9: -1, 5: 0, 7: 1}, True, 7),
        ({10: 1}, True, 10),
        ({9: 0, 5: 0, 1: 0}, True, None),
        ({}, False, 1),
        ({1: 0, 0: 0}, False, 5),
        ({3: 1}, False, 1),
        ({-3: 1}, False, -3),
    ],
)
def test_the_extreme_is_over_positive_multiplicities(
    overlay: dict[Value, int], largest: bool, wanted: Value
) -> None:
    """Stored: 1 and 5 once, 8 taken away too often, 9 twice."""
    state = MemoryState()
    state.apply(Upserts([], [(0, (), {5: 1, 9: 2, 8: -1, 1: 1})]))
    assert state.present(0, (), overlay).first(descending=largest) == wanted


def test_an_extreme_reads_no_more_entries_than_it_needs() -> None:
    read = []

    def stored(descending: bool) -> Any:
        assert descending
        for value in (9, 8, 7, 6):
            read.append(value)
            yield value, 1

    assert MergedValues(stored, {9: 0}, lambda place: place).first(descending=True) == 8
    assert read == [9, 8]


def test_rank_puts_null_first_and_nan_last() -> None:
    values = [math.inf, None, float("nan"), -math.inf, 0.0]
    assert list(map(rank, sorted(values, key=rank))) == [
        rank(value) for value in (None, -math.inf, 0.0, math.inf, math.nan)
    ]
