"""Convert Arrow columns to lists of Python values and back.

schemas.types.sql_types says which values.

    Arrow array  ──from_arrow, a SQL type───►  [7, "bolt", None, ...]
                 ◄─to_arrow─────────────────
                 ──to_list, as it is────────►
    Arrow table  ──to_tuples, some columns──►  [(7, "bolt"), ...]

`to_pylist` creates an Arrow scalar for each value, which takes longer than most work on the values.
Here NumPy copies numbers, and texts are decoded together and then split. Dates, timestamps and
decimals are integers in Python, as they are in Arrow's buffers, so both ways copy numbers, without
building a date or a Decimal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.types.arrow_types import arrow_type
from schemas.types.sql_types import COMPOSITE, WORD_DIGITS_MAX, Kind, SqlType

_WORD_MASK = (1 << 64) - 1


def from_arrow(array: pa.Array | pa.ChunkedArray, sql_type: SqlType) -> list[Any]:
    """Return the values of a column as the Python values of its SQL type."""
    array = one_chunk(array)
    if sql_type.kind in COMPOSITE:
        composite = _array_values if sql_type.kind is Kind.ARRAY else _row_values
        return composite(array, sql_type)
    if sql_type.kind is Kind.DECIMAL:
        return decimal_units(array)
    if sql_type.kind is Kind.DATE:
        return to_list(array.view(pa.int32()))
    if pa.types.is_timestamp(array.type):
        return to_list(array.view(pa.int64()))
    values = to_list(array)
    if sql_type.floating:  # one NaN object and no -0.0, so that equal floats are one value
        return [None if v is None else (v + 0.0 if v == v else math.nan) for v in values]
    return values


def to_tuples(table: pa.Table, columns: Sequence[tuple[str, SqlType]]) -> list[tuple[Any, ...]]:
    """Return some columns of a table as one tuple for each row."""
    if not columns:
        return [()] * table.num_rows
    return list(zip(*(from_arrow(table[name], kind) for name, kind in columns), strict=True))


def to_list(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the same list as `to_pylist`, only faster."""
    array = one_chunk(array)
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        whole = array.fill_null(pa.scalar(0).cast(kind)) if array.null_count else array
        return _with_nulls(whole.to_numpy(zero_copy_only=False).tolist(), array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _with_nulls(_split_texts(array, np.int32), array)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _with_nulls(_split_texts(array, np.int64), array)
    return array.to_pylist()  # type: ignore[no-any-return]


def decimal_units(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return decimals as unscaled integers; Arrow stores 16 bytes each, the low word first."""
    array = one_chunk(array)
    if len(array) == 0:
        return []
    words = np.frombuffer(array.buffers()[1], np.int64)
    words = words[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[0::2], words[1::2]
    if ((low >> 63) == high).all():  # every value fits its low word
        return _with_nulls(low.tolist(), array)
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    return _with_nulls([(top << 64) | (bottom & _WORD_MASK) for bottom, top in pairs], array)


def to_arrow(values: Sequence[Any], sql_type: SqlType) -> pa.Array:
    target = arrow_type(sql_type)
    if sql_type.kind in COMPOSITE:
        return _to_composites(values, sql_type, target)
    if sql_type.kind is Kind.DECIMAL:
        return to_decimals(values, target)
    if sql_type.kind is Kind.DATE:
        return pa.array(values, pa.int32()).view(target)
    if pa.types.is_timestamp(target):
        return pa.array(values, pa.int64()).view(target)
    return pa.array(values, target)


def rows_to_arrow(rows: Sequence[tuple[Any, ...]], types: Sequence[SqlType]) -> list[pa.Array]:
    """Return rows as one array for each of their columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return [to_arrow(column, kind) for column, kind in zip(columns, types, strict=True)]


def decimal_words(units: np.ndarray[Any, Any]) -> pa.Buffer:
    """Return scaled integers of 64 bits as decimals have them: two words, the low one first."""
    words = np.empty((len(units), 2), np.int64)
    words[:, 0] = units
    words[:, 1] = units >> 63
    return pa.py_buffer(words)


def to_decimals(values: Sequence[int | None], target: pa.Decimal128Type) -> pa.Array:
    """Return scaled integers as decimals: two 64-bit words each, the low word first."""
    if target.precision <= WORD_DIGITS_MAX:
        data = decimal_words(np.asarray(pa.array(values, pa.int64()).fill_null(0)))
    else:
        data = pa.py_buffer(
            b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
        )
    valid = None
    if None in values:
        valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(target, len(values), [valid, data])


def one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one contiguous array."""
    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    return array


def _split_texts(array: pa.Array, offset: type[np.signedinteger[Any]]) -> list[Any]:
    """Split the buffer that holds all texts (or bytes) of an array at its offsets."""
    if len(array) == 0:
        return []
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, offset)[array.offset : array.offset + len(array) + 1]
    first, last = int(ends[0]), int(ends[-1])
    octets = data.slice(first, last - first).to_pybytes() if data is not None else b""
    bounds = pairwise((ends - first).tolist())
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return [octets[start:end] for start, end in bounds]
    if not octets.isascii():  # a character may be more than a byte
        return [octets[start:end].decode() for start, end in bounds]
    text = octets.decode("ascii")
    return [text[start:end] for start, end in bounds]


def _array_values(array: pa.ListArray, sql_type: SqlType) -> list[Any]:
    items = from_arrow(array.values, sql_type.items[0])
    bounds = array.offsets.to_numpy().tolist()
    return _with_nulls([tuple(items[start:end]) for start, end in pairwise(bounds)], array)


def _row_values(array: pa.StructArray, sql_type: SqlType) -> list[Any]:
    parts = [from_arrow(array.field(i), item) for i, item in enumerate(sql_type.items)]
    return _with_nulls(list(zip(*parts, strict=True)), array)


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


def _to_composites(values: Sequence[Any], sql_type: SqlType, target: pa.DataType) -> pa.Array:
    """Return tuples as a list array or a struct array; NULL has no items, or NULL in each field."""
    absent = pa.array([value is None for value in values], pa.bool_())
    if sql_type.kind is Kind.ARRAY:
        sizes = [0 if value is None else len(value) for value in values]
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        flat = list(chain.from_iterable(value for value in values if value is not None))
        items = to_arrow(flat, sql_type.items[0])
        return pa.ListArray.from_arrays(offsets, items, type=target, mask=absent)
    nothing = (None,) * len(sql_type.items)
    rows = [nothing if value is None else value for value in values]
    parts = rows_to_arrow(rows, sql_type.items)
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=absent)
