"""Convert Python values to Arrow arrays, without slow objects in between.

    list of int, str, ...  ──to_arrow──►  Arrow array of the SQL type

schemas.types.arrow_values converts back. Dates, timestamps and decimals are integers in memory (see
schemas.types.sql_types) and in Arrow's buffers. So they are copied as numbers, without building a
date or a Decimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.core.aggregates import Cell, Storage
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import decimal_units, to_list
from schemas.types.sql_types import COMPOSITE, WORD_DIGITS_MAX, Kind, SqlType


def cell_type(cell: Cell) -> pa.DataType:
    """Return the Arrow type of an accumulator's cell."""
    if cell.storage is Storage.BIGINT:
        return pa.int64()
    if cell.storage is Storage.TEXT:
        return pa.string()
    return arrow_type(cell.decimal_type)


def to_arrow(values: Sequence[Any], sql_type: SqlType) -> pa.Array:
    """Return values as an array of a SQL type."""
    target = arrow_type(sql_type)
    if sql_type.kind in COMPOSITE:
        return _to_composites(values, sql_type, target)
    if sql_type.kind is Kind.DECIMAL:
        return _to_decimals(values, target)
    if sql_type.kind is Kind.DATE:
        return pa.array(values, pa.int32()).view(target)
    if pa.types.is_timestamp(target):
        return pa.array(values, pa.int64()).view(target)
    return pa.array(values, target)


def rows_to_arrow(rows: Sequence[tuple[Any, ...]], types: Sequence[SqlType]) -> list[pa.Array]:
    """Return rows as one array for each of their columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return [to_arrow(column, kind) for column, kind in zip(columns, types, strict=True)]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema; columns that it lacks are NULL."""
    if table.schema.equals(schema):
        return table
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def cells_to_arrow(values: Sequence[int], cell: Cell) -> pa.Array:
    """Return the values of an accumulator's cell as an array."""
    if cell.storage is Storage.TEXT:
        return pa.array([str(value) for value in values], pa.string())
    if cell.storage is Storage.DECIMAL:
        return _to_decimals(values, cell_type(cell))
    return pa.array(values, pa.int64())


def cells_from_arrow(array: pa.Array | pa.ChunkedArray, cell: Cell) -> list[int]:
    """Return the values of an accumulator's cell from an array."""
    if cell.storage is Storage.DECIMAL:
        return decimal_units(array)
    values = to_list(array)
    return [int(value) for value in values] if cell.storage is Storage.TEXT else values


def decimal_words(units: np.ndarray[Any, Any]) -> pa.Buffer:
    """Return scaled integers of 64 bits as decimals have them: two words, the low one first."""
    words = np.empty((len(units), 2), np.int64)
    words[:, 0] = units
    words[:, 1] = units >> 63
    return pa.py_buffer(words)


def _to_decimals(values: Sequence[int | None], target: pa.Decimal128Type) -> pa.Array:
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
