"""Answer a statement of a PostgreSQL client: messages that describe and hold its rows.

statement, parameters ──► translate ──► as any other statement ──► Arrow ──► T, D, D, D, ...
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from duckdb import DuckDBPyConnection

from jobs.querying.answers import answer_at_position, hold_pieces
from jobs.querying.engine import answer
from jobs.querying.postgres.catalog import translate
from jobs.querying.postgres.types import TEXT_OID, PgColumn, frame_value, read_parameter
from jobs.querying.statement import StatementRefused
from schemas import limits
from schemas.process.postgres import PostgresCall, pack_message, spread_formats
from schemas.process.statements import StatementReply

_COLUMN = struct.Struct(">IhIhih")
_COUNT = struct.Struct(">H")


def answer_postgres(
    data: Path,
    sql: str,
    call: PostgresCall,
    abandon: Callable[[], None] = lambda: None,
    database: DuckDBPyConnection | None = None,
) -> tuple[StatementReply, list[bytes]]:
    """Return a reply and its messages; raise StatementRefused."""
    describes = call.values is None
    translated = translate(sql, call.user, call.types if describes else ())
    types = (*call.types, *[0] * (translated.parameters - len(call.types)))
    types = tuple(oid or translated.types.get(number, 0) for number, oid in enumerate(types, 1))
    run = partial(
        answer,
        abandon=abandon,
        database=database,
        parameters=_read_parameters(types, call)[: translated.parameters],
        definitions=translated.definitions,
        describes=describes,
    )
    found = answer_at_position(data, translated.sql, run, lists_tables=translated.lists_tables)
    try:
        pieces = hold_pieces(_write(found.rows, () if describes else call.formats))
    except (struct.error, ValueError) as error:
        raise StatementRefused(f"the answer cannot be sent: {error}", code="22P03") from None
    parameters = [oid or TEXT_OID for oid in types]
    epochs = dict(found.epochs)
    count = found.rows.num_rows
    return StatementReply("answered", epochs=epochs, count=count, parameters=parameters), pieces


def _read_parameters(types: tuple[int, ...], call: PostgresCall) -> list[object]:
    if call.values is None:
        return [None] * len(types)
    if len(call.values) < len(types):
        reason = f"the statement has {len(types)} parameters, and {len(call.values)} are bound"
        raise StatementRefused(reason, code="08P01")
    try:
        formats = spread_formats(call.value_formats, len(call.values))
    except ValueError as error:
        raise StatementRefused(str(error), code="08P01") from None
    given = zip(types, call.values, formats, strict=False)
    return [read_parameter(oid, value, binary == 1) for oid, value, binary in given]


def _write(rows: pa.Table, formats: tuple[int, ...]) -> Iterator[bytes]:
    if rows.num_columns > limits.POSTGRES_COLUMNS_MAX:
        raise StatementRefused(
            f"the answer has {rows.num_columns} columns, and PostgreSQL's clients take at most "
            f"{limits.POSTGRES_COLUMNS_MAX}",
            code="54011",
        )
    spread = spread_formats(formats, rows.num_columns)
    columns = [PgColumn(field.type) for field in rows.schema]
    described = [
        name.encode() + b"\0" + _COLUMN.pack(0, 0, column.oid, column.size, column.modifier, binary)
        for name, column, binary in zip(rows.column_names, columns, spread, strict=True)
    ]
    yield pack_message(b"T", _COUNT.pack(len(columns)) + b"".join(described))
    count = _COUNT.pack(len(columns))
    for batch in rows.to_batches(limits.SQL_BATCH_ROWS):
        fields = [
            list(map(frame_value, column.render(values, binary == 1)))
            for column, values, binary in zip(columns, batch.columns, spread, strict=True)
        ]
        per_row = zip(*fields, strict=True) if fields else [()] * batch.num_rows
        yield b"".join(pack_message(b"D", count + b"".join(row)) for row in per_row)
