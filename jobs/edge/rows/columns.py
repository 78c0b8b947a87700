"""Columns of state: the cells of accumulators, and tables as a schema has them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.core.aggregates import Cell, Storage
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import decimal_units, to_decimals, to_list


def cell_type(cell: Cell) -> pa.DataType:
    """Return the Arrow type of an accumulator's cell."""
    if cell.storage is Storage.BIGINT:
        return pa.int64()
    if cell.storage is Storage.TEXT:
        return pa.string()
    return arrow_type(cell.decimal_type)


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
        return to_decimals(values, cell_type(cell))
    return pa.array(values, pa.int64())


def cells_from_arrow(array: pa.Array | pa.ChunkedArray, cell: Cell) -> list[int]:
    """Return the values of an accumulator's cell from an array."""
    if cell.storage is Storage.DECIMAL:
        return decimal_units(array)
    values = to_list(array)
    return [int(value) for value in values] if cell.storage is Storage.TEXT else values
