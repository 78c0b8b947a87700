"""Columns: our Python values to Arrow arrays and back, without a detour over slow objects.

    list of int, str, ...  ──to_arrow──►  Arrow array of the SQL type  ──from_arrow──►  list

Dates, timestamps and decimals are integers in memory (see schemas.types), and integers in Arrow's
buffers too; so both ways are copies of numbers and never build date or Decimal objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.core.accumulators import Cell, Storage
from jobs.core.accumulators.numbers import NAN
from schemas.arrow_types import arrow_type
from schemas.types import COMPOSITE, Kind, SqlType

WORD_DIGITS_MAX = 18  # decimal digits that always fit a signed 64-bit word
_WORD_MASK = (1 << 64) - 1


def cell_type(cell: Cell) -> pa.DataType:
    if cell.storage is Storage.BIGINT:
        return pa.int64()
    if cell.storage is Storage.TEXT:
        return pa.string()
    return arrow_type(cell.decimal_type)


def to_arrow(values: Sequence[Any], sql_type: SqlType) -> pa.Array:
    target = arrow_type(sql_type)
    if sql_type.kind in COMPOSITE:
        return _composites(values, sql_type, target)
    if sql_type.kind is Kind.DECIMAL:
        return _decimals(values, target)
    if sql_type.kind is Kind.DATE:
        return pa.array(values, pa.int32()).view(target)
    if pa.types.is_timestamp(target):
        return pa.array(values, pa.int64()).view(target)
    return pa.array(values, target)


def from_arrow(array: pa.Array | pa.ChunkedArray, sql_type: SqlType) -> list[Any]:
    array = _one_chunk(array)
    if sql_type.kind is Kind.ARRAY:
        return _lists(array, sql_type.items[0])
    if sql_type.kind is Kind.ROW:
        return _rows(array, sql_type)
    if sql_type.kind is Kind.DECIMAL:
        return _units(array)
    if sql_type.integer:
        return _integers(array)
    if sql_type.kind is Kind.DATE:
        return _integers(array.view(pa.int32()))
    if pa.types.is_timestamp(array.type):
        return _integers(array.view(pa.int64()))
    values: list[Any] = array.to_pylist()
    if sql_type.floating:  # one NaN object and no -0.0, so that equal floats are one value
        return [
            None if value is None else (value + 0.0 if value == value else NAN) for value in values
        ]
    return values


def numbered(columns: Sequence[pa.Array], rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number for each row, from 0 without gaps; equal rows have equal ones."""
    numbers = np.zeros(rows, np.int64)
    for place, column in enumerate(columns):
        encoded = column.dictionary_encode(null_encoding="encode")
        numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
        if place:  # number anew what occurs, so that the numbers stay small with many columns
            numbers = pa.array(numbers).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def _integers(array: pa.Array) -> list[Any]:
    """NumPy makes a list of integers several times faster than Arrow does."""
    if not array.null_count:
        return array.to_numpy().tolist()  # type: ignore[no-any-return]
    values: list[Any] = array.fill_null(0).to_numpy().tolist()
    for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
        values[index] = None
    return values


def cells_to_arrow(values: Sequence[int], cell: Cell) -> pa.Array:
    if cell.storage is Storage.TEXT:
        return pa.array([str(value) for value in values], pa.string())
    if cell.storage is Storage.DECIMAL:
        return _decimals(values, cell_type(cell))
    return pa.array(values, pa.int64())


def cells_from_arrow(array: pa.Array | pa.ChunkedArray, cell: Cell) -> list[int]:
    array = _one_chunk(array)
    if cell.storage is Storage.TEXT:
        return [int(value) for value in array.to_pylist()]
    if cell.storage is Storage.DECIMAL:
        return _units(array)
    return _integers(array)


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    return array


def _decimals(values: Sequence[int | None], target: pa.Decimal128Type) -> pa.Array:
    """Scaled integers as decimals: two 64-bit words each, the low one first."""
    if target.precision <= WORD_DIGITS_MAX:
        low = np.asarray(pa.array(values, pa.int64()).fill_null(0))
        words = np.empty((len(values), 2), np.int64)
        words[:, 0] = low
        words[:, 1] = low >> 63
        data = words.tobytes()
    else:
        data = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
    valid = None
    if None in values:
        valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(target, len(values), [valid, pa.py_buffer(data)])


def _units(array: pa.Array) -> list[Any]:
    """Decimals as the integers that they scale."""
    if len(array) == 0:
        return []
    words = np.frombuffer(array.buffers()[1], np.int64)
    words = words[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[0::2], words[1::2]
    if ((low >> 63) == high).all():  # every value fits its low word
        units = low.tolist()
    else:
        pairs = zip(low.tolist(), high.tolist(), strict=True)
        units = [(top << 64) | (bottom & _WORD_MASK) for bottom, top in pairs]
    if array.null_count:
        valid = array.is_valid().to_pylist()
        return [value if there else None for value, there in zip(units, valid, strict=True)]
    return units  # type: ignore[no-any-return]


def _composites(values: Sequence[Any], sql_type: SqlType, target: pa.DataType) -> pa.Array:
    """Tuples as a list array or a struct array; of NULL the parts are left out, or NULL."""
    absent = pa.array([value is None for value in values], pa.bool_())
    if sql_type.kind is Kind.ARRAY:
        sizes = [0 if value is None else len(value) for value in values]
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        flat = list(chain.from_iterable(value for value in values if value is not None))
        items = to_arrow(flat, sql_type.items[0])
        return pa.ListArray.from_arrays(offsets, items, type=target, mask=absent)
    nothing = (None,) * len(sql_type.items)
    rows = [nothing if value is None else value for value in values]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(nothing)
    parts = [to_arrow(column, item) for column, item in zip(columns, sql_type.items, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=absent)


def _lists(array: pa.ListArray, item: SqlType) -> list[Any]:
    items = from_arrow(array.values, item)
    bounds = array.offsets.to_numpy().tolist()
    lists: list[Any] = [tuple(items[start:end]) for start, end in pairwise(bounds)]
    return _without_nulls(lists, array)


def _rows(array: pa.StructArray, sql_type: SqlType) -> list[Any]:
    parts = [from_arrow(array.field(i), item) for i, item in enumerate(sql_type.items)]
    return _without_nulls(list(zip(*parts, strict=True)), array)


def _without_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values
