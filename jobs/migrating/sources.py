"""A table of the file as the source of a job: its columns, their types, its times.

id BIGINT, who ROW<city STRING>, tags MAP<STRING, STRING>
    ──►  columns {id: BIGINT, who_city: STRING}, paths {who_city: who.city}, without tags
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from jobs.migrating.problems import NotTakenError
from jobs.migrating.select_parts import split_at, write
from jobs.migrating.statements import Table, TableColumn
from jobs.migrating.times import RowTimes, row_times
from jobs.migrating.tokens import Token, tokenize
from schemas.types.sql_types import SqlType


@dataclass(slots=True)
class SourceTable:
    """What a job reads of a table."""

    table: Table
    columns: dict[str, str] = field(default_factory=dict)  # by name, with types of the spec
    omitted: dict[str, str] = field(default_factory=dict)  # columns of other types
    paths: dict[str, str] = field(default_factory=dict)  # of nested columns
    nested: dict[tuple[str, ...], str] = field(
        default_factory=dict
    )  # a field's steps to its column
    computed: dict[str, TableColumn] = field(default_factory=dict)
    metadata: dict[str, TableColumn] = field(default_factory=dict)
    times: RowTimes | None = None

    @property
    def visible(self) -> list[str]:
        """The columns of SELECT *, in order."""
        return [each.name for each in self.table.columns]

    @property
    def replaced(self) -> dict[str, str]:
        """Columns of Flink that are another column here: a time that is computed from a text."""
        times = self.times
        if times is None or times.column is None or times.column == times.name or times.value:
            return {}
        return {times.name: times.column}

    @property
    def window_times(self) -> dict[str, str]:
        """Columns of Flink that are another column in windows: a time in milliseconds."""
        times = self.times
        return {times.name: times.column} if times and times.column and times.value else {}


def source_table(table: Table, used: Set[str]) -> SourceTable:
    """Return what a job reads of a table; `used` are the names in its query."""
    source = SourceTable(table)
    for column in table.columns:
        if column.metadata is not None:
            source.metadata[column.name] = column
        elif column.expression:
            source.computed[column.name] = column
        elif column.type[0].word == "ROW":
            _add_nested(source, (column.name,), column.type)
        else:
            kind = spec_type(column.type)
            if kind is None:
                source.omitted[column.name] = write(column.type)
            else:
                source.columns[column.name] = kind
    source.times = row_times(table, source.columns)
    if source.times is not None:
        _add_times(source, source.times, used)
    for name, kind in source.omitted.items():
        if name in used:
            found = table.column(name)
            offset = found.offset if found else table.offset
            raise NotTakenError(f"a column of type {kind} cannot be read", offset)
    return source


def _add_times(source: SourceTable, times: RowTimes, used: Set[str]) -> None:
    """Give the columns that a table's time is made of the types and values of the spec."""
    if times.name in source.replaced:
        del source.computed[times.name]
    elif times.value:
        computed = source.computed[times.name]
        source.computed[times.name] = replace(computed, expression=tuple(tokenize(times.value)))
    source.columns |= times.retyped
    read = [column.expression for name, column in source.computed.items() if name in used]
    names = {*used, *(token.value for expression in read for token in expression)}
    if names & times.retyped.keys():
        note = times.notes["column"]
        text = f"{note.text}; the query has it as a time, in Flink as the text"
        times.notes["column"] = replace(note, text=text, differs=True)


def _add_nested(source: SourceTable, steps: tuple[str, ...], kind: Sequence[Token]) -> None:
    """Add the fields of a ROW as columns of their own."""
    for name, inner in _row_fields(kind):
        path = (*steps, name)
        if inner[0].word == "ROW":
            _add_nested(source, path, inner)
            continue
        flat, known = "_".join(path), spec_type(inner)
        if known is None:
            source.omitted[flat] = write(inner)
            continue
        source.columns[flat] = known
        source.paths[flat] = ".".join(path)
        source.nested[path] = flat


def _row_fields(kind: Sequence[Token]) -> Iterator[tuple[str, list[Token]]]:
    for part in split_at(",", kind[2:-1], "()<>"):  # ROW < ... > or ROW ( ... )
        if len(part) < len(("name", "type")):
            raise NotTakenError("a field of a ROW is a name and a type", kind[0].offset)
        yield part[0].value, part[1:]


def spec_type(kind: Sequence[Token]) -> str | None:
    """Return the type of a spec for one of Flink; None if there is none."""
    words = [token.word for token in kind]
    text = "".join(token.text for token in kind if token.kind != "name").replace(",", ", ")
    name = words[0]
    if name in ("VARCHAR", "CHAR", "STRING"):
        return "STRING"
    if name in ("BYTES", "VARBINARY", "BINARY"):
        return "BINARY"
    if name in ("DEC", "NUMERIC", "DECIMAL"):
        name = "DECIMAL"
    if name == "TIMESTAMP" and "LOCAL" in words:
        name = "TIMESTAMP_LTZ"
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ") and not text:
        text = "(6)"
    if name in ("TIME", "DATE"):
        text = ""
    try:
        return str(SqlType.parse(name + text))
    except ValueError:
        return None
