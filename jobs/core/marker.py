"""The marker of a punctuated watermark: a predicate over the declared columns, as a plan.

It is read as the WHERE of a query, so it has the grammar, the types and the evaluation of any row
expression, and its text gets no further than theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.core.plan import Constant, Plan
from jobs.core.query import QueryError, QueryProblem, parse_query
from schemas.types import SqlType

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


def constant_mark(plan: Plan) -> bool | None:
    """What the marker says of every row, where it does not look at any; None: it has to look."""
    return plan.where.value is True if isinstance(plan.where, Constant) else None
