"""Hash and compare rows of Arrow columns.

Equal rows have equal hashes on every machine and in every process. Floats are compared as their
bits: `packed_rows.canonical` makes equal ones equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.rows.consolidate import Booleans, Integers
from jobs.edge.rows.packed_rows import is_text, is_wide, octets_of
from schemas.limits import HASHED_TEXT_BYTES

Codes = np.ndarray[Any, np.dtype[np.uint64]]
_WORD = 8
_FACTOR, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_NULL = np.uint64(0x5851F42D4C957F2D)
_MASKS = np.array([2 ** (8 * size) - 1 for size in range(_WORD + 1)], np.uint64)


def hash_rows(columns: Sequence[pa.Array], count: int) -> Codes:
    hashed = np.zeros(count, np.uint64)
    for column in columns:
        own = _hash_texts(column) if is_text(column.type) else _hash_numbers(column)
        if column.null_count:
            own[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
        hashed = _mix(hashed, own)
    return hashed


def equal_rows(some: Sequence[pa.Array], others: Sequence[pa.Array], count: int) -> Booleans:
    """Return which of `count` rows are equal to their counterparts; NULL equals NULL."""
    equal = np.ones(count, np.bool_)
    for one, other in zip(some, others, strict=True):
        if pa.types.is_floating(one.type):
            bits = pa.int64() if one.type.bit_width == 64 else pa.int32()
            one, other = one.view(bits), other.view(bits)
        same = pc.equal(one, other)
        if same.null_count:
            same = pc.or_(same.fill_null(False), pc.and_(one.is_null(), other.is_null()))
        equal &= same.to_numpy(zero_copy_only=False)
    return equal


def _mix(hashed: Codes, words: Codes) -> Codes:
    hashed = (hashed ^ words) * _FACTOR
    return hashed ^ (hashed >> _HALF)


def _hash_numbers(column: pa.Array) -> Codes:
    octets = octets_of(column)
    words = np.zeros((len(octets), -(-octets.shape[1] // _WORD) * _WORD), np.uint8)
    words[:, : octets.shape[1]] = octets
    hashed = np.zeros(len(octets), np.uint64)
    for word in words.view(np.uint64).T:
        hashed = _mix(hashed, word)
    return hashed


def _hash_texts(column: pa.Array) -> Codes:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets or bytes(4), np.int32)
    ends = ends[column.offset : column.offset + len(column) + 1].astype(np.int64)
    starts, sizes = ends[:-1], np.diff(ends)
    first, last = (int(ends[0]), int(ends[-1])) if len(column) else (0, 0)
    octets = np.zeros(last - first + _WORD, np.uint8)
    octets[: last - first] = np.frombuffer(data or b"", np.uint8)[first:last]
    hashed = _mix(np.full(len(column), _NULL), sizes.astype(np.uint64))
    for at in range(0, min(int(sizes.max(initial=0)), HASHED_TEXT_BYTES), _WORD):
        rows = np.flatnonzero(sizes > at)
        words = octets[(starts[rows] - first + at)[:, None] + np.arange(_WORD)].view(np.uint64)
        left = np.minimum(sizes[rows] - at, _WORD)
        hashed[rows] = _mix(hashed[rows], words[:, 0] & _MASKS[left])
    rows = np.flatnonzero(sizes > HASHED_TEXT_BYTES)
    begins, view = starts[rows] - first, octets.data
    bounds = zip(begins + HASHED_TEXT_BYTES, begins + sizes[rows], strict=True)
    rests = np.array([crc32(view[start:end]) for start, end in bounds], np.uint64)
    hashed[rows] = _mix(hashed[rows], rests)
    return hashed


def text_bytes(columns: Sequence[pa.Array], rows: Integers) -> Integers:
    """Return how many bytes the texts of each of some rows have."""
    sizes = np.zeros(len(rows), np.int64)
    for column in columns:
        if is_text(column.type) and len(rows):
            width = "int64" if is_wide(column.type) else "int32"
            ends: Integers = np.frombuffer(column.buffers()[1], width)[column.offset :]
            sizes += ends[rows + 1] - ends[rows]
    return sizes
