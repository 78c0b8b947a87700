"""Arrow columns as the arrays of the fold's kernels, and its results as Arrow columns.

Arrow ──to_words──► int64, and which are not NULL       numbers, decimals, dates, times
      ──pack_keys─► bytes of each row's group           texts too
words ──results, cells──► Arrow
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.fold.columnar.query import is_text
from jobs.core.fold.columnar.results import ResultColumn
from jobs.core.formats.scanned import ScannedColumn
from jobs.core.kernels.group_keys import NUMBER_BYTES, add_text_sizes, put_numbers, put_texts
from jobs.core.kernels.group_table import KEY_PAD
from jobs.edge.rows.scanned_columns import scanned_to_arrow
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import one_chunk
from schemas.types.sql_types import Kind, SqlType

Array = np.ndarray[Any, Any]

_HALF_BITS = 32
_LOW_HALF = (1 << _HALF_BITS) - 1
_NO_ENDS = np.zeros(0, np.int32)


class PackedKeys(NamedTuple):
    """The key bytes of some rows."""

    data: Array
    ends: Array  # one more than rows

    def take(self, rows: Array) -> PackedKeys:
        """Return the keys of some rows."""
        return _pack(self._binary().take(pa.array(rows)))

    def encode(self) -> tuple[PackedKeys, Array]:
        """Return each key once, and for each row the number of its key."""
        encoded = self._binary().dictionary_encode()
        return _pack(encoded.dictionary), encoded.indices.to_numpy().astype(np.int64)

    def sort(self, rows: Array) -> Array:
        """Return the indexes of some rows in the order of their keys."""
        order = pc.sort_indices(self._binary().take(pa.array(rows)))
        return order.to_numpy().astype(np.int64)  # type: ignore[no-any-return]

    def _binary(self) -> pa.Array:
        buffers = [None, pa.py_buffer(self.ends), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.ends) - 1, buffers)


def _pack(keys: pa.Array) -> PackedKeys:
    """Return a large_binary array that begins at its first byte as keys."""
    _, ends, data = keys.buffers()
    offsets = np.frombuffer(ends, np.int64)[: len(keys) + 1]
    padded = np.zeros(int(offsets[-1]) + KEY_PAD, np.uint8)
    padded[: offsets[-1]] = np.frombuffer(data, np.uint8)[: offsets[-1]] if data else 0
    return PackedKeys(padded, offsets.copy())


def pack_keys(columns: Sequence[tuple[pa.Array, SqlType]], count: int) -> PackedKeys:
    """Return the key of each row, from the columns of its group."""
    sizes = np.zeros(count, np.int64)
    loaded: list[tuple[Array, Array | None, Array]] = []
    for column, sql_type in columns:
        if is_text(sql_type):
            data, ends, valid = _to_texts(column)
            add_text_sizes(data, ends, valid, sizes)
            loaded.append((data, ends, valid))
        else:
            values, valid = to_words(column, sql_type)
            sizes += np.where(valid, NUMBER_BYTES, 1)
            loaded.append((values, None, valid))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    keys = np.zeros(int(ends[-1]) + KEY_PAD, np.uint8)
    offsets = ends[:-1].copy()
    for data, bounds, valid in loaded:
        if bounds is None:
            put_numbers(data, valid, offsets, keys)
        else:
            put_texts(data, bounds, valid, offsets, keys)
    return PackedKeys(keys, ends)


def to_words(column: pa.Array | pa.ChunkedArray, sql_type: SqlType) -> tuple[Array, Array]:
    """Return values of at most 64 bits as integers, and which of them are not NULL."""
    array = one_chunk(column)
    valid = _valid(array)
    if sql_type.kind is Kind.DECIMAL:
        return decimal_halves(array)[0], valid
    if sql_type.kind is Kind.BOOLEAN:
        return array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64), valid
    if sql_type.kind is Kind.DATE:
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    values = np.frombuffer(array.buffers()[1] or b"", array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)].astype(np.int64), valid


def decimal_halves(column: pa.Array | pa.ChunkedArray) -> tuple[Array, Array]:
    """Return the low and the high words of decimals."""
    array = one_chunk(column)
    words = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    return words[:, 0].copy(), words[:, 1].copy()


def results_to_arrow(column: ResultColumn) -> pa.Array:
    """Return the values of an aggregate as an array of its type."""
    if column.high is None:
        return words_to_arrow(column.type, column.low, column.valid)
    missing = None if column.valid.all() else pa.array(column.valid).buffers()[1]
    return _decimals(column.low, column.high, arrow_type(column.type), missing)


def words_to_arrow(sql_type: SqlType, words: Array, valid: Array) -> pa.Array:
    """Return words as an array of a type; NULL where they are not valid."""
    return scanned_to_arrow(ScannedColumn(sql_type, valid, words, _NO_ENDS, b""))


def cells_to_words(column: pa.Array | pa.ChunkedArray) -> list[Array]:
    """Return the words of a cell from its column in the table."""
    if not pa.types.is_decimal(column.type):
        return [to_words(column, SqlType(Kind.BIGINT))[0]]
    low, high = decimal_halves(column)
    return [(high << _HALF_BITS) | ((low >> _HALF_BITS) & _LOW_HALF), low & _LOW_HALF]


def words_to_cells(words: Array, word: int, target: pa.DataType) -> pa.Array:
    """Return the column of a cell from the words of groups."""
    if not pa.types.is_decimal(target):
        return pa.array(words[:, word])
    high, low = words[:, word], words[:, word + 1]
    return _decimals((high << _HALF_BITS) | low, high >> _HALF_BITS, target, None)


def _decimals(low: Array, high: Array, target: pa.DataType, missing: pa.Buffer | None) -> pa.Array:
    words = pa.py_buffer(np.ascontiguousarray(np.stack([low, high], axis=1)))
    return pa.Array.from_buffers(target, len(low), [missing, words])


def _valid(array: pa.Array) -> Array:
    if not array.null_count:
        return np.ones(len(array), np.uint8)
    return array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)  # type: ignore[no-any-return]


def _to_texts(column: pa.Array | pa.ChunkedArray) -> tuple[Array, Array, Array]:
    """Return the bytes of texts, where each ends, and which of them are not NULL."""
    array = one_chunk(column)
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets or bytes(8), np.int64 if large else np.int32)
    ends = ends[array.offset : array.offset + len(array) + 1].astype(np.int64)
    octets = np.frombuffer(data or b"\0", np.uint8)
    octets.flags.writeable = False  # numba compiles for each kind of array
    return octets, ends, _valid(array)
