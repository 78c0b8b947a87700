"""Write an answer: rows as JSON or CSV, with the values that REST shows; or an Arrow stream.

statement ──► tables of its jobs ──► DuckDB ──► Arrow ──► JSON, CSV or Arrow

JSON repeats the names of the columns in every row, so it may be ten times as large as Arrow. All
forms have the same limit, which is checked while they are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

import pyarrow as pa
from duckdb import DuckDBPyConnection

from jobs.core.values.csv_lines import write_line
from jobs.core.values.json_values import Json
from jobs.querying.engine import MissingTable, answer
from jobs.querying.json_answers import name_type, render_column
from jobs.querying.kept import JobResults
from jobs.querying.statement import (
    ANSWER_TOO_LARGE,
    Moment,
    StatementRefused,
    name_jobs,
    point_at,
    read_statement,
)
from jobs.querying.tables import list_tables, make_empty, read_job
from schemas import limits

AnswerForm = Literal["lines", "json", "csv", "arrow"]  # `json` is the answer of `POST /v1/sql`

_UNWRITABLE = (
    "the answer has a value that cannot be written: a time outside the years 1 to 9999, or one "
    "that is nested too deeply; CAST it to VARCHAR"
)


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
        for values in self._values():
            yield dict(zip(names, values, strict=True))

    def write(self, form: AnswerForm) -> list[bytes]:
        """Return the answer in pieces; raise StatementRefused if it is too large or unwritable."""
        return hold_pieces(self._pieces(form))

    def _pieces(self, form: AnswerForm) -> Iterator[bytes]:
        match form:
            case "lines":
                yield from (f"{_to_json(row)}\n".encode() for row in self.documents())
            case "json":
                yield from map(str.encode, self._document_pieces())
            case "csv":
                lines = map(write_line, chain([self.rows.column_names], self._values()))
                yield from map(str.encode, lines)
            case "arrow":
                yield self._write_arrow()

    def _write_arrow(self) -> bytes:
        """Return an Arrow stream, with the epochs in the metadata of its schema."""
        rows = self.rows.replace_schema_metadata({"epochs": json.dumps(dict(self.epochs))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def _values(self) -> Iterator[Sequence[Json]]:
        """Yield the values of each row, from one batch at a time: as JSON they are large."""
        for batch in self.rows.to_batches():
            columns = [render_column(column) for column in batch.columns]
            for number in range(batch.num_rows):
                yield [column[number] for column in columns]

    def _document_pieces(self) -> Iterator[str]:
        head = _to_json({"epochs": dict(self.epochs), "columns": self.columns})
        yield head[:-1] + ', "rows": ['
        for number, row in enumerate(self.documents()):
            yield (", " if number else "") + _to_json(row)
        yield "]}\n"


def answer_statement(
    data: Path,
    sql: str,
    abandon: Callable[[], None] = lambda: None,
    database: DuckDBPyConnection | None = None,
) -> Answer:
    """Answer a statement over the jobs of a data directory; raise StatementRefused.

    A thread calls `abandon` if DuckDB cannot be interrupted in time; see the engine.
    """
    try:
        return answer_at_position(data, sql, partial(answer, abandon=abandon, database=database))
    except StatementRefused as error:
        if error.position is None:
            raise StatementRefused(str(error)[: limits.REASON_CHARACTERS_MAX]) from None
        place = point_at(sql, error.position)
        reason = str(error)[: limits.REASON_CHARACTERS_MAX - len(place)]
        raise StatementRefused(reason + place) from None


def answer_at_position(
    data: Path,
    sql: str,
    run: Callable[[str, Mapping[str, pa.Table]], pa.Table],
    lists_tables: bool = False,
) -> Answer:
    """Answer a statement; raise StatementRefused with the position in it of what is wrong."""
    if len(sql) > limits.QUERY_CHARACTERS_MAX:
        raise StatementRefused(
            f"the statement has {len(sql)} characters; use at most {limits.QUERY_CHARACTERS_MAX}",
            code="54001",
        )
    jobs = list_tables(data)
    statement = read_statement(sql, jobs)
    read = {name: _read(data, *place) for name, place in statement.tables.items()}
    held = {name: found.rows for name, found in read.items()}
    if statement.reads_catalog or lists_tables:
        held |= {name: make_empty(data, name) for name in jobs if name not in held}
    try:
        rows = run(statement.sql, held)
    except StatementRefused as error:
        reason = str(error)
        if isinstance(error, MissingTable):
            reason += f"; the jobs are {name_jobs(jobs)}"
        position = error.position and statement.find_written(error.position)
        raise StatementRefused(reason, position, error.code) from None
    rows = rows.rename_columns(distinct_names(rows.column_names))
    return Answer({name: found.epoch for name, found in read.items()}, rows)


def _read(data: Path, job: str, moment: Moment) -> JobResults:
    try:
        return read_job(data, job, moment)
    except StatementRefused as error:
        raise StatementRefused(str(error), moment.position, error.code) from None


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


def hold_pieces(pieces: Iterable[bytes]) -> list[bytes]:
    """Return the pieces of an answer; raise StatementRefused if that is not possible."""
    held: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size > limits.SQL_ANSWER_BYTES_MAX:
                raise StatementRefused(ANSWER_TOO_LARGE, code="54000")
    except StatementRefused:
        raise
    except (ValueError, OverflowError, RecursionError):
        raise StatementRefused(_UNWRITABLE, code="22008") from None
    return held


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
