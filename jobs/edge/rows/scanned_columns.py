"""Scanned columns: arrays of a kernel to Arrow arrays, without an object for any value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from jobs.core.formats.scanned import ScannedColumn
from jobs.edge.rows.columns import decimal_words
from schemas.types.arrow_types import arrow_type
from schemas.types.sql_types import Kind


def scanned_to_arrow(column: ScannedColumn) -> pa.Array:
    """Return the column as an array of its SQL type."""
    target, count = arrow_type(column.type), len(column.valid)
    missing = None if column.valid.all() else ~column.valid
    bitmap = None if missing is None else pa.array(column.valid).buffers()[1]
    if len(column.ends):
        buffers = [bitmap, pa.py_buffer(column.ends), pa.py_buffer(column.text)]
        return pa.Array.from_buffers(target, count, buffers)
    if column.type.kind is Kind.DECIMAL:
        return pa.Array.from_buffers(target, count, [bitmap, decimal_words(column.numbers)])
    if column.type.kind is Kind.BOOLEAN:
        return pa.array(column.numbers != 0, mask=missing)
    if column.type.kind is Kind.DOUBLE:
        return pa.array(column.numbers.view(np.float64), mask=missing)
    if column.type.kind is Kind.DATE:
        return pa.array(column.numbers.astype(np.int32), mask=missing).view(target)
    if pa.types.is_timestamp(target):
        return pa.array(column.numbers, mask=missing).view(target)
    return pa.array(column.numbers.astype(target.to_pandas_dtype()), mask=missing)
