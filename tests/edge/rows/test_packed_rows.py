"""Rows as bytes: they come back as they were, and other bytes are refused."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.edge.rows.packed_rows import RowPacker, canonical
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import SqlType

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "DECIMAL(10, 2)": st.integers(-(10**9), 10**9),
    "DECIMAL(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1),
    "STRING": st.text(max_size=5),
    "BINARY": st.binary(max_size=5),
    "DATE": st.integers(-(10**5), 10**5),
    "TIMESTAMP(3)": st.integers(-(10**15), 10**15),
    "TIMESTAMP_LTZ(3)": st.integers(-(10**15), 10**15),
    "TIME": st.just("10:11:12"),
}
TYPES = [SqlType.parse(name) for name in VALUES]
PACKER = RowPacker(list(map(arrow_type, TYPES)))
ROWS = st.lists(st.tuples(*(st.none() | each for each in VALUES.values())), max_size=4)


def arrays(rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    columns = zip(*rows, strict=True) if rows else [()] * len(TYPES)
    return [canonical(to_arrow(each, kind)) for each, kind in zip(columns, TYPES, strict=True)]


@given(ROWS)
def test_rows_come_back_as_they_were(rows: list[tuple[Any, ...]]) -> None:
    columns = arrays(rows)
    found = PACKER.unpack(PACKER.pack(columns))
    assert [each.type for each in found] == [each.type for each in columns]
    for one, other, kind in zip(found, columns, TYPES, strict=True):
        assert repr(from_arrow(one, kind)) == repr(from_arrow(other, kind))


@given(ROWS, st.integers(0, 3))
def test_the_bytes_of_a_row_do_not_depend_on_its_neighbours(
    rows: list[tuple[Any, ...]], skipped: int
) -> None:
    columns = arrays(rows)
    sliced = [column.slice(skipped) for column in columns]
    assert PACKER.pack(sliced) == PACKER.pack(columns)[skipped:]


def test_equal_floats_are_equal_bytes() -> None:
    packer = RowPacker([pa.float64()])
    column = canonical(pa.array([0.0, -0.0, math.nan, -math.nan, None]))
    zero, minus, one, other, absent = packer.pack([column])
    assert (zero, one) == (minus, other) and absent not in (zero, one)


def test_whole_numbers_sort_as_bytes() -> None:
    numbers = [-(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1]
    packed = RowPacker([pa.int64()], sorts=True).pack([pa.array(numbers)])
    assert packed == sorted(packed)


@pytest.mark.parametrize("damage", [lambda row: row[:-1], lambda row: row + b"x", lambda _: b""])
def test_bytes_of_another_length_are_refused(damage: Any) -> None:
    packer = RowPacker([pa.int64(), pa.string()])
    (row,) = packer.pack([pa.array([1]), pa.array(["a"])])
    with pytest.raises(ValueError):
        packer.unpack([row, damage(row)])


def test_a_text_that_is_none_is_refused() -> None:
    packer = RowPacker([pa.string()])
    (row,) = packer.pack([pa.array(["a"])])
    with pytest.raises(ValueError):
        packer.unpack([row[:-1] + b"\xff"])
