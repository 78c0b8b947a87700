"""SQL expressions that give the time of a row or of a mark.

They are parsed as the argument of an aggregate, so they have the grammar and the types of any other
expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.evaluate.expressions import evaluator, why_not_evaluable
from jobs.core.plan.tree import Column, Expression, KeyValue
from jobs.core.plan.walk import replace_parts
from jobs.core.sql.select import QueryError, QueryProblem, parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import Kind, SqlType

_BEFORE, _AFTER = "SELECT MAX(\n", "\n) AS latest FROM source"
_TIMES = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ, Kind.BIGINT)


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """An expression that gives a time from columns of a row; tasks receive it as a value."""

    expression: Expression
    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, sql: str, columns: Mapping[str, SqlType]) -> TimeExpression:
        """Return the expression of a text that gives a time; raise QueryError for any other."""
        try:
            plan = parse_query(_BEFORE + sql + _AFTER, columns)
        except QueryError as error:
            lines = sql.count("\n") + 1
            problems = [
                replace(each, line=min(lines, max(1, each.line - 1))) for each in error.problems
            ]
            raise QueryError(problems) from None
        alone = len(plan.arguments) == len(plan.aggregates) == 1
        if not alone or plan.group or plan.where or plan.relation:
            raise QueryError([QueryProblem("a time is one expression over the columns", 1, 1)])
        found = cls(plan.arguments[0].expression, plan.used)
        over = found.over(plan.used)
        if (why := why_not_evaluable(over)) is not None:
            raise QueryError([QueryProblem(why.replace("over aggregates", "in a time"), 1, 1)])
        if found.type.kind not in _TIMES:
            raise QueryError(
                [
                    QueryProblem(
                        f"the time is {found.type}; write an expression that gives TIMESTAMP, "
                        "TIMESTAMP_LTZ, or epoch milliseconds as BIGINT",
                        1,
                        1,
                        f"CAST({sql.strip()[:60]} AS BIGINT)" if found.type.integer else None,
                    )
                ]
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


def bind_columns(expression: Expression, row_columns: Sequence[Column]) -> Expression:
    """Return an expression that reads its columns by their indexes in a row."""
    indexes = {column.name: index for index, column in enumerate(row_columns)}

    def value(part: Expression) -> Expression | None:
        return KeyValue(indexes[part.name], part.type) if isinstance(part, Column) else None

    return replace_parts(expression, value)
