"""Scanned columns: arrays of a kernel to Arrow arrays, without an object for any value."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.formats.scanned import Array, ScannedColumn
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import decimal_words, to_decimals
from schemas.types.sql_types import Kind

_FIRST_OF_TWO = 0xC2  # the first byte of a character from U+0080 on


def scanned_to_arrow(column: ScannedColumn) -> pa.Array:
    """Return the column as an array of its SQL type."""
    target, count = arrow_type(column.type), len(column.valid)
    missing = None if column.valid.all() else ~column.valid
    bitmap = None if missing is None else pa.array(column.valid).buffers()[1]
    if len(column.ends):
        return _convert_texts(column, bitmap)
    if column.type.kind is Kind.DECIMAL:
        return pa.Array.from_buffers(target, count, [bitmap, decimal_words(column.numbers)])
    if column.type.kind is Kind.BOOLEAN:
        return pa.array(column.numbers != 0, mask=missing)
    if column.type.kind is Kind.DATE:
        return pa.array(column.numbers.astype(np.int32), mask=missing).view(target)
    if pa.types.is_timestamp(target):
        return pa.array(column.numbers, mask=missing).view(target)
    if column.type.textual_time:
        return pa.array(column.numbers, mask=missing).view(pa.timestamp("ns")).cast(target)
    return pa.array(column.numbers.astype(target.to_pandas_dtype()), mask=missing)


def _convert_texts(column: ScannedColumn, bitmap: pa.Buffer | None) -> pa.Array:
    """Return texts, or what they are the texts of; the scan has checked that none of them fails."""
    target, count, kind = arrow_type(column.type), len(column.valid), column.type.kind
    ends, text = column.ends, column.text
    if kind is Kind.BINARY:
        ends, text = _to_bytes(column)
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(text)]
    if not column.type.floating and kind is not Kind.DECIMAL:
        return pa.Array.from_buffers(target, count, buffers)
    texts = pa.Array.from_buffers(pa.string(), count, buffers)
    if kind is Kind.DECIMAL and column.may_be_base64:
        return _read_base64(column, target, bitmap)
    if kind is Kind.DECIMAL:
        return texts.cast(target)
    # A number of JSON is a double first, so a FLOAT of it is rounded twice, as in Flink.
    numbers = texts.cast(pa.float64() if column.is_number else target).cast(target)
    return pc.add(numbers, pa.scalar(0.0, target))  # so that -0.0 becomes 0.0


def _read_base64(
    column: ScannedColumn, target: pa.Decimal128Type, bitmap: pa.Buffer | None
) -> pa.Array:
    """Return decimals of the bytes of their digits; if some are numbers, one by one."""
    if b"." in column.text or b"-" in column.text or (np.diff(column.ends) % 4).any():
        return to_decimals(column.values(), target)  # type: ignore[arg-type]
    octets = map(binascii.a2b_base64, column.cut())
    words = [each[::-1].ljust(16, b"\xff" if each[:1] >= b"\x80" else b"\0") for each in octets]
    buffers = [bitmap, pa.py_buffer(b"".join(words))]
    return pa.Array.from_buffers(target, len(column.valid), buffers)


def _to_bytes(column: ScannedColumn) -> tuple[Array, bytes]:
    """Return where the bytes of each BINARY end, and all bytes."""
    if not column.is_latin1:
        parts = [binascii.a2b_base64(text, strict_mode=True) for text in column.cut()]
        return np.cumsum([0, *map(len, parts)]).astype(np.int32), b"".join(parts)
    is_first = np.frombuffer(column.text, np.uint8) >= _FIRST_OF_TWO
    before = np.concatenate(([0], np.cumsum(is_first)))  # characters of two bytes become one
    return (column.ends - before[column.ends]).astype(np.int32), column.text.decode().encode(
        "latin-1"
    )
