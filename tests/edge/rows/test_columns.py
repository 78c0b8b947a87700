"""Values to Arrow and back: nothing is lost, rounded or moved, whatever the type and the cut.

Python values ──to_arrow──► array ──from_arrow──► the same values
                    └──► as Arrow itself reads them: dates, decimals, instants
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.aggregates import Cell, Storage
from jobs.edge.rows.columns import cell_type, cells_from_arrow, cells_to_arrow
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    SqlType,
    array_of,
    decimal,
    row_of,
    timestamp,
)
from tests.support.examples import examples
from tests.support.values import LTZ, VALUES, units, whole

COLUMNS = VALUES | {
    array_of(kind): st.lists(st.none() | VALUES[kind], max_size=4).map(tuple)
    for kind in (decimal(38, 0), FLOAT, STRING, DATE)
}
COLUMNS[row_of(BIGINT, LTZ, BINARY)] = st.tuples(
    *(st.none() | VALUES[kind] for kind in (BIGINT, LTZ, BINARY))
)
CELLS: dict[Cell, st.SearchStrategy[int]] = {
    Cell("n", Storage.BIGINT): whole(BIGINT),
    Cell("s", Storage.DECIMAL): units(38),
    Cell("d", Storage.DECIMAL, 38): units(38),
    Cell("t", Storage.TEXT): st.integers() | st.sampled_from([1 << 2161, -(1 << 2161), 0]),
}
by_type = pytest.mark.parametrize("sql_type", COLUMNS, ids=str)


def same(left: list[Any], right: list[Any]) -> bool:
    """Equal and of the same types; a NaN equals a NaN, and 0.0 is not -0.0."""
    return list(map(repr, left)) == list(map(repr, right))


@by_type
@examples(40)
@given(data=st.data())
def test_values_come_back_from_arrow_as_they_were(sql_type: SqlType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | COLUMNS[sql_type], max_size=20))
    array = to_arrow(values, sql_type)
    array.validate(full=True)
    assert array.type == arrow_type(sql_type)
    assert array.null_count == values.count(None)
    assert same(from_arrow(array, sql_type), values)
    # Any slice of it, and any chunks.
    start = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(start, len(values)))
    assert same(from_arrow(array[start:end], sql_type), values[start:end])
    chunks = pa.chunked_array([array[:start], array[start:end], array[end:]])
    assert same(from_arrow(chunks, sql_type), values)
    assert same(from_arrow(chunks.slice(start), sql_type), values[start:])


@by_type
@examples(40)
@given(data=st.data())
def test_values_come_back_from_parquet_as_they_were(sql_type: SqlType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | COLUMNS[sql_type], max_size=8))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": to_arrow(values, sql_type)}), sink, compression="zstd")
    table = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert table["x"].type == arrow_type(sql_type)
    assert same(from_arrow(table["x"], sql_type), values)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
@examples(40)
@given(data=st.data())
def test_cells_come_back_as_they_were(cell: Cell, data: st.DataObject) -> None:
    values = data.draw(st.lists(CELLS[cell], max_size=10))
    array = cells_to_arrow(values, cell)
    array.validate(full=True)
    assert array.type == cell_type(cell)
    start = data.draw(st.integers(0, len(values)))
    assert cells_from_arrow(array, cell) == values
    assert cells_from_arrow(array[start:], cell) == values[start:]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": array}), sink)
    assert cells_from_arrow(pq.read_table(pa.BufferReader(sink.getvalue()))["x"], cell) == values


@examples(40)
@given(st.lists(units(38), min_size=1), st.integers(0, 38))
def test_decimals_are_for_others_what_they_are_for_us(values: list[int], scale: int) -> None:
    with localcontext(prec=100):
        expected = [Decimal(value).scaleb(-scale) for value in values]
    assert to_arrow(values, decimal(38, scale)).to_pylist() == expected


@examples(40)
@given(st.lists(units(9)))
def test_decimals_made_by_others_are_read(values: list[int]) -> None:
    made = pa.array([Decimal(value).scaleb(-2) for value in values], pa.decimal128(9, 2))
    assert from_arrow(made, decimal(9, 2)) == values


def test_dates_and_instants_are_for_others_what_they_are_for_us() -> None:
    assert str(to_arrow([0, None, -1], DATE)[2]) == "1969-12-31"
    assert str(to_arrow([-1], timestamp(6))[0]) == "1969-12-31 23:59:59.999999"
    assert to_arrow([0], LTZ).type.tz == "UTC"


def test_floats_made_by_others_get_one_nan_and_no_negative_zero() -> None:
    read = from_arrow(pa.array([-0.0, math.nan, None, -1.5]), DOUBLE)
    assert repr(read) == "[0.0, nan, None, -1.5]"
    again = from_arrow(pa.array([float("nan")]), DOUBLE)
    assert read[1] is again[0], "as keys of a dict they must be one value"


def test_an_all_null_column_has_only_nulls() -> None:
    for sql_type in COLUMNS:
        column = pa.nulls(3, arrow_type(sql_type))
        assert from_arrow(column, sql_type) == [None, None, None]


def test_text_of_many_megabytes_comes_back() -> None:
    values = ["x" * 20_000_000, None, "", "ü" * 1_000_000]
    assert from_arrow(to_arrow(values, STRING), STRING) == values
    blobs = [b"\0" * 20_000_000, b"", None]
    assert from_arrow(to_arrow(blobs, BINARY), BINARY) == blobs


def test_a_value_beyond_its_type_is_refused_and_not_cut() -> None:
    for sql_type, value in [(INT, 2**31), (BIGINT, 2**63), (decimal(9, 0), 10**18)]:
        with pytest.raises((pa.ArrowInvalid, OverflowError, ValueError)):
            to_arrow([value], sql_type).validate(full=True)
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        cells_to_arrow([2**63], Cell("n", Storage.BIGINT))
    with pytest.raises(OverflowError):
        cells_to_arrow([2**127], Cell("s", Storage.DECIMAL))
