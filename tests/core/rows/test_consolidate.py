"""Consolidation: the weighted rows of a range suffice, and none of them is redundant."""

from __future__ import annotations

import numpy as np

from jobs.core.rows.consolidate import RUNNING_BITS, Consolidation, consolidate, group_indexes
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import SqlType

A, B, Z = ("a", 1), ("b", 2), ("z", 3)
TYPES = {"k": SqlType.parse("STRING"), "v": SqlType.parse("STRING")}


def shipped(
    *changes: tuple[int, Row], ordinal: int = 0, with_heads: bool = True
) -> list[tuple[Row, int, int]]:
    consolidation = Consolidation(ordinal)
    consolidation.add(changes)
    return list(zip(*consolidation.consolidate(with_heads=with_heads), strict=True))


def test_equal_rows_add_up_in_any_order() -> None:
    changes = (-1, A), (1, B), (-1, Z), (1, A), (1, B), (1, A)
    assert shipped(*changes, with_heads=False) == [(A, 0, 1), (B, 1, 2), (Z, 2, -1)]


def test_a_row_that_cancelled_is_shipped_only_where_it_matters_that_it_came() -> None:
    consolidation = Consolidation(0)
    consolidation.add([(1, A), (1, B), (-1, A)])
    assert consolidation.consolidate() == ([B], [1], [1])
    assert consolidation.consolidate(keep_zeros=True) == ([A, B], [0, 1], [0, 1])


def test_equal_rows_add_up_and_a_retraction_before_its_own_accumulate_goes_alone() -> None:
    assert shipped((1, A), (1, B), (-1, A), (-1, Z), (1, A)) == [(A, 0, 1), (B, 1, 1), (Z, ~3, -1)]


def test_weights_of_more_than_53_bits_are_exact() -> None:
    numbers, weights = np.array([0, 0, 1]), np.array([2**61, 1, -(2**61) - 1])
    assert consolidate(0, numbers, weights).weights.tolist() == [2**61 + 1, -(2**61) - 1]


def test_each_head_is_shipped_for_itself_with_its_position() -> None:
    assert shipped((-1, A), (-1, A), (1, A), (-1, A)) == [(A, 2, 0), (A, ~0, -1), (A, ~1, -1)]


def test_a_row_that_cancelled_is_shipped_for_its_first_plus() -> None:
    assert shipped((1, A), (-1, A)) == [(A, 0, 0)]


def test_positions_of_a_later_range_are_behind_all_of_an_earlier_one() -> None:
    (_, first, _), (_, head, _) = shipped((-1, A), (1, B), ordinal=3)
    assert first == (3 << RUNNING_BITS) + 1
    assert ~head == 3 << RUNNING_BITS
    (_, earlier, _), *_ = shipped(*[(1, (i,)) for i in range(1_000)], ordinal=2)
    assert earlier < ~head


def test_messages_continue_each_other() -> None:
    one, several = Consolidation(0), Consolidation(0)
    changes = [(-1, A), (1, A), (1, B), (-1, B), (-1, Z), (1, A)]
    one.add(changes)
    for change in changes:
        several.add([change])
    several.add([])
    assert one.consolidate() == several.consolidate()
    assert one.consolidate(with_heads=True) == several.consolidate(with_heads=True)
    assert one.changes == several.changes == len(changes)


def test_a_row_of_weight_0_stays_behind_once_its_group_is_known_to_live() -> None:
    consolidation = Consolidation(0)
    first, later, other = ("a", 1), ("a", 2), ("b", 1)
    consolidation.add([(1, first), (-1, first), (1, later), (-1, later), (1, other), (-1, other)])
    rows, positions, weights = consolidation.consolidate(lambda row: row[0], with_heads=True)
    assert (rows, positions, weights) == ([first, other], [0, 4], [0, 0])


def test_heads_are_shipped_whatever_is_known_of_their_group() -> None:
    consolidation = Consolidation(0)
    consolidation.add([(1, ("a", 1)), (-1, ("a", 2)), (-1, ("b", 2))])
    rows, _, _ = consolidation.consolidate(lambda row: row[0], with_heads=True)
    assert rows == [("a", 1), ("a", 2), ("b", 2)]


def test_a_group_is_read_off_the_row_where_nothing_stands_between() -> None:
    assert group_indexes(parse_query("SELECT v, MAX(k) AS top FROM t GROUP BY v", TYPES)) == (1,)
    assert group_indexes(parse_query("SELECT MAX(v) AS top FROM t", TYPES)) == ()


def test_no_row_stays_behind_where_a_where_or_an_expression_has_to_see_it() -> None:
    """A row of weight 0 whose expression fails still sends its messages to quarantine."""
    for sql in (
        "SELECT k, COUNT(*) AS n FROM t WHERE v = '1' GROUP BY k",
        "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k",
        "SELECT u, COUNT(*) AS n FROM (SELECT UPPER(k) AS u FROM t) GROUP BY u",
    ):
        assert group_indexes(parse_query(sql, TYPES)) is None
