"""Read the items of FROM: a source by its name, or a derived table over one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp

from jobs.core.plan import typing_rules
from jobs.core.plan.relations import join_conditions
from jobs.core.plan.tree import Column, Expression
from jobs.core.sql.problems import printable_name, same_name
from jobs.core.sql.result_columns import ResultReader
from jobs.core.sql.scope import Scope, find_spelling
from schemas.types.sql_types import SqlType

SUBQUERY_CLAUSES = ("expressions", "from_", "where")
QUERY_CLAUSES = (*SUBQUERY_CLAUSES, "joins", "group", "having", "distinct")

_NO_CLAUSE = {
    "with_": ("WITH is not supported", "FROM (SELECT ... FROM t)"),
    "distinct": (
        "SELECT DISTINCT in a derived table is not supported",
        "let a second job read the first one's changelog",
    ),
    "group": (
        "GROUP BY in a derived table is not supported",
        "let a second job read the first one's changelog",
    ),
    "having": (
        "HAVING in a derived table is not supported",
        "let a second job read the first one's changelog",
    ),
    "order": ("a changing result has no order", "sort when you read the results"),
    "sort": ("a changing result has no order", "sort when you read the results"),
    "limit": ("LIMIT needs an order, and a changing result has none", None),
    "offset": ("OFFSET needs an order, and a changing result has none", None),
    "joins": (
        "a join in a derived table or in parentheses is not supported",
        "join in the outer query, from left to right",
    ),
    "laterals": ("LATERAL is not supported: a row cannot choose the rows to join", None),
    "windows": ("windows are not supported", None),
    "qualify": ("QUALIFY is not supported", None),
    "hint": ("hints are not supported", None),
    "into": ("INTO is not supported: a job's results go to its table and its sink", None),
}


class FromItem(NamedTuple):
    """A source with the names, over its columns, and the WHERE of its derived table, if any."""

    source: str
    names: Mapping[str, Expression]
    where: Expression | None
    alias: str | None

    @property
    def scope(self) -> Scope:
        """The meaning of names if this is all of FROM."""
        return Scope(self.names, () if self.alias is None else (self.alias,))


@dataclass
class FromReader(ResultReader):
    """Reads the items of FROM, and WHERE."""

    # The columns of each source by its name. The name of an only source may be "": FROM may then
    # call it as it likes.
    sources: Mapping[str, Mapping[str, SqlType]] = field(default_factory=dict)
    called: str = ""  # how FROM calls the source without a name

    def check_clauses(self, select: exp.Select, known: tuple[str, ...]) -> exp.Expr:
        """Return the first item of FROM; refuse a SELECT with other clauses."""
        outermost = known == QUERY_CLAUSES
        if outermost and (first := select.args.get("order") or select.args.get("limit")):
            message = _NO_CLAUSE["order" if isinstance(first, exp.Order) else "limit"][0]
            raise self.refusal(message, first, _describe_reading(select))
        for part, value in select.args.items():
            if value and part not in known:
                message, hint = _NO_CLAUSE.get(
                    part, (f"{part.strip('_').upper()} is not supported", None)
                )
                raise self.refusal(message, value[0] if isinstance(value, list) else value, hint)
        origin = select.args.get("from_")
        if origin is None:
            raise self.refusal("a query needs FROM and a name for its source", select)
        first_item: exp.Expr = origin.this
        return first_item

    def read_item(self, table: exp.Expr) -> FromItem:
        if isinstance(table, exp.Subquery):
            return self._read_derived_table(table)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self.refusal("FROM needs the name of the source, or one derived table", table)
        if joins := table.args.get("joins"):
            raise self.refusal(_NO_CLAUSE["joins"][0], joins[0], _NO_CLAUSE["joins"][1])
        if table.args.get("db"):
            raise self.refusal("FROM needs one name, without a database", table, table.name)
        self.require_only(table, "this", "alias")
        source = self._find_source(table)
        columns = self.sources[source].items()
        names = {name: Column(name, sql_type) for name, sql_type in columns}
        return FromItem(source, names, None, self._table_alias(table) or table.name)

    def _find_source(self, table: exp.Table) -> str:
        if "" not in self.sources:
            spelling = find_spelling(self.sources, table.name)
            if spelling is None:
                known = ", ".join(f"`{each}`" for each in self.sources)
                message = f"unknown source `{printable_name(table.name)}`; known: {known}"
                raise self.refusal(message, table)
            return spelling
        self.called = self.called or table.name
        if not same_name(self.called, table.name):
            names = f"`{printable_name(table.name)}` and `{printable_name(self.called)}`"
            message = f"{names} are two sources, and the job reads one"
            raise self.refusal(message, table, "sources: {a: {topic: ...}, b: {topic: ...}}")
        return ""

    def _read_derived_table(self, table: exp.Subquery) -> FromItem:
        self.require_only(table, "this", "alias")
        inner = table.this
        if isinstance(inner, exp.Table):
            raise self.refusal(_NO_CLAUSE["joins"][0], table, _NO_CLAUSE["joins"][1])
        if not isinstance(inner, exp.Select):
            raise self.refusal("a derived table must be a SELECT", table)
        item = self.read_item(self.check_clauses(inner, SUBQUERY_CLAUSES))
        where = join_conditions(item.where, self.read_where(inner, item.scope))
        names: dict[str, Expression] = {}
        for node in inner.expressions:
            for name, expression in self._read_derived_columns(node, item.scope):
                if name in names:
                    raise self.refusal(f"the derived table has two columns `{name}`", node)
                names[name] = expression
        return FromItem(item.source, names, where, self._table_alias(table))

    def _read_derived_columns(
        self, node: exp.Expr, scope: Scope
    ) -> Iterator[tuple[str, Expression]]:
        if isinstance(node, exp.Star):
            self.require_only(node)
            yield from scope.names.items()
            return
        value = node.this if isinstance(node, exp.Alias) else node
        if not isinstance(node, exp.Alias) and not isinstance(value, exp.Column):
            raise self.refusal("an expression in a derived table needs a name", node, "AS name")
        expression = self.read_row(value, scope, "a derived table")
        yield (node.alias if isinstance(node, exp.Alias) else value.name), expression

    def _table_alias(self, node: exp.Expr) -> str | None:
        alias = node.args.get("alias")
        if alias is None:
            return None
        self.require_only(alias, "this")
        return str(alias.name)

    def read_where(self, select: exp.Select, scope: Scope) -> Expression | None:
        where = select.args.get("where")
        return None if where is None else self.read_condition(where.this, scope, "WHERE")

    def read_condition(self, node: exp.Expr, scope: Scope, clause: str) -> Expression:
        expression = self.read_row(node, scope, clause)
        with self.blame(node):
            return typing_rules.require_condition(expression, clause)


def _describe_reading(select: exp.Select) -> str:
    """Return how to read the results in the order, and up to the limit, that a query has."""
    order, limit = select.args.get("order"), select.args.get("limit")
    keys = (
        [] if order is None else [(each.this, each.args.get("desc")) for each in order.expressions]
    )
    options = {}
    if keys and all(isinstance(key, exp.Column) for key, _ in keys):
        options["order"] = ",".join(("-" if falling else "") + key.name for key, falling in keys)
    elif keys:
        options["order"] = "-COLUMN"
    if limit is not None:
        options["limit"] = limit.expression.name if limit.expression else "N"
    flags = " ".join(f"--{name}={value}" for name, value in options.items())
    parameters = "&".join(f"{name}={value}" for name, value in options.items())
    return f"remove it, and read retally results JOB {flags}, or ?{parameters}"
