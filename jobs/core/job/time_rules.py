"""How a job reads the time of messages, rows and marks, by a topic's `watermark` section.

es, ts, kafka, ingestion    of the message: all of its rows have it
a column, an expression     of each row; an expression that fails gives no time
a marker                    which rows are marks, and the time that a mark carries
where                       which rows move the watermark
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from jobs.core.plan.tree import Column
from jobs.core.rows.row_time import (
    RowReader,
    TimeReader,
    milliseconds_reader,
    time_column,
    time_reader,
)
from jobs.core.sql.select import QueryError
from jobs.core.sql.time_expression import RECORD_TIME, Marker, TimeExpression
from jobs.core.time.rows_in_order import PartitionStart, RowsInOrder
from jobs.core.time.watermark_generators import PartitionGenerator
from jobs.core.values.change import Changes, Row
from jobs.core.values.json_values import renderer
from jobs.core.values.rounding import EvaluationError
from schemas.spec.job import JobSpec
from schemas.spec.operator_classes import GeneratorClass
from schemas.spec.watermark import Mark, RowTime, Watermark
from schemas.types.sql_types import BIGINT

Columns = tuple[Column, ...]
_WHERE = "watermark.where"


@dataclass(frozen=True, slots=True)
class TimeRules:
    """The rules of a topic for the time of its rows; a value that can be sent to tasks."""

    watermark: Watermark
    column: Column | None = None  # the column that has the time
    expression: TimeExpression | None = None  # or the expression that gives it
    marker: Marker | None = None
    mark_time: TimeExpression | None = None  # None: a mark carries the time of its row
    where: Marker | None = None  # other rows are not for the generator
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
            None if section.where is None else Marker.of(section.where, declared, _WHERE),
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
        return not self.in_order and self.expression is None and self.where is None

    @property
    def columns(self) -> Columns:
        """The columns that follow those of the query in a row; a column of time is the last."""
        parts = (self.marker, self.mark_time, self.where, self.expression)
        read = [each for part in parts if part is not None for each in part.columns]
        own = () if self.column is None else (self.column,)
        return (*self.declared, *(each for each in read if each.name != RECORD_TIME), *own)

    def row_time(self, row: Columns) -> RowReader | None:
        """Return a function from a row to its time; None if the message has the time."""
        if self.expression is not None:
            return _expression_reader(self.expression, row)
        if self.column is None:
            return None
        milliseconds = milliseconds_reader(self.column.type)
        return lambda values, _: None if values[-1] is None else milliseconds(values[-1])

    def message_time(self, row: Columns) -> TimeReader | None:
        """Return a function from a message to its time; None if no message has one.

        With `where` it is the time of the rows for which that is true."""
        whole = time_reader(self.source, self.column)
        read = None if self.expression is None else _expression_reader(self.expression, row)
        if read is not None:
            of_row = read

            def latest(changes: Changes, stamp: int | None) -> int | None:
                times = [of_row(values, stamp) for _, values in changes.changes]
                return max((time for time in times if time is not None), default=None)

            whole = latest
        counts = self.counts(row)
        if whole is None or counts is None:
            return whole
        of_message = whole

        def read_kept(changes: Changes, stamp: int | None) -> int | None:
            kept = [change for change in changes.changes if counts(change[1])]
            return of_message(replace(changes, changes=kept), stamp) if kept else None

        return read_kept

    def counts(self, row: Columns) -> Callable[[Row], bool] | None:
        """Return a function that tells whether a row moves the watermark; None: every row does."""
        return None if self.where is None else _without_failures(self.where.predicate(row))

    def in_row_order(
        self, row: Columns, generator: PartitionGenerator, start: PartitionStart, now: int
    ) -> MessagesInOrder:
        """Return what gives the rows of a partition to its generator in their order."""
        each_row = self.watermark.within_epoch
        return MessagesInOrder(
            RowsInOrder(generator, start, now, each_row=each_row),
            self.row_time(row),
            self.counts(row),
            None if self.marker is None else _without_failures(self.marker.predicate(row)),
            None if self.mark_time is None else _expression_reader(self.mark_time, row),
            _row_mapper(self.declared),
            len(row) - len(self.columns),
        )


@dataclass(frozen=True, slots=True)
class MessagesInOrder:
    """The rows of a partition in the order of their offsets, and the watermark before each."""

    rows: RowsInOrder
    row_time: RowReader | None
    counts: Callable[[Row], bool] | None  # whether a row is for the generator
    is_mark: Callable[[Row], bool] | None
    mark_time: RowReader | None
    show: Callable[[Row], Mapping[str, Any]] | None  # for a generator class
    first: int  # the index of the first column that follows those of the query

    def take(self, sign: int, row: Row, message_time: int | None, stamp: int | None) -> int:
        """Take the next row, and return the job's watermark before it.

        Retractions are no marks, nor are rows on which the marker fails.
        """
        before = self.rows.watermark
        if self.counts is not None and not self.counts(row):
            return before
        time = message_time if self.row_time is None else self.row_time(row, stamp)
        marked = self.is_mark is not None and sign > 0 and self.is_mark(row)
        mark = time if not marked or self.mark_time is None else self.mark_time(row, stamp)
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
    if section.where is not None:
        yield ("where",), partial(Marker.of, what=_WHERE), section.where
    if isinstance(section.marker, Mark):
        yield ("marker", "when"), Marker.of, section.marker.when
        yield ("marker", "time"), TimeExpression.parse, section.marker.time
    elif section.marker is not None:
        yield ("marker",), Marker.of, section.marker


def _expression_reader(expression: TimeExpression, row: Columns) -> RowReader:
    milliseconds = milliseconds_reader(expression.type)
    evaluate = expression.reader((*row, Column(RECORD_TIME, BIGINT)))

    def read(values: Row, stamp: int | None) -> int | None:
        try:
            found = evaluate((*values, stamp))
        except EvaluationError:
            return None
        return None if found is None else milliseconds(found)

    return read


def _without_failures(predicate: Callable[[Row], bool]) -> Callable[[Row], bool]:
    """Return a predicate that is false for a row on which this one fails."""

    def holds(row: Row) -> bool:
        with suppress(EvaluationError):
            return predicate(row)
        return False

    return holds


def _row_mapper(columns: Columns) -> Callable[[Row], Mapping[str, Any]] | None:
    """Return a function that shows a row to a generator class, by name and as typed JSON."""
    if not columns:
        return None
    named = [(column.name, renderer(column.type)) for column in columns]
    return lambda row: {name: show(value) for (name, show), value in zip(named, row, strict=False)}
