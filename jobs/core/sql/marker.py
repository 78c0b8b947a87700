"""The marker of a punctuated watermark: a predicate over the declared columns.

It is read as the WHERE of a query, so it has the grammar and the types of any row expression, and
its text gets no further than theirs. A running job evaluates it where messages are decoded, for
the order of rows is known there and nowhere behind; so it may use what can be evaluated there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.core.evaluate.expressions import evaluator, not_here
from jobs.core.plan.tree import Column, Expression, KeyValue, Plan
from jobs.core.plan.walk import replaced
from jobs.core.sql.select import QueryError, QueryProblem, parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import SqlType

_BEFORE = "SELECT COUNT(*) AS marks FROM source WHERE\n"  # a line of its own: columns stay right


def parse_marker(sql: str, columns: Mapping[str, SqlType]) -> Plan:
    """The plan whose WHERE is the predicate: the rows that its projection keeps are marked.
    QueryError says what is wrong, with line and column in the marker."""
    try:
        plan = parse_query(_BEFORE + sql, columns)
    except QueryError as error:
        problems = [replace(each, line=max(1, each.line - 1)) for each in error.problems]
        raise QueryError(problems) from None
    if plan.group:
        raise QueryError([QueryProblem("a marker is a predicate, without GROUP BY", 1, 1)])
    return plan


@dataclass(frozen=True, slots=True)
class Marker:
    """A predicate over some columns of a row; a value, so that it travels."""

    where: Expression
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, sql: str, columns: Mapping[str, SqlType]) -> Marker:
        """QueryError where it cannot be evaluated as messages are decoded."""
        plan = parse_marker(sql, columns)
        assert plan.where is not None
        marker = cls(plan.where, plan.used)
        if (why := not_here(marker._over(dict.fromkeys(columns, 0)))) is not None:
            reason = why[0].replace("over aggregates", "in a marker")
            raise QueryError([QueryProblem(reason, 1, 1, why[1])])
        return marker

    def marks(self, row_columns: Sequence[Column]) -> Callable[[Row], bool]:
        """Whether a row of these columns is marked; it raises Failed where the predicate does."""
        places = {column.name: place for place, column in enumerate(row_columns)}
        predicate = evaluator(self._over(places), 0)

        return lambda row: predicate(row) is True

    def _over(self, places: Mapping[str, int]) -> Expression:
        def value(part: Expression) -> Expression | None:
            return KeyValue(places[part.name], part.type) if isinstance(part, Column) else None

        return replaced(self.where, value)
