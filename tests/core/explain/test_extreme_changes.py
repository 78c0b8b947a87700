"""Why a MAX decreased, from a group's changes and its multisets, and never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.core.explain.extreme_changes import (
    ExtremeChange,
    MultisetEntry,
    MultisetHistory,
    ValueChange,
    cause_sentence,
    extreme_columns,
    find_cause,
    find_extreme_changes,
)
from jobs.core.sql.select import parse_query
from schemas.documents.explanation import GroupChange, GroupEpoch
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import DATE, DOUBLE, INT, STRING, decimal
from tests.support.epoch_rows import epoch_row

COLUMNS = {"name": STRING, "v": INT, "w": DOUBLE, "d": decimal(5, 2), "day": DATE}
PLAN = parse_query(
    "SELECT name, SUM(v) AS total, MAX(v) AS top, MIN(v) AS least FROM t GROUP BY name", COLUMNS
)


def row(top: int | None, least: int | None = None) -> dict[str, Any]:
    return {"name": "bolt", "total": 0, "top": top, "least": least}


def update(epoch: int, before: int | None, after: int | None) -> tuple[int, list[Any]]:
    return epoch, [("-U", row(before)), ("+U", row(after))]


def epochs(*kinds: str, **marks: dict[int, dict[str, Any]]) -> dict[int, EpochRow]:
    """Return epoch rows from 0 on; each reads ten records of partition 2."""
    return {
        number: epoch_row(
            number,
            kind=kind,
            offsets={"shop.product": {"2": 10 * number}},
            watermarks=marks.get("watermarks", {}).get(number, {}),
        )
        for number, kind in enumerate(kinds)
    }


def told(
    turn: ExtremeChange,
    entries: list[tuple[Any, int, int]],
    rows: dict[int, EpochRow],
    *,
    merged: int = -1,
    changed: int | None = None,
) -> str:
    """Return the sentence; `entries` are value, epoch, multiplicity."""
    argument = turn.extreme.argument
    multisets = MultisetHistory([MultisetEntry(argument, *each) for each in entries], merged)
    return cause_sentence(
        turn, find_cause(turn, multisets, rows, turn.epoch if changed is None else changed)
    )


def last_turn(*told: tuple[int, list[Any]]) -> ExtremeChange:
    return find_extreme_changes(PLAN, [epoch_of(*each) for each in told])[-1]


def epoch_of(number: int, changes: list[Any]) -> GroupEpoch:
    return GroupEpoch(number, [GroupChange(*each) for each in changes], None)


def test_a_max_that_went_down_names_the_value_that_was_taken_away_and_what_is_left() -> None:
    turn = last_turn(update(2, 998, 991))
    entries = [(998, 1, 1), (991, 1, 1), (3, 1, 69), (998, 2, 0)]
    assert told(turn, entries, epochs("start", "data", "data")) == (
        "top decreased from 998 to 991 in epoch 2: the value 998 was retracted once "
        "(read from shop.product/2 [10, 20)); 991 is now the greatest of 70."
    )


def test_other_values_that_went_with_it_are_counted() -> None:
    turn = last_turn(update(2, 998, 991))
    entries = [(998, 1, 2), (995, 1, 1), (993, 1, 1), (991, 1, 1), (7, 1, 1)]
    entries += [(998, 2, 0), (995, 2, 0), (993, 2, 0), (7, 2, 0)]
    assert "998 was retracted twice" in told(turn, entries, epochs("start", "data", "data"))
    assert "and 2 other values above 991 as well; 991 is now the only value." in told(
        turn, entries, epochs("start", "data", "data")
    )


def test_what_was_merged_is_said_to_be_forgotten() -> None:
    """The sum and the extremes are exact; only the separate changes are unknown."""
    turn = last_turn(update(2, 998, 991))
    rows = epochs("start", "data", "data", "data")
    assert told(turn, [(991, 1, 1)], rows, merged=3, changed=3) == (
        "top decreased from 998 to 991 in epoch 2: the value 998 was retracted, how often is no "
        "longer known (read from shop.product/2 [10, 20)); 991 was then the greatest."
    )


def test_entries_that_do_not_tell_of_the_loss_are_not_believed() -> None:
    turn = last_turn(update(2, 998, 991))
    found = told(turn, [(991, 1, 1)], epochs("start", "data", "data"))
    assert "how often is no longer known" in found


def test_epochs_that_retention_removed_leave_the_source_open() -> None:
    turn = last_turn(update(2, 998, 991))
    assert "(the source offsets are no longer known)" in told(turn, [], {})


def test_an_epoch_that_has_been_written_over_since_speaks_of_then() -> None:
    turn = last_turn(update(2, 998, 991))
    entries = [(998, 1, 1), (991, 1, 1), (998, 2, 0), (5, 3, 40)]
    rows = epochs("start", "data", "data", "data")
    assert told(turn, entries, rows, changed=3).endswith("991 was then the only value.")


def test_a_max_without_values_is_null() -> None:
    turn = last_turn(update(2, 998, None))
    entries = [(998, 1, 1), (998, 2, 0)]
    assert told(turn, entries, epochs("start", "data", "data")) == (
        "top changed from 998 to NULL in epoch 2: the value 998 was retracted once "
        "(read from shop.product/2 [10, 20)); no value is left."
    )


def test_a_min_that_went_up_is_the_same_the_other_way_round() -> None:
    pair = [("-U", row(9, 1)), ("+U", row(9, 4))]
    turn = last_turn((2, pair))
    entries = [(1, 1, 1), (4, 1, 1), (9, 1, 1), (1, 2, 0)]
    assert told(turn, entries, epochs("start", "data", "data")) == (
        "least increased from 1 to 4 in epoch 2: the value 1 was retracted once "
        "(read from shop.product/2 [10, 20)); 4 is now the smallest of 2."
    )


def test_a_max_that_went_up_says_that_a_row_came() -> None:
    turn = last_turn(update(2, 991, 998))
    assert not turn.retracted
    assert told(turn, [(998, 2, 1)], epochs("start", "data", "data")) == (
        "top increased from 991 to 998 in epoch 2: a row with 998 was added "
        "(read from shop.product/2 [10, 20))."
    )


@pytest.mark.parametrize(
    ("kind", "why"),
    [("rewind", "the job was restored to an earlier epoch"), ("evolve", "the job's query changed")],
)
def test_a_job_that_was_set_back_took_no_row_away(kind: str, why: str) -> None:
    turn = last_turn(update(2, 998, 991))
    found = told(turn, [(998, 1, 1), (998, 2, 0)], epochs("start", "data", kind))
    assert why in found and "retracted once" not in found


def test_results_that_were_withheld_are_of_all_epochs_that_withheld_them() -> None:
    turn = last_turn(update(4, 998, 991))
    withheld = {2: {"agenda": {"withheld": 3}}, 3: {"agenda": {"withheld": 5}}}
    rows = epochs("start", "data", "data", "data", "time", watermarks=withheld)
    entries = [(998, 1, 1), (991, 1, 1), (998, 2, 0)]
    assert "(read by epochs 2 to 4 from shop.product/2 [10, 40))" in told(turn, entries, rows)
    assert "998 was retracted once" in told(turn, entries, rows)


def test_a_group_that_begins_or_ends_has_no_turn() -> None:
    assert (
        find_extreme_changes(PLAN, [epoch_of(1, [("+I", row(5))]), epoch_of(2, [("-D", row(5))])])
        == []
    )


def test_several_changes_of_one_epoch_are_one_turn() -> None:
    changes = [("-U", row(5)), ("+U", row(9)), ("-U", row(9)), ("+U", row(3))]
    (turn,) = find_extreme_changes(PLAN, [epoch_of(1, changes)])
    assert (turn.before, turn.after, turn.retracted) == (5, 3, True)


def test_only_the_greatest_and_the_least_have_turns() -> None:
    plan = parse_query(
        "SELECT name, MAX(v) + 1 AS more, ANY_VALUE(v) AS one, MAX(w) AS w FROM t GROUP BY name",
        COLUMNS,
    )
    assert [each.column for each in extreme_columns(plan)] == ["w"]


@pytest.mark.parametrize(
    ("call", "before", "after", "retreats"),
    [
        ("MAX(d)", "9.50", "10.00", False),
        ("MAX(d)", "10.00", "9.50", True),
        ("MAX(w)", "NaN", 3.5, True),
        ("MAX(w)", 3.5, "NaN", False),
        ("MAX(w)", -1.0, -2.0, True),
        ("MAX(day)", "2026-02-01", "2025-12-31", True),
        ("MIN(day)", "2026-02-01", None, True),
        ("MAX(name)", "b", "B", True),
        ("MIN(v)", None, 3, False),
        ("MAX(v)", 10, 9, True),
    ],
)
def test_values_are_compared_as_their_type_does(
    call: str, before: Any, after: Any, retreats: bool
) -> None:
    plan = parse_query(f"SELECT {call} AS r FROM t", COLUMNS)
    changes = [("-U", {"r": before}), ("+U", {"r": after})]
    (turn,) = find_extreme_changes(plan, [epoch_of(1, changes)])
    assert turn.retracted == retreats


def test_multisets_are_told_as_of_every_epoch_that_is_kept_apart() -> None:
    entries = [
        MultisetEntry(0, 5, 1, 2),
        MultisetEntry(0, 5, 3, 0),
        MultisetEntry(0, 7, 2, 1),
        MultisetEntry(1, 9, 2, 4),
    ]
    multisets = MultisetHistory(entries, merged_until=1)
    assert [multisets.size(0, epoch) for epoch in (0, 1, 2, 3, 9)] == [None, 2, 3, 1, 1]
    assert multisets.steps(0, 1, 3) == [ValueChange(7, 0, 1), ValueChange(5, 2, 0)]
    assert multisets.steps(0, 2, 9) == [ValueChange(5, 2, 0)]
    assert multisets.steps(2, 1, 3) == []
    assert multisets.steps(0, 0, 3) is None


def test_values_that_were_taken_away_and_never_given_are_none_that_is_there() -> None:
    multisets = MultisetHistory(
        [MultisetEntry(0, 5, 1, -2), MultisetEntry(0, 5, 2, 1)], merged_until=-1
    )
    assert [multisets.size(0, epoch) for epoch in (0, 1, 2)] == [0, 0, 1]
    assert multisets.steps(0, 0, 2) == [ValueChange(5, 0, 1)]
