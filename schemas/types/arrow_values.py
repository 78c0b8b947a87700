"""Read Arrow columns as lists of Python values (schemas.types.sql_types says which).

    Arrow array  ──from_arrow, a SQL type───►  [7, "bolt", None, ...]
                 ──to_list, as it is────────►
    Arrow table  ──to_tuples, some columns──►  [(7, "bolt"), ...]

`to_pylist` creates an Arrow scalar for each value, which takes longer than most work on the values.
Here NumPy copies numbers, and texts are decoded together and then split. Dates, timestamps and
decimals are integers in Python, as they are in Arrow's buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.types.sql_types import COMPOSITE, Kind, SqlType

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
