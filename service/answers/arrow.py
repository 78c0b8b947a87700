"""Rows as an Arrow stream, typed as in the job's table: for pandas, Polars, DuckDB.

    rows as JSON ──► values of schemas.types.sql_types ──► Arrow columns ──► one stream

The index stores rows as JSON, which most clients want. Arrow is encoded on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import msgspec
import pyarrow as pa

from jobs.core.values.json_values import parser
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import Kind, SqlType

_CHANGE_FIELDS = [("op", pa.string()), ("epoch", pa.int64()), ("seq", pa.int64())]


def encode_results(types: Mapping[str, SqlType], documents: Sequence[bytes]) -> bytes:
    """Encode result rows; `types` are in the order of the columns."""
    return b"".join(encode_batches(types, [documents]))


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
    arrays = [pa.array([each[name] for each in changes], kind) for name, kind in _CHANGE_FIELDS]
    arrays += [
        make_column([each["row"][name] for each in changes], kind) for name, kind in types.items()
    ]
    names = [*_CHANGE_FIELDS, *((name, arrow_type(kind)) for name, kind in types.items())]
    # A result column may be named op or epoch too; Arrow allows duplicate names.
    schema = pa.schema([pa.field(name, kind) for name, kind in names])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def make_column(fields: Sequence[Any], kind: SqlType) -> pa.Array:
    """Convert the JSON values of one column to Arrow."""
    read = _make_reader(kind)
    return to_arrow([None if field is None else read(field) for field in fields], kind)


def _make_reader(kind: SqlType) -> Callable[[Any], Any]:
    """Return a function from JSON, as it is in the index, to values of a type."""
    if kind.integer:
        return int  # numbers beyond 2^53 are strings
    if kind.kind is Kind.DECIMAL:
        return lambda text: int(text.replace(".", ""))  # it has all digits of the scale
    if kind.kind is Kind.ARRAY:
        read = _make_reader(kind.items[0])
        return lambda items: [None if item is None else read(item) for item in items]
    return parser(kind)
