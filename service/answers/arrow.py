"""Rows as an Arrow stream, typed as in the job's table: for pandas, Polars, DuckDB.

    rows as JSON ──► values of schemas.types.sql_types ──► Arrow columns ──► one stream

The index keeps a row as the JSON that most clients want; this is its other form, made when asked.
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
from schemas.types.sql_types import Kind, SqlType

_CHANGE_FIELDS = [("op", pa.string()), ("epoch", pa.int64()), ("seq", pa.int64())]


def result_stream(types: Mapping[str, SqlType], documents: Sequence[bytes]) -> bytes:
    """Rows of results; `types` in the order of the columns."""
    return _stream([], types, [], [msgspec.json.decode(each) for each in documents])


def result_batches(
    types: Mapping[str, SqlType], pages: Iterable[Sequence[bytes]]
) -> Iterator[bytes]:
    """Pages of results as one stream of a batch each, piece by piece."""
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in types.items()])
    sink = BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for documents in pages:
            rows = [msgspec.json.decode(each) for each in documents]
            arrays = [column([row[name] for row in rows], kind) for name, kind in types.items()]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            yield _taken(sink)
    yield _taken(sink)


def _taken(sink: BytesIO) -> bytes:
    """What was written since the last time."""
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece


def change_stream(types: Mapping[str, SqlType], documents: Sequence[bytes]) -> bytes:
    """Rows of a changelog, with op, epoch and seq before the columns of the row."""
    changes = [msgspec.json.decode(each) for each in documents]
    heads = [[change[name] for change in changes] for name, _ in _CHANGE_FIELDS]
    return _stream(_CHANGE_FIELDS, types, heads, [change["row"] for change in changes])


def _stream(
    fields: Sequence[tuple[str, pa.DataType]],
    types: Mapping[str, SqlType],
    heads: Sequence[list[Any]],
    rows: Sequence[dict[str, Any]],
) -> bytes:
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(heads, fields, strict=True)]
    arrays += [column([row[name] for row in rows], kind) for name, kind in types.items()]
    names = [*fields, *((name, arrow_type(kind)) for name, kind in types.items())]
    # A result may be called op or epoch as well: names may come twice, and Arrow bears it.
    schema = pa.schema([pa.field(name, kind) for name, kind in names])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def column(fields: Sequence[Any], kind: SqlType) -> pa.Array:
    """JSON values of one column as Arrow has them."""
    target = arrow_type(kind)
    if kind.kind is Kind.ARRAY:
        lengths = [None if field is None else len(field) for field in fields]
        items = [item for field in fields if field is not None for item in field]
        return _lists(lengths, column(items, kind.items[0]), target)
    read = _reader(kind)
    values = [None if field is None else read(field) for field in fields]
    if kind.kind is Kind.DATE:
        return pa.array(values, pa.int32()).view(target)
    if pa.types.is_timestamp(target):
        return pa.array(values, pa.int64()).view(target)
    return pa.array(values, target)


def _lists(lengths: Sequence[int | None], items: pa.Array, target: pa.DataType) -> pa.Array:
    """Lists of so many items each; None is NULL."""
    ends = list(accumulate((length or 0 for length in lengths), initial=0))
    # A missing offset is a NULL of Arrow's; the last one is where the items end.
    offsets = [None if n is None else at for n, at in zip([*lengths, 0], ends, strict=True)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=target)


def _reader(kind: SqlType) -> Callable[[Any], Any]:
    """JSON to what Arrow takes for a type."""
    if kind.integer:
        return int  # those beyond 2^53 are texts
    if kind.kind is Kind.DECIMAL:
        return Decimal
    return parser(kind)
