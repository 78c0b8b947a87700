"""Write an answer: rows as JSON or CSV, with the values that REST shows; or an Arrow stream.

statement ──► tables of its jobs ──► DuckDB ──► Arrow ──► JSON, CSV or Arrow
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
from jobs.querying.engine import answer
from jobs.querying.json_answers import name_type, render_column
from jobs.querying.statement import StatementRefused, read_statement
from jobs.querying.tables import list_tables, read_job
from schemas import limits


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a statement, and the epoch of each table that it read."""

    epochs: Mapping[str, int]
    rows: pa.Table

    @property
    def columns(self) -> list[dict[str, str]]:
        fields = zip(self.rows.column_names, self.rows.columns, strict=True)
        return [{"name": name, "type": name_type(column.type)} for name, column in fields]

    def documents(self) -> Iterator[dict[str, Json]]:
        """Yield the rows as JSON objects."""
        names = self.rows.column_names
        columns = [render_column(column) for column in self.rows.columns]
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
        columns = [render_column(column) for column in self.rows.columns]
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
    jobs = list_tables(data)
    statement = read_statement(sql, jobs)
    read = {name: read_job(data, *place) for name, place in statement.tables.items()}
    try:
        rows = answer(statement.sql, {name: found.rows for name, found in read.items()})
    except StatementRefused as error:
        known = f"; the jobs are {', '.join(jobs) or 'none yet'}"
        if "Catalog Error: Table" not in str(error):
            raise
        missing = str(error).partition("\n")[0]  # without DuckDB's guess at one of its own tables
        raise StatementRefused(f"{missing}{known}") from None
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
