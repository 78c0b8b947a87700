"""Names in a query: what they stand for, how results and keys are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from jobs.core.plan.tree import Call, Cast, Column, Expression, WindowBound
from jobs.core.plan.walk import parts, walk
from jobs.core.sql.aggregate_calls import AggregateCall
from jobs.core.sql.problems import function_name, same_name, sql_name, words
from schemas.limits import IDENTIFIER_CHARACTERS_MAX

# Columns of the job's own table; a group or result column of the same name would be ambiguous.
RESERVED = words("""
    part op epoch seq bucket row_count tombstone argument multiplicity uuid offsets watermarks
    counters topic partition offset reason path raw withheld window_closed late_row late_became
    late_weight late_time_ms watermark_ms written_ms timer_ms timer_clock timer_namespace
""")

NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{IDENTIFIER_CHARACTERS_MAX - 1}}}")


@dataclass(slots=True)
class Scope:
    """What names stand for at one level of the query."""

    names: Mapping[str, Expression]
    qualifiers: tuple[str, ...]

    def spelling(self, name: str) -> str | None:
        """The exact name first, then the only one that differs in case alone."""
        if name in self.names:
            return name
        alike = [each for each in self.names if same_name(each, name)]
        return alike[0] if len(alike) == 1 else None

    def find(self, name: str) -> Expression | None:
        spelled = self.spelling(name)
        return None if spelled is None else self.names[spelled]

    def readable(self, node: exp.Expr) -> str:
        """A name from the columns that a part of the query names, behind its function if any."""
        names = [self.spelling(each.name) or "" for each in node.find_all(exp.Column, bfs=False)]
        function = function_name(node)
        if isinstance(node, exp.Trim | exp.Substring | exp.Extract):
            function = sql_name(type(node))
        return "_".join(filter(None, dict.fromkeys([function.lower(), *names])))


@dataclass(slots=True)
class Item:
    """A column of the result as the SELECT list says it."""

    node: exp.Expr
    alias: str | None
    expression: Expression  # the argument, where it is an aggregate
    call: AggregateCall | None = None
    computed: bool = False  # an expression over aggregates
    column: str | None = None  # the name of the column, where it is nothing else
    readable: str = ""  # what it could be called
    name: str = ""


def follows(expression: Expression, keys: list[Expression]) -> bool:
    """Whether an expression is made of group expressions and constants alone."""
    if expression in keys:
        return True
    if isinstance(expression, Column):
        return False
    return all(follows(each, keys) for each in parts(expression))


def column_name(expression: Expression) -> str | None:
    """The column that an expression is, or is a cast of."""
    while isinstance(expression, Cast):
        expression = expression.operand
    return expression.name if isinstance(expression, Column) else None


def readable_name(expression: Expression) -> str:
    """A name for a hidden group column, from the columns of the source that it reads."""
    if isinstance(expression, WindowBound):
        return expression.name
    if isinstance(expression, Call) and expression.function == "GROUPING":
        return "grouping_id"
    columns = (each.name for each in walk(expression) if isinstance(each, Column))
    return "_".join(dict.fromkeys(columns)) or "key"


def unused(name: str, taken: Mapping[str, str]) -> str:
    """The name, or the name with the first number that makes it new; always a valid one."""
    room = IDENTIFIER_CHARACTERS_MAX - 5
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)[:room]
    clean = clean if NAME.fullmatch(clean) else f"_{clean}"
    candidate, number = clean, 1
    while candidate.lower() in taken or candidate.lower() in RESERVED:
        number += 1
        candidate = f"{clean}_{number}"
    return candidate
