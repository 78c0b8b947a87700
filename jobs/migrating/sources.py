"""A table of the file as the source of a job: its columns, their types, its times.

id BIGINT, who ROW<city STRING>, tags MAP<STRING, STRING>
    ──►  columns {id: BIGINT, who_city: STRING}, paths {who_city: who.city}, without tags
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace

from sqlglot import exp

from jobs.core.sql.dialect import Refusal
from jobs.migrating.dialect import write
from jobs.migrating.statements import Table, TableColumn
from jobs.migrating.times import RowTimes, row_times
from schemas.types.sql_types import SqlType

_TYPES = {
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), "STRING"),
    **dict.fromkeys((exp.DType.BINARY, exp.DType.VARBINARY), "BINARY"),
    exp.DType.DATE: "DATE",
    exp.DType.TIME: "TIME",
}
_TYPES_WITH_DIGITS = {exp.DType.DECIMAL, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPLTZ}


@dataclass(slots=True)
class SourceTable:
    """What a job reads of a table."""

    table: Table
    columns: dict[str, str] = field(default_factory=dict)  # by name, with types of the spec
    omitted: dict[str, str] = field(default_factory=dict)  # columns of other types
    paths: dict[str, str] = field(default_factory=dict)  # of nested columns
    nested: dict[tuple[str, ...], str] = field(default_factory=dict)  # columns by a field's steps
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
        elif column.expression is not None:
            source.computed[column.name] = column
        elif column.type is not None:
            _add_column(source, (column.name,), column.type)
    source.times = row_times(table, source.columns)
    if source.times is not None:
        _add_times(source, source.times, used)
    for name, kind in source.omitted.items():
        if name in used:
            found = table.column(name)
            offset = found.offset if found else table.offset
            raise Refusal(f"a column of type {kind} cannot be read", offset)
    return source


def _add_times(source: SourceTable, times: RowTimes, used: Set[str]) -> None:
    """Give the columns that a table's time is made of the types and values of the spec."""
    if times.name in source.replaced:
        del source.computed[times.name]
    elif times.value:
        source.computed[times.name] = replace(source.computed[times.name], expression=times.value)
    source.columns |= times.retyped
    read = [column.expression for name, column in source.computed.items() if name in used]
    parts = (part for tree in read if tree is not None for part in tree.find_all(exp.Identifier))
    names = {*used, *(part.name for part in parts)}
    if names & times.retyped.keys():
        note = times.notes["column"]
        text = f"{note.text}; the query has it as a time, in Flink as the text"
        times.notes["column"] = replace(note, text=text, differs=True)


def _add_column(source: SourceTable, steps: tuple[str, ...], kind: exp.DataType) -> None:
    """Add a column, or the fields of a ROW as columns of their own."""
    if kind.this is exp.DType.STRUCT:
        for each in kind.expressions:
            if not isinstance(each, exp.ColumnDef) or each.kind is None:
                raise Refusal("a field of a ROW is a name and a type", source.table.offset)
            _add_column(source, (*steps, each.name), each.kind)
        return
    flat, known = "_".join(steps), spec_type(kind)
    if known is None:
        source.omitted[flat] = write(kind)
        return
    source.columns[flat] = str(known)
    if len(steps) > 1:
        source.paths[flat] = ".".join(steps)
        source.nested[steps] = flat


def spec_type(kind: exp.DataType) -> SqlType | None:
    """Return the type of a spec for one of Flink; None if there is none."""
    if kind.expressions and kind.this not in (*_TYPES, *_TYPES_WITH_DIGITS):
        return None
    text = _TYPES.get(kind.this) or write(kind)
    try:
        return SqlType.parse(f"{text}(6)" if text in ("TIMESTAMP", "TIMESTAMP_LTZ") else text)
    except ValueError:
        return None
