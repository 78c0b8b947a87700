"""SQL texts over the columns of a row: the time of a row or of a mark, and what marks a row.

time      ──► parsed as the argument of an aggregate ─┐ so each has the grammar and the types
marker    ──► parsed as the WHERE of a query ─────────┘ of any other expression
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.evaluate.expressions import evaluator, why_not_evaluable
from jobs.core.plan.tree import Column, Expression, KeyValue, Plan
from jobs.core.plan.walk import replace_parts
from jobs.core.sql.select import QueryError, QueryProblem, parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import BIGINT, Kind, SqlType

RECORD_TIME = "__kafka"  # the time that a record has before its rows have their own
_TIMES = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ, Kind.BIGINT)


def _parse(sql: str, before: str, after: str, columns: Mapping[str, SqlType]) -> Plan:
    """Return the plan of a query around a text; positions of problems are those in the text."""
    try:
        return parse_query(f"{before}\n{sql}{after}", columns)
    except QueryError as error:
        lines = sql.count("\n") + 1
        problems = [
            replace(each, line=min(lines, max(1, each.line - 1))) for each in error.problems
        ]
        raise QueryError(problems) from None


def _refuse(message: str, hint: str | None = None) -> QueryError:
    return QueryError([QueryProblem(message, 1, 1, hint)])


def _require_evaluable(over: Expression, what: str) -> None:
    if (why := why_not_evaluable(over)) is not None:
        raise _refuse(why.replace("over aggregates", f"in a {what}"))


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """An expression that gives a time from columns of a row; tasks receive it as a value."""

    expression: Expression
    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, sql: str, columns: Mapping[str, SqlType]) -> TimeExpression:
        """Return the expression of a text that gives a time; raise QueryError for any other.

        It may read the timestamp of the record too."""
        known = {RECORD_TIME: BIGINT, **columns}
        plan = _parse(sql, "SELECT MAX(", "\n) AS latest FROM source", known)
        alone = len(plan.arguments) == len(plan.aggregates) == 1
        if not alone or plan.group or plan.where or plan.relation:
            raise _refuse("a time is one expression over the columns")
        found = cls(plan.arguments[0].expression, plan.used)
        _require_evaluable(found.over(plan.used), "time")
        if found.type.kind not in _TIMES:
            raise _refuse(
                f"the time is {found.type}; write an expression that gives TIMESTAMP, "
                "TIMESTAMP_LTZ, or epoch milliseconds as BIGINT",
                f"CAST({sql.strip()[:60]} AS BIGINT)" if found.type.integer else None,
            )
        return found

    @property
    def type(self) -> SqlType:
        return self.expression.type

    def reader(self, row_columns: Sequence[Column]) -> Callable[[Row], Any]:
        """Return a function that computes the value of a row; it may raise EvaluationError."""
        return evaluator(self.over(row_columns), 0)

    def over(self, row_columns: Sequence[Column]) -> Expression:
        """Return the expression over rows that have these columns."""
        return bind_columns(self.expression, row_columns)


@dataclass(frozen=True, slots=True)
class Marker:
    """The predicate over some columns of a row that makes it a mark of a watermark.

    A running job evaluates it where it decodes messages, because only there the order of rows is
    known.
    """

    where: Expression
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, sql: str, columns: Mapping[str, SqlType], what: str = "marker") -> Marker:
        """Return the marker of a text; raise QueryError if it is no condition on a row."""
        plan = _parse(sql, "SELECT COUNT(*) AS marks FROM source WHERE", "", columns)
        if plan.group or plan.relation is not None:
            raise _refuse(f"a {what} is a predicate on one row, without GROUP BY and joins")
        assert plan.where is not None
        _require_evaluable(bind_columns(plan.where, plan.used), what)
        return cls(plan.where, plan.used)

    def predicate(self, row_columns: Sequence[Column]) -> Callable[[Row], bool]:
        """Return a function that tells whether a row is marked; it may raise EvaluationError."""
        evaluate = evaluator(bind_columns(self.where, row_columns), 0)
        return lambda row: evaluate(row) is True


def bind_columns(expression: Expression, row_columns: Sequence[Column]) -> Expression:
    """Return an expression that reads its columns by their indexes in a row."""
    indexes = {column.name: index for index, column in enumerate(row_columns)}

    def value(part: Expression) -> Expression | None:
        return KeyValue(indexes[part.name], part.type) if isinstance(part, Column) else None

    return replace_parts(expression, value)
