"""Query: SQL text to a plan, or every reason why not, each with its line and column.

    SELECT name, SUM(v) AS s FROM (SELECT name, CAST(cnt AS INT) AS v FROM t) GROUP BY name
       │ dialect: text to syntax tree
       ▼
    scopes (a derived table is written into the outer query) ──► typed expressions
       ▼
    Plan: where, group columns, distinct arguments, aggregates, result columns

The syntax tree is read node by node with a closed list of kinds and, for each kind, of parts: what
is not in the lists is refused by name, never ignored. Text of the user gets no further than here:
a plan holds names that passed `NAME`, columns of the source, and values with types.

    query           the SELECT as a whole: clauses, SELECT list, keys, names
    query_scope     what names stand for, how results and keys are called
    query_rows      row expressions, with query_nodes: one reader for each kind of node
    query_reading   problems and their places
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from jobs.core.plan import typing_rules
from jobs.core.plan.tree import Column, Expression, Logical, Named, Plan, WindowBound
from jobs.core.plan.walk import walk
from jobs.core.sql import grouping_sets, window_calls
from jobs.core.sql.aggregate_calls import AGGREGATES
from jobs.core.sql.dialect import Refusal, parse_select
from jobs.core.sql.problems import QueryError, QueryProblem, problem_at, same_name
from jobs.core.sql.result_columns import OverResults, ResultReader
from jobs.core.sql.scope import RESERVED, Item, Scope, readable_name
from schemas.limits import COLUMNS_MAX, EXPRESSION_NODES_MAX
from schemas.types.sql_types import BOOLEAN, SqlType

_NO_CLAUSE = {
    "with_": ("WITH is not supported", "FROM (SELECT ... FROM t) does the same for one table"),
    "distinct": (
        "SELECT DISTINCT in a derived table is not supported",
        "let a second job read the first one's changelog",
    ),
    "having": (
        "HAVING in a derived table is not supported",
        "let a second job read the first one's changelog",
    ),
    "order": ("a changing result has no order", "order where the results are read"),
    "sort": ("a changing result has no order", "order where the results are read"),
    "limit": ("LIMIT needs an order, and a changing result has none", None),
    "offset": ("OFFSET needs an order, and a changing result has none", None),
    "joins": ("joins are not supported: a job reads one stream", None),
    "laterals": ("LATERAL is not supported: a job reads one stream", None),
    "windows": ("windows are not supported", None),
    "qualify": ("QUALIFY is not supported", None),
    "hint": ("hints are not supported", None),
    "into": ("INTO is not supported: a job's results go to its table and its sink", None),
}


def parse_query(sql: str, columns: Mapping[str, SqlType]) -> Plan:
    """The plan of a query over a source with these columns; QueryError says what is wrong."""
    problems: list[QueryProblem] = []
    plan = None
    try:
        plan = _Query(sql, problems, columns=columns).plan(parse_select(sql))
    except Refusal as refusal:
        problems.append(problem_at(sql, refusal))
    if plan is None or problems:
        raise QueryError(sorted(problems, key=lambda each: (each.line, each.column)))
    return plan


@dataclass
class _Query(ResultReader):
    """One query on its way to a plan."""

    sets: grouping_sets.KeySets | None = None  # known once GROUP BY was read, where it has several

    # -- the SELECT as a whole --

    def plan(self, select: exp.Select) -> Plan | None:
        source = tuple(Column(name, sql_type) for name, sql_type in self.columns.items())
        scope, where = self._from(select, source, outermost=True)
        with self.problems_kept():
            where = self._both(where, self._where(select, scope))
        scope = self._windowed(select, scope)
        items = [item for node in select.expressions for item in self.items(node, scope)]
        keys = self._keys(select, scope, items)
        having = self._having(select, scope, items)
        if self.problems:
            return None
        having = self._in_sets(select, keys, items, having)
        keys = self._distinct(select, keys, items)
        if len(items) > COLUMNS_MAX:
            raise Refusal(f"a result has at most {COLUMNS_MAX} columns", 0)
        if not keys and not self.calls and not any(item.call for item in items):
            raise self.refused(
                "a query needs GROUP BY or an aggregate",
                select,
                "SELECT k, COUNT(*) ... GROUP BY k",
            )
        group = self.group(keys, items)
        called = self.called(items)
        over = OverResults(self, keys, group, called)
        having = None if having is None else over.resolved(having, select.args["having"].this)
        for item in items:
            if item.computed:
                with self.problems_kept():
                    item.expression = over.resolved(item.expression, item.node)
        self.name_results(items)
        if self.problems:
            return None
        named = self.name_keys(group, items)
        arguments, aggregates = self.aggregates(called, [*items, *named])
        computed = tuple(Named(each.name, each.expression) for each in items if each.computed)
        read = [each.expression for each in (*named, *arguments, *computed)]
        read += [each for each in (where, having) if each is not None]
        if sum(self.size(each)[1] for each in read) > EXPRESSION_NODES_MAX:
            message = f"the query has more than {EXPRESSION_NODES_MAX} parts, derived ones included"
            raise Refusal(message, 0)
        used = {each for top in read for each in walk(top) if isinstance(each, Column)}
        return Plan(
            columns=source,
            used=tuple(column for column in source if column in used),
            where=where,
            group=named,
            arguments=arguments,
            aggregates=aggregates,
            output=tuple(item.name for item in items),
            computed=computed,
            having=having,
            grouping_sets=1 if self.sets is None else len(self.sets.sets),
        )

    def _from(
        self, select: exp.Select, source: tuple[Column, ...], outermost: bool
    ) -> tuple[Scope, Expression | None]:
        """The names that FROM brings, and the WHERE of a derived table."""
        for part, value in select.args.items():
            known = (
                "expressions",
                "from_",
                "where",
                "group",
                *(("distinct", "having") if outermost else ()),
            )
            if value and part not in known:
                message, hint = _NO_CLAUSE.get(
                    part, (f"{part.strip('_').upper()} is not supported", None)
                )
                raise self.refused(message, value[0] if isinstance(value, list) else value, hint)
        origin = select.args.get("from_")
        if origin is None:
            raise self.refused("a query needs FROM and the name of its source", select)
        table = origin.this
        if isinstance(table, exp.Subquery):
            return self._derived(table, source)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self.refused("FROM takes the name of the source, or one derived table", table)
        if table.args.get("joins"):
            raise self.refused("joins are not supported: a job reads one stream", table)
        if table.args.get("db"):
            raise self.refused("FROM takes one name, without a database", table, table.name)
        self.only(table, "this", "alias")
        alias = self._table_alias(table)
        return Scope({each.name: each for each in source}, (alias or table.name,)), None

    def _derived(
        self, table: exp.Subquery, source: tuple[Column, ...]
    ) -> tuple[Scope, Expression | None]:
        self.only(table, "this", "alias")
        inner = table.this
        if not isinstance(inner, exp.Select):
            raise self.refused("a derived table is a SELECT", table)
        if group := inner.args.get("group"):
            hint = "let a second job read the first one's changelog"
            raise self.refused("GROUP BY in a derived table is not supported", group, hint)
        scope, where = self._from(inner, source, outermost=False)
        where = self._both(where, self._where(inner, scope))
        names: dict[str, Expression] = {}
        for node in inner.expressions:
            for name, expression in self._derived_columns(node, scope):
                if name in names:
                    raise self.refused(f"the derived table has two columns `{name}`", node)
                names[name] = expression
        alias = self._table_alias(table)
        return Scope(names, (alias,) if alias else ()), where

    def _derived_columns(self, node: exp.Expr, scope: Scope) -> Iterator[tuple[str, Expression]]:
        if isinstance(node, exp.Star):
            self.only(node)
            yield from scope.names.items()
            return
        value = node.this if isinstance(node, exp.Alias) else node
        if not isinstance(node, exp.Alias) and not isinstance(value, exp.Column):
            raise self.refused("an expression in a derived table needs a name", node, "AS name")
        expression = self.row(value, scope, "a derived table")
        yield (node.alias if isinstance(node, exp.Alias) else value.name), expression

    def _table_alias(self, node: exp.Expr) -> str | None:
        alias = node.args.get("alias")
        if alias is None:
            return None
        self.only(alias, "this")
        return str(alias.name)

    def _where(self, select: exp.Select, scope: Scope) -> Expression | None:
        where = select.args.get("where")
        if where is None:
            return None
        expression = self.row(where.this, scope, "WHERE")
        with self.at(where.this):
            return typing_rules.condition(expression, "WHERE")

    def _both(self, left: Expression | None, right: Expression | None) -> Expression | None:
        if left is None or right is None:
            return right if left is None else left
        return Logical("AND", left, right, BOOLEAN)

    def _windowed(self, select: exp.Select, scope: Scope) -> Scope:
        """The names behind GROUP BY: with a window there, also its bounds."""
        group = select.args.get("group")
        keys = group.expressions if group is not None else []
        calls = [key for key in keys if window_calls.is_window(key)]
        if not calls:
            return scope
        if len(calls) > 1:
            raise self.refused("a query has one window; GROUP BY names two", calls[1])
        with self.at(calls[0]):
            self.window = window_calls.read_window(
                calls[0], lambda node: self.row(node, scope, "GROUP BY")
            )
        return Scope(window_calls.with_bounds(scope.names, self.window), scope.qualifiers)

    # -- SELECT list and GROUP BY --

    def _keys(self, select: exp.Select, scope: Scope, items: list[Item]) -> list[Expression]:
        """The expressions of GROUP BY: of columns, positions, aliases, or written out."""
        group = select.args.get("group")
        if group is None:
            return []
        keys: list[Expression] = []
        with self.problems_kept():
            if group.args.get("rollup") or group.args.get("cube"):
                hint = "GROUP BY ROLLUP(a, b), or CUBE(a, b)"
                raise self.refused("WITH ROLLUP and WITH CUBE are not supported", group, hint)
            self.only(group, "expressions")
            if grouping_sets.has_sets(group.expressions):
                return self._keys_in_sets(group, scope, items, select)
            for node in group.expressions:
                keys += [e for e in self._whole_key(node, scope, items, select) if e not in keys]
        return keys

    def _whole_key(
        self, node: exp.Expr, scope: Scope, items: list[Item], select: exp.Select
    ) -> list[Expression]:
        """A key of GROUP BY: an expression, or both bounds of a window."""
        key = self._key(node, scope, items, len(select.expressions))
        with self.at(node):
            typing_rules.typed(key)
        return [*window_calls.bounds(key.window)] if isinstance(key, WindowBound) else [key]

    def _keys_in_sets(
        self, group: exp.Group, scope: Scope, items: list[Item], select: exp.Select
    ) -> list[Expression]:
        """The keys as the grouping sets have them, and behind them which set it is."""
        with self.at(group):
            sets = grouping_sets.node_sets(group.expressions)
        read = {
            id(node): self._whole_key(node, scope, items, select) for each in sets for node in each
        }
        by_set = [[key for node in each for key in read[id(node)]] for each in sets]
        made = grouping_sets.KeySets(by_set)
        for key, wrapped in zip(made.keys, made.wrapped, strict=True):
            if isinstance(key, WindowBound) and wrapped != key:
                hint = f"GROUP BY {window_calls.EXAMPLES['TUMBLE']}, ROLLUP(a, b)"
                raise self.refused("a window is in every grouping set", group, hint)
        self.sets = made
        return [*made.wrapped, made.id] if made.several else made.keys

    def _having(self, select: exp.Select, scope: Scope, items: list[Item]) -> Expression | None:
        """The condition of HAVING; names are columns first, then those of the result."""
        having = select.args.get("having")
        if having is None:
            return None
        with self.problems_kept():
            names = {**self.aliases(items, scope), **scope.names}
            within = Scope(names, scope.qualifiers)
            expression = self.row(having.this, within, "HAVING")
            with self.at(having.this):
                return typing_rules.condition(expression, "HAVING")
        return None

    def _in_sets(
        self,
        select: exp.Select,
        keys: list[Expression],
        items: list[Item],
        having: Expression | None,
    ) -> Expression | None:
        """Items, and HAVING, with the columns of the key as the grouping sets have them."""
        sets = self.sets or grouping_sets.KeySets([keys])
        for item in items:
            if not item.call:
                with self.at(item.node):
                    item.expression = sets.of_result(item.expression)
        if having is None:
            return None
        with self.at(select.args["having"].this):
            return sets.of_result(having)

    def _distinct(
        self, select: exp.Select, keys: list[Expression], items: list[Item]
    ) -> list[Expression]:
        """SELECT DISTINCT a, b is GROUP BY a, b; behind a GROUP BY whose keys are all selected, and
        without one but with aggregates, rows are distinct already."""
        distinct = select.args.get("distinct")
        if distinct is None:
            return keys
        self.only(distinct)
        rows = [item.expression for item in items if not (item.call or item.computed)]
        if select.args.get("group") is None:
            return keys if len(rows) < len(items) else list(dict.fromkeys(rows))
        if hidden := [key for key in keys if key not in rows]:
            message = f"SELECT DISTINCT without `{readable_name(hidden[0])}`, which GROUP BY has"
            hint = "select it, or let a second job read the first one's changelog"
            raise self.refused(message, distinct, hint)
        return keys

    def _key(self, node: exp.Expr, scope: Scope, items: list[Item], width: int) -> Expression:
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            position = int(node.name)
            if not 1 <= position <= width:
                raise self.refused(f"GROUP BY {node.name}: there are columns 1 to {width}", node)
            if self.problems:  # positions are only right when every item was understood
                raise self.refused(f"column {position} is not clear yet", node)
            return self._key_item(items[position - 1], node)
        if self.window is not None and window_calls.is_window(node):
            return window_calls.bounds(self.window)[0]
        if isinstance(node, exp.Column) and not node.table:
            column = scope.find(node.name)
            aliased = [item for item in items if item.alias and same_name(item.alias, node.name)]
            if column is None and len(aliased) == 1:
                return self._key_item(aliased[0], node)
        return self.row(node, scope, "GROUP BY")

    def _key_item(self, item: Item, node: exp.Expr) -> Expression:
        if item.call or item.computed:
            raise self.refused("GROUP BY cannot use an aggregate", node)
        return item.expression


__all__ = ["AGGREGATES", "RESERVED", "QueryError", "QueryProblem", "parse_query"]
