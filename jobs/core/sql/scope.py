"""Names in a query: their meaning, and the names of results and keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from jobs.core.plan.relations import bare_name
from jobs.core.plan.tree import Call, Cast, Column, Expression, WindowBound
from jobs.core.plan.walk import operands, walk
from jobs.core.sql.aggregate_calls import AggregateCall
from jobs.core.sql.problems import function_name, same_name, split_words, sql_name
from schemas.limits import IDENTIFIER_CHARACTERS_MAX

# Columns of the job's own table; a group or result column of the same name would be ambiguous.
RESERVED = split_words("""
    part op epoch seq bucket row_count tombstone argument multiplicity uuid offsets watermarks
    counters topic partition offset reason path raw withheld window_closed late_row late_became
    late_weight late_time_ms watermark_ms written_ms timer_ms timer_clock timer_namespace
""")

NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{IDENTIFIER_CHARACTERS_MAX - 1}}}")

_SET_IDS = {"GROUPING": "grouping_id", "GROUP_ID": "group_id"}


@dataclass(slots=True)
class Scope:
    """The meaning of names at one level of the query."""

    names: Mapping[str, Expression]
    qualifiers: tuple[str, ...]
    # Of a join: the names of each table by its qualifier, and those of several tables.
    tables: Mapping[str, Mapping[str, Expression]] = field(default_factory=dict)
    ambiguous: frozenset[str] = frozenset()  # in lower case
    outer: Scope | None = None  # of the query around a subquery

    def of_table(self, qualifier: str) -> Scope | None:
        """Return the names that a qualifier may stand before; None if there is no such table."""
        if not qualifier:
            return self
        for each in self.qualifiers:
            if same_name(each, qualifier):
                return Scope(self.tables[each], (each,)) if self.tables else self
        return None if self.outer is None else self.outer.of_table(qualifier)

    def spelling(self, name: str, qualifier: str = "") -> str | None:
        """Return the exact name, else the only name that differs in case alone, else None."""
        within = self.of_table(qualifier)
        return None if within is None else find_spelling(within.names, name)

    def knows(self, name: str) -> bool:
        """Return whether the name, without a qualifier, is that of one column or of several."""
        return self.spelling(name) is not None or name.lower() in self.ambiguous

    def lookup(self, name: str) -> Expression | None:
        spelling = self.spelling(name)
        return None if spelling is None else self.names[spelling]

    def readable_name(self, node: exp.Expr) -> str:
        """Return a name for a part of the query, from its function and its columns."""
        columns = node.find_all(exp.Column, bfs=False)
        names = [self.spelling(each.name, each.table) or "" for each in columns]
        function = function_name(node)
        if isinstance(node, exp.Trim | exp.Substring | exp.Extract):
            function = sql_name(type(node))
        return "_".join(filter(None, dict.fromkeys([function.lower(), *names])))


@dataclass(slots=True)
class SelectItem:
    """A column of the SELECT list."""

    node: exp.Expr
    alias: str | None
    expression: Expression  # of an aggregate its argument
    call: AggregateCall | None = None
    computed: bool = False  # an expression over aggregates
    column: str | None = None  # the name of a plain column
    readable: str = ""  # a name if there is no alias
    name: str = ""


def is_over_keys(expression: Expression, keys: list[Expression]) -> bool:
    """Return whether an expression consists of group expressions and constants only."""
    if expression in keys:
        return True
    if isinstance(expression, Column):
        return False
    return all(is_over_keys(each, keys) for each in operands(expression))


def column_name(expression: Expression) -> str | None:
    """Return the name of a column, also of one inside casts, or None."""
    while isinstance(expression, Cast):
        expression = expression.operand
    return bare_name(expression.name) if isinstance(expression, Column) else None


def readable_name(expression: Expression) -> str:
    """Return a name for an unselected group column, from the source columns in it."""
    if isinstance(expression, WindowBound):
        return expression.name
    if isinstance(expression, Call) and expression.function in _SET_IDS:
        return _SET_IDS[expression.function]
    columns = (bare_name(each.name) for each in walk(expression) if isinstance(each, Column))
    return "_".join(dict.fromkeys(columns)) or "key"


def find_spelling(names: Collection[str], name: str) -> str | None:
    """Return the exact name, else the only name that differs in case alone, else None."""
    if name in names:
        return name
    alike = [each for each in names if same_name(each, name)]
    return alike[0] if len(alike) == 1 else None


def free_name(name: str, taken: Mapping[str, str]) -> str:
    """Return the name, cleaned, and with a number if it is already taken."""
    room = IDENTIFIER_CHARACTERS_MAX - 5
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)[:room]
    clean = clean if NAME.fullmatch(clean) else f"_{clean}"
    candidate, number = clean, 1
    while candidate.lower() in taken or candidate.lower() in RESERVED:
        number += 1
        candidate = f"{clean}_{number}"
    return candidate
