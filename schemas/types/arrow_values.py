"""Values out of Arrow: a column as a list of our Python values (see schemas.types.sql_types).

    Arrow array  ──from_arrow, of a SQL type──►  [7, "bolt", None, ...]
                 ──listed, as it is──────────►
    Arrow table  ──tuples, of some columns───►  [(7, "bolt"), ...]

Arrow's own way makes an object of each value on the way to each value, which takes longer than
most of what is done with them. Numbers are copied by NumPy here; texts are decoded all at once,
and cut. Dates, timestamps and decimals are integers in memory, and in Arrow's buffers too.
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
    array = one_chunk(array)
    if sql_type.kind in COMPOSITE:
        return _lists(array, sql_type) if sql_type.kind is Kind.ARRAY else _rows(array, sql_type)
    if sql_type.kind is Kind.DECIMAL:
        return decimal_units(array)
    if sql_type.kind is Kind.DATE:
        return listed(array.view(pa.int32()))
    if pa.types.is_timestamp(array.type):
        return listed(array.view(pa.int64()))
    found = listed(array)
    if sql_type.floating:  # one NaN object and no -0.0, so that equal floats are one value
        return [None if v is None else (v + 0.0 if v == v else math.nan) for v in found]
    return found


def tuples(table: pa.Table, columns: Sequence[tuple[str, SqlType]]) -> list[tuple[Any, ...]]:
    """Some columns of a table, row by row."""
    if not columns:
        return [()] * table.num_rows
    return list(zip(*(from_arrow(table[name], kind) for name, kind in columns), strict=True))


def listed(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """What `to_pylist` gives."""
    array = one_chunk(array)
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        whole = array.fill_null(pa.scalar(0).cast(kind)) if array.null_count else array
        return _with_nulls(whole.to_numpy(zero_copy_only=False).tolist(), array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _with_nulls(_cut(array, np.int32), array)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _with_nulls(_cut(array, np.int64), array)
    return array.to_pylist()  # type: ignore[no-any-return]


def decimal_units(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Decimals as the integers that they scale: 16 bytes each, the low word first."""
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
    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    return array


def _cut(array: pa.Array, offset: type[np.signedinteger[Any]]) -> list[Any]:
    """Texts, or bytes, out of the one buffer that has all of them."""
    if len(array) == 0:
        return []
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, offset)[array.offset : array.offset + len(array) + 1]
    first, last = int(ends[0]), int(ends[-1])
    octets = data.slice(first, last - first).to_pybytes() if data is not None else b""
    places = pairwise((ends - first).tolist())
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return [octets[start:end] for start, end in places]
    if not octets.isascii():  # a character may be more than a byte
        return [octets[start:end].decode() for start, end in places]
    text = octets.decode("ascii")
    return [text[start:end] for start, end in places]


def _lists(array: pa.ListArray, sql_type: SqlType) -> list[Any]:
    items = from_arrow(array.values, sql_type.items[0])
    bounds = array.offsets.to_numpy().tolist()
    return _with_nulls([tuple(items[start:end]) for start, end in pairwise(bounds)], array)


def _rows(array: pa.StructArray, sql_type: SqlType) -> list[Any]:
    parts = [from_arrow(array.field(i), item) for i, item in enumerate(sql_type.items)]
    return _with_nulls(list(zip(*parts, strict=True)), array)


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values
