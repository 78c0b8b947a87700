"""Columns whose texts have more bytes than Arrow's offsets of 32 bits can count.

columns of a bucket ──concat──► one array, with offsets of 64 bits if its texts need them
      rows of some MB of it ──narrow──► offsets of 32 bits, as everything else has
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from schemas import limits

T = TypeVar("T", pa.Table, pa.RecordBatch)
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_NARROW = {wide: kind for kind, wide in _WIDE.items()}


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the arrays as one, with offsets of 64 bits if its texts need them."""
    if len(arrays) == 1:
        return arrays[0]
    kinds = {array.type for array in arrays}
    if len(kinds) > 1 or sum(array.nbytes for array in arrays) > limits.ARRAY_TEXT_BYTES_MAX:
        arrays = [array.cast(_WIDE.get(array.type, array.type)) for array in arrays]
    return pa.concat_arrays(arrays)


def narrow(array: pa.Array) -> pa.Array:
    """Return texts of bounded size with offsets of 32 bits."""
    kind = _NARROW.get(array.type)
    return array if kind is None else array.cast(kind)


def widen(rows: pa.Table) -> pa.Table:
    """Return rows as one array for each column."""
    columns = [concat(column.chunks) if column.num_chunks else column for column in rows.columns]
    fields = zip(rows.schema, columns, strict=True)
    return pa.table(columns, pa.schema([field.with_type(each.type) for field, each in fields]))


def narrow_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in arrays of the types of a schema, as many as their texts need."""
    if rows.schema == schema:
        return rows
    pieces = split_rows(rows, limits.ARRAY_TEXT_BYTES_MAX)
    # A slice keeps its offsets, which are those of the whole array: copy it.
    copies = (piece.take(pa.array(range(len(piece)))) for piece in pieces)
    return pa.concat_tables([copy.cast(schema) for copy in copies])


def split_rows(rows: T, size_max: int) -> Iterator[T]:
    """Split rows into pieces of at most `size_max` bytes; a larger row is a piece of its own."""
    if rows.nbytes <= size_max or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from split_rows(rows.slice(0, half), size_max)
    yield from split_rows(rows.slice(half), size_max)
