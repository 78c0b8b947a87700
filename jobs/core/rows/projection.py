"""Evaluate the row expressions of a plan in plain Python: WHERE, the group, the arguments.

    row of used columns ──► WHERE ──► group, arguments      None: WHERE removes the row
                              └─────────┴──► RowFailed: why its message goes to quarantine

Tasks evaluate each expression once for the distinct values that it reads
(`jobs.edge.rows.evaluated_rows`), replays and trials row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jobs.core.evaluate.casts import cast_function
from jobs.core.evaluate.expressions import NodeFailed, evaluator
from jobs.core.plan.tree import Cast, Column, Expression, KeyValue, Plan
from jobs.core.plan.walk import replace_parts, walk
from jobs.core.sql.printer import expression_sql
from jobs.core.sql.time_expression import bind_columns
from jobs.core.values.change import Row
from jobs.core.values.rounding import EvaluationError
from schemas.types.sql_types import STRING, Kind

Projected = tuple[Row, Row]  # a row's group and the arguments of the aggregates
Projection = Callable[[Row], Projected | None]  # of a row of used columns; None: WHERE removes it

SHOWN_SQL_CHARACTERS_MAX = 200
SHOWN_VALUE_CHARACTERS_MAX = 100


class RowFailed(EvaluationError):
    """An expression fails on a row; the text is the reason in quarantine."""


class RowExpression(NamedTuple):
    """An expression as a function of the columns that it reads; it may raise RowFailed."""

    columns: tuple[Column, ...]
    evaluate: Callable[[Sequence[Any]], Any]


def row_projection(plan: Plan) -> Projection:
    """Return the projection of a plan without windows and sets.

    It raises RowFailed for a row whose message the job would refuse.
    """

    def over_used(expression: Expression) -> Callable[[Row], Any]:
        return compile_row(expression, plan.used).evaluate

    where = None if plan.where is None else over_used(plan.where)
    group = [over_used(named.expression) for named in plan.group]
    arguments = [over_used(named.expression) for named in plan.arguments]

    def project(row: Row) -> Projected | None:
        if where is not None and where(row) is not True:
            return None
        return tuple([each(row) for each in group]), tuple([each(row) for each in arguments])

    return project


def compile_row(expression: Expression, columns: Sequence[Column] | None = None) -> RowExpression:
    """Return an expression over rows of these columns, by default of those that it reads."""
    if columns is None:
        read = (each for each in walk(expression) if isinstance(each, Column))
        columns = tuple(dict.fromkeys(read))
    known = tuple(columns)
    evaluate = evaluator(bind_columns(expression, known), 0)
    if isinstance(expression, Column):
        return RowExpression(known, evaluate)

    def evaluate_row(values: Sequence[Any]) -> Any:
        try:
            return evaluate(values)
        except NodeFailed as failed:
            raise RowFailed(_reason(failed, known)) from None

    return RowExpression(known, evaluate_row)


def _reason(failed: NodeFailed, columns: Sequence[Column]) -> str:
    """Return why a row fails, with the part of the query and, of a cast, its operand."""

    def name(part: Expression) -> Expression | None:
        return columns[part.index] if isinstance(part, KeyValue) else None

    node = replace_parts(failed.node, name)
    what = str(failed)
    if isinstance(node, Cast) and node.operand.type.kind is not Kind.BINARY:
        source = node.operand.type
        to_text = str if source == STRING else cast_function(source, STRING)
        shown = to_text(failed.operand)[:SHOWN_VALUE_CHARACTERS_MAX]
        what = f"'{shown}' {'is no' if source == STRING else 'does not fit'} {node.type}"
    return f"{shorten_sql(node)}: {what}"


def shorten_sql(expression: Expression) -> str:
    """Return the SQL of an expression for a message."""
    text = expression_sql(expression)
    if len(text) <= SHOWN_SQL_CHARACTERS_MAX:
        return text
    return text[:SHOWN_SQL_CHARACTERS_MAX] + "…"
