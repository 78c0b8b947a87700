"""The marker of a punctuated watermark: a predicate over the declared columns.

It is parsed as the WHERE of a query, so it has the grammar and the types of any row expression. A
running job evaluates it where it decodes messages, because only there the order of rows is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.core.evaluate.expressions import evaluator, why_not_evaluable
from jobs.core.plan.tree import Column, Expression, Plan
from jobs.core.sql.select import QueryError, QueryProblem, parse_query
from jobs.core.sql.time_expression import bind_columns
from jobs.core.values.change import Row
from schemas.types.sql_types import SqlType

_BEFORE = "SELECT COUNT(*) AS marks FROM source WHERE\n"  # its own line: columns stay correct


def parse_marker(sql: str, columns: Mapping[str, SqlType]) -> Plan:
    """Return a plan whose WHERE is the predicate.

    Raise QueryError with line and column in the marker."""
    try:
        plan = parse_query(_BEFORE + sql, columns)
    except QueryError as error:
        problems = [replace(each, line=max(1, each.line - 1)) for each in error.problems]
        raise QueryError(problems) from None
    if plan.group or plan.relation is not None:
        raise QueryError(
            [QueryProblem("a marker is a predicate on one row, without GROUP BY and joins", 1, 1)]
        )
    return plan


@dataclass(frozen=True, slots=True)
class Marker:
    """A predicate over some columns of a row; a value that can be sent to tasks."""

    where: Expression
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, sql: str, columns: Mapping[str, SqlType]) -> Marker:
        """Return the marker of a text; raise QueryError if it is no condition on a row."""
        plan = parse_marker(sql, columns)
        assert plan.where is not None
        marker = cls(plan.where, plan.used)
        if (why := why_not_evaluable(bind_columns(plan.where, plan.used))) is not None:
            raise QueryError([QueryProblem(why.replace("over aggregates", "in a marker"), 1, 1)])
        return marker

    def predicate(self, row_columns: Sequence[Column]) -> Callable[[Row], bool]:
        """Return a function that tells whether a row is marked; it may raise EvaluationError."""
        evaluate = evaluator(bind_columns(self.where, row_columns), 0)
        return lambda row: evaluate(row) is True
