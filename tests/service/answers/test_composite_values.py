"""Arrays among the results that the service answers with, and rows among what explains them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from jobs.core.sql.select import parse_query
from jobs.reading.listing import ListingRefused, parse_conditions
from jobs.reading.row_shape import RowShape
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import BIGINT, DOUBLE, STRING, SqlType, array_of, decimal, row_of

LISTS: dict[SqlType, list[Any]] = {
    array_of(BIGINT): [(1, None, 2**63 - 1), None, ()],
    array_of(decimal(38, 2)): [(10**38 - 1, None), (-5,)],
    array_of(DOUBLE): [(0.5, math.nan, math.inf)],
    row_of(DOUBLE, STRING): [(None, "a"), None, (1.5, None)],
}


@pytest.mark.parametrize("sql_type", LISTS, ids=str)
def test_they_are_read_from_a_table_as_they_were_written(sql_type: SqlType) -> None:
    array = to_arrow(LISTS[sql_type], sql_type)
    assert repr(from_arrow(array, sql_type)) == repr(LISTS[sql_type])
    cut = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    assert repr(from_arrow(cut, sql_type)) == repr(LISTS[sql_type])


SHAPE = RowShape(
    parse_query(
        "SELECT k, ARRAY_AGG(v) AS vs, TOP_K(p, 2) AS ps FROM t GROUP BY k",
        {"k": STRING, "v": BIGINT, "p": decimal(10, 2)},
    ),
    safe=True,
)


def test_a_row_has_them_as_json_and_large_numbers_as_text() -> None:
    row = SHAPE.row(("a",), ((1, None, 2**60), (250, 100)))
    assert row == {"k": "a", "vs": [1, None, str(2**60)], "ps": ["2.50", "1.00"]}
    assert SHAPE.row(("a",), (None, None)) == {"k": "a", "vs": None, "ps": None}


def test_results_are_ordered_by_them_element_by_element() -> None:
    lists: list[Any] = [None, (), (None,), (1,), (1, None), (1, 2), (2,)]
    prices = array_of(decimal(10, 2))
    table = pa.table(
        {
            "k": to_arrow(["a"] * len(lists), STRING),
            "vs": to_arrow(lists, array_of(BIGINT)),
            "ps": to_arrow([None] * len(lists), prices),
        }
    )
    keys = [columns[1] for columns in SHAPE.encode_sortable(table)]
    assert keys == sorted(keys)


def test_a_condition_over_them_is_refused() -> None:
    with pytest.raises(ListingRefused, match="is a type of results"):
        parse_conditions(SHAPE.columns, ["vs=[1]"])
