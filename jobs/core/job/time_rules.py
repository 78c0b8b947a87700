"""How a job reads the time of messages, rows and marks, by a topic's `watermark` section.

es, ts, kafka, ingestion    of the message: all of its rows have it
a column, an expression     of each row; an expression that fails gives no time
a marker                    which rows are marks, and the time that a mark carries
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jobs.core.plan.tree import Column
from jobs.core.rows.row_time import (
    RowReader,
    TimeReader,
    milliseconds_reader,
    time_column,
    time_reader,
)
from jobs.core.sql.select import QueryError
from jobs.core.sql.time_expression import Marker, TimeExpression
from jobs.core.time.rows_in_order import PartitionStart, RowsInOrder
from jobs.core.time.watermark_generators import PartitionGenerator
from jobs.core.values.change import Changes, Row
from jobs.core.values.json_values import renderer
from jobs.core.values.rounding import EvaluationError
from schemas.spec.job import JobSpec
from schemas.spec.watermark import GeneratorClass, Mark, RowTime, Watermark

Columns = tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class TimeRules:
    """The rules of a topic for the time of its rows; a value that can be sent to tasks."""

    watermark: Watermark
    column: Column | None = None  # the column that has the time
    expression: TimeExpression | None = None  # or the expression that gives it
    marker: Marker | None = None
    mark_time: TimeExpression | None = None  # None: a mark carries the time of its row
    declared: Columns = ()  # columns that a generator class sees

    @classmethod
    def of(cls, spec: JobSpec, topic: str, columns: Columns) -> TimeRules:
        """Return the rules of a topic; raise QueryError if an expression is not valid."""
        section, declared = spec.strategies[topic], spec.columns
        expression, mark_time = None, None
        if isinstance(section.time, RowTime) and section.time.expression is not None:
            expression = TimeExpression.parse(section.time.expression, declared)
        marker = section.marker
        if isinstance(marker, Mark):
            mark_time = TimeExpression.parse(marker.time, declared)
            marker = marker.when
        return cls(
            section,
            time_column(section, columns),
            expression,
            None if marker is None else Marker.of(marker, declared),
            mark_time,
            columns if isinstance(section.generator, GeneratorClass) else (),
        )

    @property
    def source(self) -> str:
        """The word of `watermark.time`, or `row` if each row has its own time."""
        return self.watermark.time if isinstance(self.watermark.time, str) else "row"

    @property
    def in_order(self) -> bool:
        return self.watermark.in_order

    @property
    def scannable(self) -> bool:
        """Whether times can be read without decoding messages one by one."""
        return not self.in_order and self.expression is None

    @property
    def columns(self) -> Columns:
        """The columns that follow those of the query in a row; a column of time is the last."""
        marker = () if self.marker is None else self.marker.columns
        mark_time = () if self.mark_time is None else self.mark_time.columns
        expression = () if self.expression is None else self.expression.columns
        own = () if self.column is None else (self.column,)
        return (*self.declared, *marker, *mark_time, *expression, *own)

    def row_time(self, row: Columns) -> RowReader | None:
        """Return a function from a row to its time; None if the message has the time."""
        if self.expression is not None:
            return _expression_reader(self.expression, row)
        if self.column is None:
            return None
        milliseconds = milliseconds_reader(self.column.type)
        return lambda values: None if values[-1] is None else milliseconds(values[-1])

    def message_time(self, row: Columns) -> TimeReader | None:
        """Return a function from a message to its time; None if no message has one."""
        if self.expression is None:
            return time_reader(self.source, self.column)
        read = _expression_reader(self.expression, row)

        def latest(changes: Changes, _record: object) -> int | None:
            times = [read(values) for _, values in changes.changes]
            return max((time for time in times if time is not None), default=None)

        return latest

    def in_row_order(
        self, row: Columns, generator: PartitionGenerator, start: PartitionStart, now: int
    ) -> MessagesInOrder:
        """Return what gives the rows of a partition to its generator in their order."""
        each_row = self.watermark.within_epoch
        return MessagesInOrder(
            RowsInOrder(generator, start, now, each_row=each_row),
            self.row_time(row),
            None if self.marker is None else self.marker.predicate(row),
            None if self.mark_time is None else _expression_reader(self.mark_time, row),
            _row_mapper(self.declared),
            len(row) - len(self.columns),
        )


@dataclass(frozen=True, slots=True)
class MessagesInOrder:
    """The rows of a partition in the order of their offsets, and the watermark before each."""

    rows: RowsInOrder
    row_time: RowReader | None
    is_mark: Callable[[Row], bool] | None
    mark_time: RowReader | None
    show: Callable[[Row], Mapping[str, Any]] | None  # for a generator class
    first: int  # the index of the first column that follows those of the query

    def take(self, sign: int, row: Row, message_time: int | None) -> int:
        """Take the next row, and return the job's watermark before it.

        Retractions are no marks, nor are rows on which the marker fails.
        """
        before = self.rows.watermark
        time = message_time if self.row_time is None else self.row_time(row)
        marked = False
        if self.is_mark is not None and sign > 0:
            with suppress(EvaluationError):
                marked = self.is_mark(row)
        mark = time if not marked or self.mark_time is None else self.mark_time(row)
        shown = {} if self.show is None else self.show(row[self.first :])
        self.rows.take(time, shown, mark, marked=marked)
        return before


def time_problems(spec: JobSpec) -> list[tuple[tuple[str, ...], QueryError]]:
    """Return what is wrong with the SQL of the `watermark` sections, with its keys."""
    found = []
    sections = {("watermark",): spec.watermark} | spec.sections
    for path, section in sections.items():
        for keys, parse, text in _list_texts(section):
            try:
                parse(text, spec.columns)
            except QueryError as error:
                found.append(((*path, *keys), error))
    return found


def _list_texts(section: Watermark) -> Iterator[tuple[tuple[str, ...], Callable[..., object], str]]:
    """Yield the SQL of a section with its keys and the function that parses it."""
    if isinstance(section.time, RowTime) and section.time.expression is not None:
        yield ("time", "expression"), TimeExpression.parse, section.time.expression
    if isinstance(section.marker, Mark):
        yield ("marker", "when"), Marker.of, section.marker.when
        yield ("marker", "time"), TimeExpression.parse, section.marker.time
    elif section.marker is not None:
        yield ("marker",), Marker.of, section.marker


def _expression_reader(expression: TimeExpression, row: Columns) -> RowReader:
    evaluate, milliseconds = expression.reader(row), milliseconds_reader(expression.type)

    def read(values: Row) -> int | None:
        try:
            found = evaluate(values)
        except EvaluationError:
            return None
        return None if found is None else milliseconds(found)

    return read


def _row_mapper(columns: Columns) -> Callable[[Row], Mapping[str, Any]] | None:
    """Return a function that shows a row to a generator class, by name and as typed JSON."""
    if not columns:
        return None
    named = [(column.name, renderer(column.type)) for column in columns]
    return lambda row: {name: show(value) for (name, show), value in zip(named, row, strict=False)}
