"""Encode Arrow columns as Avro, a whole column at a time.

    NULL, 7, 300 ──► 00 │ 02 0e │ 02 d8 04     the branch of ["null", "long"], then the number

Avro has no marks between values. So a record is what the columns have, joined row by row, like the
JSON of `jobs.reading.json_columns`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.publish.avro import is_milliseconds
from schemas.types.arrow_values import one_chunk
from schemas.types.sql_types import FLOATING, Kind, SqlType

_NULL, _PRESENT, _END = (pa.scalar(octet, pa.binary()) for octet in (b"\0", b"\2", b"\0"))
_EMPTY = pa.scalar(b"", pa.binary())
_STAMPS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)


def encode_column(column: pa.Array | pa.ChunkedArray, sql_type: SqlType) -> pa.Array:
    """Return each value as the union of null and its type."""
    array = one_chunk(column)
    if not len(array):
        return pa.array([], pa.binary())
    values = join_octets(_PRESENT, _encode(array, sql_type))
    return pc.if_else(pc.is_null(array), _NULL, values) if array.null_count else values


def encode_longs(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return numbers in Avro's variable length: 7 bits a byte, the lowest first."""
    raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    sizes = np.ones(len(raw), np.int64)
    for bits in range(7, 64, 7):
        sizes += raw >= np.uint64(1 << bits)
    places = np.arange(sizes.max(initial=1))
    octets = (raw[:, None] >> (7 * places).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    octets |= (places < sizes[:, None] - 1).astype(np.uint8) << 7
    return _to_binary(octets[places < sizes[:, None]], sizes)


def join_octets(*parts: Any) -> pa.Array:
    """Join arrays and constants row by row."""
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _encode(array: pa.Array, sql_type: SqlType) -> pa.Array:
    """Return each value; of NULL anything."""
    kind = sql_type.kind
    if kind is Kind.ARRAY:
        return _encode_arrays(array, sql_type)
    if kind is Kind.BOOLEAN:
        numbers = pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.uint8)
        return _to_binary(numbers, np.ones(len(array), np.int64))
    if kind in FLOATING:
        own = np.dtype("<f4" if kind is Kind.FLOAT else "<f8")
        numbers = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False).astype(own)
        return _to_binary(numbers.view(np.uint8), np.full(len(array), own.itemsize))
    if kind is Kind.DECIMAL:
        return _encode_decimals(array, sql_type)
    if kind is Kind.DATE:
        return encode_longs(_integers(array.view(pa.int32())))
    if kind in _STAMPS and pa.types.is_timestamp(array.type):
        numbers = _integers(pc.cast(array, pa.timestamp("us")).view(pa.int64()))
        return encode_longs(numbers // 1_000 if is_milliseconds(sql_type) else numbers)
    if sql_type.integer:
        return encode_longs(_integers(array))
    octets = pc.fill_null(array.cast(pa.binary()), b"")
    return join_octets(encode_longs(_integers(pc.binary_length(octets))), octets)


def _integers(array: pa.Array) -> npt.NDArray[np.int64]:
    whole = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return whole.astype(np.int64)  # type: ignore[no-any-return]


def _encode_decimals(array: pa.Array, sql_type: SqlType) -> pa.Array:
    """Return unscaled numbers, the highest byte first, in the bytes that the precision needs."""
    size = (10 ** (sql_type.precision or 0)).bit_length() // 8 + 1
    words = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset :]
    octets = np.empty((len(array), size + 1), np.uint8)
    octets[:, 0] = 2 * size
    octets[:, 1:] = words[: 16 * len(array)].reshape(-1, 16)[:, size - 1 :: -1]
    return _to_binary(octets.reshape(-1), np.full(len(array), size + 1))


def _encode_arrays(array: pa.ListArray, sql_type: SqlType) -> pa.Array:
    """Return the number of items, the items and a 0; of an empty array only the 0."""
    items = encode_column(array.values, sql_type.items[0])
    _, ends, data = items.buffers()
    starts = np.frombuffer(ends, np.int32)[items.offset : items.offset + len(items) + 1]
    bounds = array.offsets.to_numpy()
    joined = pa.Array.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(starts[bounds].tobytes()), data]
    )
    counts = np.diff(bounds).astype(np.int64)
    end = pc.if_else(pa.array(counts > 0), _END, _EMPTY)
    return join_octets(encode_longs(counts), joined, end)


def _to_binary(octets: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> pa.Array:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(octets))]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
