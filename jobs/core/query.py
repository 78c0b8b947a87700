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
from dataclasses import dataclass, field

from sqlglot import exp

from jobs.core import typing_rules, window_query
from jobs.core.aggregate_calls import (
    AGGREGATES,
    argument_name,
    is_call,
    named_in,
    read_call,
    written_name,
)
from jobs.core.dialect import Refusal, parse_select
from jobs.core.expressions import walk
from jobs.core.plan import (
    Aggregate,
    Column,
    Constant,
    Expression,
    Logical,
    Named,
    Plan,
    WindowBound,
)
from jobs.core.query_reading import QueryError, QueryProblem, problem_at, same_name
from jobs.core.query_rows import RowReader
from jobs.core.query_scope import (
    NAME,
    RESERVED,
    Item,
    Scope,
    column_name,
    follows,
    readable_name,
    unused,
)
from schemas.limits import COLUMNS_MAX, EXPRESSION_NODES_MAX, IDENTIFIER_CHARACTERS_MAX
from schemas.types import BOOLEAN, INT, SqlType

_NO_CLAUSE = {
    "with_": ("WITH is not supported", "FROM (SELECT ... FROM t) does the same for one table"),
    "distinct": (
        "SELECT DISTINCT in a derived table is not supported",
        "let a second job read the first one's changelog",
    ),
    "having": ("HAVING is not supported yet", None),
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
class _Query(RowReader):
    """One query on its way to a plan."""

    columns: Mapping[str, SqlType] = field(default_factory=dict)

    # -- the SELECT as a whole --

    def plan(self, select: exp.Select) -> Plan | None:
        source = tuple(Column(name, sql_type) for name, sql_type in self.columns.items())
        scope, where = self._from(select, source, outermost=True)
        with self.problems_kept():
            where = self._both(where, self._where(select, scope))
        scope = self._windowed(select, scope)
        items = [item for node in select.expressions for item in self._items(node, scope)]
        keys = self._keys(select, scope, items)
        if self.problems:
            return None
        keys = self._distinct(select, keys, items)
        if len(items) > COLUMNS_MAX:
            raise Refusal(f"a result has at most {COLUMNS_MAX} columns", 0)
        if not keys and not any(item.call for item in items):
            raise self.refused(
                "a query needs GROUP BY or an aggregate",
                select,
                "SELECT k, COUNT(*) ... GROUP BY k",
            )
        group = self._group(keys, items)
        self._name_results(items)
        if self.problems:
            return None
        named = self._name_keys(group, items)
        arguments, aggregates = self._aggregates(items)
        read = [each.expression for each in (*named, *arguments)]
        read = read if where is None else [where, *read]
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
                *(("distinct",) if outermost else ()),
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
        calls = [key for key in keys if window_query.is_window(key)]
        if not calls:
            return scope
        if len(calls) > 1:
            raise self.refused("a query has one window; GROUP BY names two", calls[1])
        with self.at(calls[0]):
            self.window = window_query.read_window(
                calls[0], lambda node: self.row(node, scope, "GROUP BY")
            )
        return Scope(window_query.with_bounds(scope.names, self.window), scope.qualifiers)

    # -- SELECT list and GROUP BY --

    def _items(self, node: exp.Expr, scope: Scope) -> Iterator[Item]:
        with self.problems_kept():
            alias = node.alias if isinstance(node, exp.Alias) else None
            value = node.this if isinstance(node, exp.Alias) else node
            while isinstance(value, exp.Paren):
                value = value.this
            if isinstance(value, exp.Star):
                raise self.refused("SELECT * says nothing of groups: name the columns", value)
            if is_call(value):
                yield self._aggregate(value, alias, scope)
            else:
                expression = self.row(value, scope, "SELECT")
                with self.at(value):
                    typing_rules.typed(expression)
                column = scope.spelling(value.name) if isinstance(value, exp.Column) else None
                readable = scope.readable(value) or "constant"
                if isinstance(expression, WindowBound):
                    readable = expression.name
                yield Item(value, alias, expression, column=column, readable=readable)

    def _aggregate(self, node: exp.Expr, alias: str | None, scope: Scope) -> Item:
        call = read_call(self, node, lambda inner, where: self.row(inner, scope, where))
        argument = Constant(1, INT) if call.argument is None else call.argument
        names = (written_name(node).lower(), scope.readable(named_in(node)))
        return Item(node, alias, argument, call, readable="_".join(filter(None, names)))

    def _keys(self, select: exp.Select, scope: Scope, items: list[Item]) -> list[Expression]:
        """The expressions of GROUP BY: of columns, positions, aliases, or written out."""
        group = select.args.get("group")
        if group is None:
            return []
        keys: list[Expression] = []
        with self.problems_kept():
            self.only(group, "expressions")
            for node in group.expressions:
                key = self._key(node, scope, items, len(select.expressions))
                with self.at(node):
                    typing_rules.typed(key)
                whole = window_query.bounds(key.window) if isinstance(key, WindowBound) else [key]
                keys += [each for each in whole if each not in keys]
        return keys

    def _distinct(
        self, select: exp.Select, keys: list[Expression], items: list[Item]
    ) -> list[Expression]:
        """SELECT DISTINCT a, b is GROUP BY a, b; behind a GROUP BY whose keys are all selected, and
        without one but with aggregates, rows are distinct already."""
        distinct = select.args.get("distinct")
        if distinct is None:
            return keys
        self.only(distinct)
        rows = [item.expression for item in items if not item.call]
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
        if self.window is not None and window_query.is_window(node):
            return window_query.bounds(self.window)[0]
        if isinstance(node, exp.Column) and not node.table:
            column = scope.find(node.name)
            aliased = [item for item in items if item.alias and same_name(item.alias, node.name)]
            if column is None and len(aliased) == 1:
                return self._key_item(aliased[0], node)
        return self.row(node, scope, "GROUP BY")

    def _key_item(self, item: Item, node: exp.Expr) -> Expression:
        if item.call:
            raise self.refused("GROUP BY cannot use an aggregate", node)
        return item.expression

    def _group(self, keys: list[Expression], items: list[Item]) -> list[Expression]:
        """The group expressions, and behind them what else is selected of them.

        UPPER(k) with GROUP BY k is a function of the key: it joins the key and changes no group.
        """
        group, free = list(keys), list(keys)
        for item in items:
            if item.call:
                continue
            if item.expression in free:
                free.remove(item.expression)
            elif follows(item.expression, keys):
                group.append(item.expression)
            else:
                with self.problems_kept():
                    raise self._ungrouped(item, keys)
        return group

    def _ungrouped(self, item: Item, keys: list[Expression]) -> Refusal:
        names = [each.name for each in walk(item.expression) if isinstance(each, Column)]
        loose = next((name for name in names if Column(name, self.columns[name]) not in keys), "")
        message = f"`{loose}` is neither in GROUP BY nor inside an aggregate"
        return self.refused(message, item.node, f"GROUP BY {loose}, or MAX({loose})")

    # -- names --

    def _name_results(self, items: list[Item]) -> None:
        """Names of the result: AS first, then plain columns, then ones made from what is there."""
        taken: dict[str, str] = {}
        for item in items:
            name = item.column if item.alias is None else item.alias
            if name is None:
                continue
            with self.problems_kept():
                self._check_name(name, item, taken)
            item.name = name
            taken[name.lower()] = name
        for item in items:
            if not item.name:
                item.name = unused(item.readable, taken)
                taken[item.name.lower()] = item.name

    def _check_name(self, name: str, item: Item, taken: Mapping[str, str]) -> None:
        if not NAME.fullmatch(name):
            raise self.refused(
                f"{name!r} cannot be the name of a column: letters, digits and _, at most "
                f"{IDENTIFIER_CHARACTERS_MAX}, not a digit first",
                item.node,
                "AS and another name",
            )
        if name.lower() in RESERVED:
            message = f"`{name}` is a column of the job's own table"
            raise self.refused(message, item.node, f"AS {name}_, or another name")
        if name.lower() in taken:
            same = "" if taken[name.lower()] == name else f", which differs from `{name}` in case"
            message = f"two columns of the result are called `{taken[name.lower()]}`{same}"
            raise self.refused(message, item.node, "AS and another name")

    def _name_keys(self, group: list[Expression], items: list[Item]) -> tuple[Named, ...]:
        """Group columns are called as in the result; hidden ones get a name of ours."""
        taken = {item.name.lower(): item.name for item in items}
        shown = [item for item in items if not item.call]
        named = []
        for expression in group:
            item = next((each for each in shown if each.expression == expression), None)
            if item is not None:
                shown.remove(item)
                named.append(Named(item.name, expression))
                continue
            name = unused(readable_name(expression), taken)
            taken[name.lower()] = name
            named.append(Named(name, expression))
        return tuple(named)

    def _aggregates(self, items: list[Item]) -> tuple[tuple[Named, ...], tuple[Aggregate, ...]]:
        """The distinct arguments, and the aggregates over them."""
        arguments: list[Named] = []
        aggregates = []
        taken: dict[str, str] = {}
        for item in items:
            if item.call is None:
                continue
            index = None
            if item.call.argument is not None:
                known = [each.expression for each in arguments]
                if item.expression not in known:
                    name = argument_name(item.expression) or column_name(item.expression)
                    name = unused(name or item.name, taken)
                    taken[name.lower()] = name
                    arguments.append(Named(name, item.expression))
                    known.append(item.expression)
                index = known.index(item.expression)
            call = item.call
            aggregates.append(
                Aggregate(
                    call.function, index, item.name, call.type,
                    call.distinct, call.parameters, call.order,
                )
            )  # fmt: skip
        if self.window is not None and self.window.function == "SESSION":
            start = window_query.bounds(self.window)[0]
            if start not in [each.expression for each in arguments]:
                arguments.append(Named(unused("instant", taken), start))
        return tuple(arguments), tuple(aggregates)

    # -- row expressions --


__all__ = ["AGGREGATES", "RESERVED", "QueryError", "QueryProblem", "parse_query"]
