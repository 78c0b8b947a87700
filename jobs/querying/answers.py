"""Write an answer: rows as JSON or CSV, with the values that REST shows; or an Arrow stream.

Arrow column ──► its SQL type ──► typed JSON: decimals, and whole numbers beyond 2^53, as texts
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.core.values.json_values import Json
from jobs.edge.process.job_directory import list_jobs
from jobs.querying.engine import answer
from jobs.querying.statement import StatementRefused, read_statement
from jobs.querying.tables import read_job
from jobs.table.json_columns import safe_renderer
from schemas import limits
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow
from schemas.types.sql_types import Kind, SqlType, array_of, timestamp

_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a statement, and the epoch of each table that it read."""

    epochs: Mapping[str, int]
    rows: pa.Table

    @property
    def columns(self) -> list[dict[str, str]]:
        fields = zip(self.rows.column_names, self.rows.columns, strict=True)
        return [{"name": name, "type": _type_name(column.type)} for name, column in fields]

    def documents(self) -> Iterator[dict[str, Json]]:
        """Yield the rows as JSON objects."""
        names = self.rows.column_names
        columns = [_render(column) for column in self.rows.columns]
        for number in range(self.rows.num_rows):
            yield {name: column[number] for name, column in zip(names, columns, strict=True)}

    def document(self) -> dict[str, Any]:
        """Return the answer of `POST /v1/sql`."""
        return {
            "epochs": dict(self.epochs),
            "columns": self.columns,
            "rows": list(self.documents()),
        }

    def write_csv(self) -> str:
        sink = io.StringIO()
        writer = csv.writer(sink)
        writer.writerow(self.rows.column_names)
        columns = [_render(column) for column in self.rows.columns]
        writer.writerows(
            [_csv_field(column[number]) for column in columns]
            for number in range(self.rows.num_rows)
        )
        return sink.getvalue()

    def write_arrow(self) -> bytes:
        """Return an Arrow stream, with the epochs in the metadata of its schema."""
        rows = self.rows.replace_schema_metadata({"epochs": json.dumps(dict(self.epochs))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def answer_statement(data: Path, sql: str) -> Answer:
    """Answer a statement over the jobs of a data directory; raise StatementRefused."""
    if len(sql) > limits.QUERY_CHARACTERS_MAX:
        raise StatementRefused(
            f"the statement has {len(sql)} characters; use at most {limits.QUERY_CHARACTERS_MAX}"
        )
    jobs = list_jobs(data)
    statement = read_statement(sql, jobs)
    read = {name: read_job(data, *place) for name, place in statement.tables.items()}
    try:
        rows = answer(statement.sql, {name: found.rows for name, found in read.items()})
    except StatementRefused as error:
        known = f"; the jobs are {', '.join(jobs) or 'none yet'}"
        hint = known if "Catalog Error: Table" in str(error) else ""
        raise StatementRefused(f"{error}{hint}") from None
    rows = rows.rename_columns(distinct_names(rows.column_names))
    return Answer({name: found.epoch for name, found in read.items()}, rows)


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return names of columns as DuckDB's tables have them: n, n_1, n_2 for three called n.

    `SELECT * FROM a JOIN b USING (name)` has the results of both, which often share a name."""
    taken = {name.lower() for name in names}
    seen: set[str] = set()
    found = []
    for name in names:
        number, distinct = 0, name
        while distinct.lower() in seen or (number and distinct.lower() in taken):
            number += 1
            distinct = f"{name}_{number}"
        seen.add(distinct.lower())
        found.append(distinct)
    return found


def _csv_field(value: Json) -> Any:
    return json.dumps(value) if isinstance(value, bool | list | dict) else value


def _render(column: pa.ChunkedArray) -> list[Json]:
    kind = _sql_type(column.type)
    if kind is None:
        return [None if value is None else str(value) for value in column.to_pylist()]
    column = column.cast(arrow_type(kind))
    write = safe_renderer(kind)
    return [None if value is None else write(value) for value in from_arrow(column, kind)]


def _type_name(arrow: pa.DataType) -> str:
    kind = _sql_type(arrow)
    return str(arrow) if kind is None else str(kind)


def _sql_type(arrow: pa.DataType) -> SqlType | None:
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
    if types.is_list(arrow):
        item = _sql_type(arrow.value_type)
        return None if item is None else array_of(item)
    return None
