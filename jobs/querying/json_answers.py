"""Answer columns of DuckDB as JSON, and name their types.

Columns of a job's type have the values that REST shows: decimals, and whole numbers beyond 2^53,
are texts. A statement may build more than a job has:

    STRUCT ──► object     LIST ──► array     MAP ──► object, whose names are the keys as text
    other types (INTERVAL, UUID, ...) ──► text
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa

from jobs.core.values.json_values import Json
from jobs.reading.json_columns import safe_renderer
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, one_chunk
from schemas.types.sql_types import Kind, SqlType, timestamp

_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def render_column(column: pa.Array | pa.ChunkedArray) -> list[Json]:
    array = one_chunk(column)
    types = pa.types
    if types.is_struct(array.type):
        return _render_rows(array)
    if types.is_map(array.type):
        return _render_maps(array)
    if types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if types.is_list(array.type):
        return _split(render_column(array.values), array)
    kind = _scalar_type(array.type)
    if kind is None:
        return [None if value is None else str(value) for value in array.to_pylist()]
    write = safe_renderer(kind)
    values = from_arrow(array.cast(arrow_type(kind)), kind)
    return [None if value is None else write(value) for value in values]


def name_type(arrow: pa.DataType) -> str:
    """Return the name of a column's type: as in a job's columns, or as DuckDB has it in Arrow."""
    types = pa.types
    if types.is_struct(arrow):
        fields = (arrow.field(number) for number in range(arrow.num_fields))
        return f"ROW<{', '.join(f'{each.name} {name_type(each.type)}' for each in fields)}>"
    if types.is_map(arrow):
        return f"MAP<{name_type(arrow.key_type)}, {name_type(arrow.item_type)}>"
    if types.is_list(arrow) or types.is_fixed_size_list(arrow):
        return f"ARRAY<{name_type(arrow.value_type)}>"
    kind = _scalar_type(arrow)
    return str(arrow) if kind is None else str(kind)


def _render_rows(array: pa.StructArray) -> list[Json]:
    names = [array.type.field(number).name for number in range(array.type.num_fields)]
    columns = [render_column(array.field(number)) for number in range(array.type.num_fields)]
    return [
        dict(zip(names, values, strict=True)) if present else None
        for present, *values in zip(array.is_valid().to_pylist(), *columns, strict=True)
    ]


def _render_maps(array: pa.MapArray) -> list[Json]:
    keys = [key if isinstance(key, str) else json.dumps(key) for key in render_column(array.keys)]
    members = list(zip(keys, render_column(array.items), strict=True))
    return [None if each is None else dict(each) for each in _split(members, array)]


def _split(items: list[Any], array: pa.ListArray | pa.MapArray) -> list[Any]:
    bounds = pairwise(array.offsets.to_pylist())
    present = array.is_valid().to_pylist()
    return [
        items[start:end] if here else None
        for here, (start, end) in zip(present, bounds, strict=True)
    ]


def _scalar_type(arrow: pa.DataType) -> SqlType | None:
    """Return the SQL type whose values an Arrow column has; None for any other column."""
    types = pa.types
    if types.is_boolean(arrow):
        return SqlType(Kind.BOOLEAN)
    if types.is_integer(arrow) and not types.is_uint64(arrow):
        names = {8: Kind.TINYINT, 16: Kind.SMALLINT, 32: Kind.INT, 64: Kind.BIGINT}
        wide = types.is_unsigned_integer(arrow)
        return SqlType(Kind.BIGINT if wide else names[arrow.bit_width])
    if types.is_float32(arrow) or types.is_float64(arrow):
        return SqlType(Kind.FLOAT if types.is_float32(arrow) else Kind.DOUBLE)
    if types.is_decimal128(arrow):
        return SqlType(Kind.DECIMAL, arrow.precision, arrow.scale)
    if types.is_binary(arrow):
        return SqlType(Kind.BINARY)
    if types.is_string(arrow) or types.is_large_string(arrow):
        return SqlType(Kind.STRING)
    if types.is_date32(arrow):
        return SqlType(Kind.DATE)
    if types.is_timestamp(arrow) and arrow.unit != "ns":
        return timestamp(_PRECISION[arrow.unit], local_zone=arrow.tz is not None)
    return None
