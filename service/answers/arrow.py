"""Rows as an Arrow stream, typed as in the job's table: for pandas, Polars, DuckDB.

    rows as JSON ──► values of schemas.types.sql_types ──► Arrow columns ──► one stream

The index stores rows as JSON, which most clients want. Arrow is encoded on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa

from jobs.core.values.json_values import parser
from schemas.types.arrow_types import arrow_type
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import Kind, SqlType

_CHANGE_FIELDS = [("op", pa.string()), ("epoch", pa.int64()), ("seq", pa.int64())]


def encode_results(types: Mapping[str, SqlType], documents: Sequence[bytes]) -> bytes:
    """Encode result rows; `types` are in the order of the columns."""
    return _encode([], types, [], [msgspec.json.decode(each) for each in documents])


def encode_batches(
    types: Mapping[str, SqlType], pages: Iterable[Sequence[bytes]]
) -> Iterator[bytes]:
    """Encode pages of results as one stream; yield it piece by piece."""
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in types.items()])
    sink = BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for documents in pages:
            rows = [msgspec.json.decode(each) for each in documents]
            arrays = [
                make_column([row[name] for row in rows], kind) for name, kind in types.items()
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            yield _drain(sink)
    yield _drain(sink)


def _drain(sink: BytesIO) -> bytes:
    """Return the bytes written since the last call."""
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece


def encode_changes(types: Mapping[str, SqlType], documents: Sequence[bytes]) -> bytes:
    """Encode changelog rows, with op, epoch and seq before the columns of the row."""
    changes = [msgspec.json.decode(each) for each in documents]
    columns = [[change[name] for change in changes] for name, _ in _CHANGE_FIELDS]
    return _encode(_CHANGE_FIELDS, types, columns, [change["row"] for change in changes])


def _encode(
    fields: Sequence[tuple[str, pa.DataType]],
    types: Mapping[str, SqlType],
    columns: Sequence[list[Any]],  # of `fields`
    rows: Sequence[JsonObject],
) -> bytes:
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, fields, strict=True)]
    arrays += [make_column([row[name] for row in rows], kind) for name, kind in types.items()]
    names = [*fields, *((name, arrow_type(kind)) for name, kind in types.items())]
    # A result column may be named op or epoch too; Arrow allows duplicate names.
    schema = pa.schema([pa.field(name, kind) for name, kind in names])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def make_column(fields: Sequence[Any], kind: SqlType) -> pa.Array:
    """Convert the JSON values of one column to Arrow."""
    target = arrow_type(kind)
    if kind.kind is Kind.ARRAY:
        lengths = [None if field is None else len(field) for field in fields]
        items = [item for field in fields if field is not None for item in field]
        return _make_lists(lengths, make_column(items, kind.items[0]), target)
    convert = _find_converter(kind)
    values = [None if field is None else convert(field) for field in fields]
    if kind.kind is Kind.DATE:
        return pa.array(values, pa.int32()).view(target)
    if pa.types.is_timestamp(target):
        return pa.array(values, pa.int64()).view(target)
    return pa.array(values, target)


def _make_lists(lengths: Sequence[int | None], items: pa.Array, target: pa.DataType) -> pa.Array:
    """Return lists with these numbers of items; None is NULL."""
    ends = list(accumulate((length or 0 for length in lengths), initial=0))
    # For Arrow, a missing offset is NULL; the last offset is the number of items.
    offsets = [None if n is None else at for n, at in zip([*lengths, 0], ends, strict=True)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=target)


def _find_converter(kind: SqlType) -> Callable[[Any], Any]:
    """Return a function from JSON to the value that Arrow expects for a type."""
    if kind.integer:
        return int  # numbers beyond 2^53 are strings
    if kind.kind is Kind.DECIMAL:
        return Decimal
    return parser(kind)
