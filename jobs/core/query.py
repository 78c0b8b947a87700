"""Query: SQL text to a plan, or every reason why not, each with its line and column.

    SELECT name, SUM(v) AS s FROM (SELECT name, CAST(cnt AS INT) AS v FROM t) GROUP BY name
       │ dialect: text to syntax tree
       ▼
    scopes (a derived table is written into the outer query) ──► typed expressions
       ▼
    Plan: where, group columns, distinct arguments, aggregates, result columns

The syntax tree is read node by node with a closed list of kinds and, for each kind, of parts: what
is not in the lists is refused by name, never ignored. Text of the user gets no further than here:
a plan holds names that passed `_NAME`, columns of the source, and values with types.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp

from jobs.core import expressions as typing_rules
from jobs.core import window_query
from jobs.core.dialect import Refusal, parse_select
from jobs.core.expressions import FUNCTIONS, SYNONYMS, UNTYPED, TypeProblem, parts, walk
from jobs.core.plan import (
    Aggregate,
    ArithmeticOp,
    Call,
    Case,
    Cast,
    Column,
    CompareOp,
    Constant,
    Expression,
    IsNull,
    Logical,
    LogicalOp,
    Named,
    Not,
    Plan,
    Window,
    WindowBound,
)
from schemas.limits import (
    COLUMNS_MAX,
    EXPRESSION_DEPTH_MAX,
    EXPRESSION_NODES_MAX,
    IDENTIFIER_CHARACTERS_MAX,
)
from schemas.types import BINARY, BOOLEAN, INT, STRING, SqlType


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")

# Columns of the job's own table; a group or result column of the same name would be ambiguous.
RESERVED = _words("""
    part op epoch seq bucket row_count tombstone argument multiplicity uuid offsets watermarks
    counters topic partition offset reason path raw
""")

NOT_DETERMINISTIC = _words("""
    NOW RAND RANDOM RAND_INTEGER UUID CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME
    LOCALTIMESTAMP CURRENT_ROW_TIMESTAMP PROCTIME UNIX_TIMESTAMP CURRENT_WATERMARK SYSDATE GETDATE
    CURRENT_USER SESSION_USER MONOTONICALLY_INCREASING_ID
""")
AGGREGATES_LATER = _words("""
    LISTAGG STRING_AGG GROUP_CONCAT FIRST_VALUE LAST_VALUE STDDEV STDDEV_POP STDDEV_SAMP VARIANCE
    VAR_POP VAR_SAMP BOOL_AND BOOL_OR EVERY SOME ANY_VALUE ARRAY_AGG COLLECT MAX_BY MIN_BY ARG_MAX
    ARG_MIN MODE MEDIAN PERCENTILE_CONT PERCENTILE_DISC TOP_K APPROX_COUNT_DISTINCT
""")

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{IDENTIFIER_CHARACTERS_MAX - 1}}}")

_NO_CLAUSE = {
    "with_": ("WITH is not supported", "FROM (SELECT ... FROM t) does the same for one table"),
    "distinct": ("SELECT DISTINCT is not supported yet", "GROUP BY the columns"),
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
_ARITHMETIC: dict[type[exp.Expr], ArithmeticOp] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_COMPARE: dict[type[exp.Expr], CompareOp] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """One thing that is wrong with a query; line and column count from 1."""

    message: str
    line: int
    column: int
    hint: str | None = None

    def __str__(self) -> str:
        hint = f" (try: {self.hint})" if self.hint else ""
        return f"line {self.line}, column {self.column}: {self.message}{hint}"


class QueryError(ValueError):
    """A query that is not taken, with all that was found wrong with it."""

    def __init__(self, problems: Sequence[QueryProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = list(problems)


def parse_query(sql: str, columns: Mapping[str, SqlType]) -> Plan:
    """The plan of a query over a source with these columns; QueryError says what is wrong."""
    problems: list[QueryProblem] = []
    plan = None
    try:
        plan = _Query(sql, columns, problems).plan(parse_select(sql))
    except Refusal as refusal:
        problems.append(_problem(sql, refusal))
    if plan is None or problems:
        raise QueryError(sorted(problems, key=lambda each: (each.line, each.column)))
    return plan


def _problem(sql: str, refusal: Refusal) -> QueryProblem:
    before = sql[: refusal.offset or 0]
    column = len(before) - (before.rfind("\n") + 1) + 1
    return QueryProblem(refusal.message, before.count("\n") + 1, column, refusal.hint)


@dataclass(slots=True)
class _Scope:
    """What names stand for at one level of the query."""

    names: Mapping[str, Expression]
    qualifiers: tuple[str, ...]

    def spelling(self, name: str) -> str | None:
        """The exact name first, then the only one that differs in case alone."""
        if name in self.names:
            return name
        alike = [each for each in self.names if _alike(each, name)]
        return alike[0] if len(alike) == 1 else None

    def find(self, name: str) -> Expression | None:
        spelled = self.spelling(name)
        return None if spelled is None else self.names[spelled]

    def readable(self, node: exp.Expr) -> str:
        """A name from the columns that a part of the query names, behind its function if any."""
        names = [self.spelling(each.name) or "" for each in node.find_all(exp.Column, bfs=False)]
        function = _function_name(node)
        if isinstance(node, exp.Trim | exp.Substring | exp.Extract):
            function = _sql_name(type(node))
        return "_".join(filter(None, dict.fromkeys([function.lower(), *names])))


@dataclass(slots=True)
class _Item:
    """A column of the result as the SELECT list says it."""

    node: exp.Expr
    alias: str | None
    expression: Expression  # the argument, where it is an aggregate
    function: str | None = None
    counts_rows: bool = False
    column: str | None = None  # the name of the column, where it is nothing else
    readable: str = ""  # what it could be called
    name: str = ""


@dataclass
class _Query:
    """One query on its way to a plan; `problems` collects what does not stop the reading."""

    sql: str
    columns: Mapping[str, SqlType]
    problems: list[QueryProblem]
    window: Window | None = None  # known once WHERE was read, which comes before it
    depths: dict[int, tuple[Expression, int, int]] = field(default_factory=dict)

    # -- the SELECT as a whole --

    def plan(self, select: exp.Select) -> Plan | None:
        source = tuple(Column(name, sql_type) for name, sql_type in self.columns.items())
        scope, where = self._from(select, source, outermost=True)
        with self._problems_kept():
            where = self._both(where, self._where(select, scope))
        scope = self._windowed(select, scope)
        items = [item for node in select.expressions for item in self._items(node, scope)]
        keys = self._keys(select, scope, items)
        if self.problems:
            return None
        if len(items) > COLUMNS_MAX:
            raise Refusal(f"a result has at most {COLUMNS_MAX} columns", 0)
        if not keys and not any(item.function for item in items):
            raise self._refused(
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
        if sum(self._size(each)[1] for each in read) > EXPRESSION_NODES_MAX:
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
    ) -> tuple[_Scope, Expression | None]:
        """The names that FROM brings, and the WHERE of a derived table."""
        for part, value in select.args.items():
            if value and part not in ("expressions", "from_", "where", "group"):
                message, hint = _NO_CLAUSE.get(
                    part, (f"{part.strip('_').upper()} is not supported", None)
                )
                raise self._refused(message, value[0] if isinstance(value, list) else value, hint)
        origin = select.args.get("from_")
        if origin is None:
            raise self._refused("a query needs FROM and the name of its source", select)
        table = origin.this
        if isinstance(table, exp.Subquery):
            return self._derived(table, source, outermost)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self._refused("FROM takes the name of the source, or one derived table", table)
        if table.args.get("joins"):
            raise self._refused("joins are not supported: a job reads one stream", table)
        if table.args.get("db"):
            raise self._refused("FROM takes one name, without a database", table, table.name)
        self._only(table, "this", "alias")
        alias = self._table_alias(table)
        return _Scope({each.name: each for each in source}, (alias or table.name,)), None

    def _derived(
        self, table: exp.Subquery, source: tuple[Column, ...], outermost: bool
    ) -> tuple[_Scope, Expression | None]:
        self._only(table, "this", "alias")
        inner = table.this
        if not isinstance(inner, exp.Select):
            raise self._refused("a derived table is a SELECT", table)
        if not outermost:
            raise self._refused("a derived table inside a derived table is not supported", inner)
        if group := inner.args.get("group"):
            hint = "let a second job read the first one's changelog"
            raise self._refused("GROUP BY in a derived table is not supported", group, hint)
        scope, where = self._from(inner, source, outermost=False)
        where = self._both(where, self._where(inner, scope))
        names: dict[str, Expression] = {}
        for node in inner.expressions:
            for name, expression in self._derived_columns(node, scope):
                if name in names:
                    raise self._refused(f"the derived table has two columns `{name}`", node)
                names[name] = expression
        alias = self._table_alias(table)
        return _Scope(names, (alias,) if alias else ()), where

    def _derived_columns(self, node: exp.Expr, scope: _Scope) -> Iterator[tuple[str, Expression]]:
        if isinstance(node, exp.Star):
            self._only(node)
            yield from scope.names.items()
            return
        value = node.this if isinstance(node, exp.Alias) else node
        if not isinstance(node, exp.Alias) and not isinstance(value, exp.Column):
            raise self._refused("an expression in a derived table needs a name", node, "AS name")
        expression = self._row(value, scope, "a derived table")
        yield (node.alias if isinstance(node, exp.Alias) else value.name), expression

    def _table_alias(self, node: exp.Expr) -> str | None:
        alias = node.args.get("alias")
        if alias is None:
            return None
        self._only(alias, "this")
        return str(alias.name)

    def _where(self, select: exp.Select, scope: _Scope) -> Expression | None:
        where = select.args.get("where")
        if where is None:
            return None
        expression = self._row(where.this, scope, "WHERE")
        with self._at(where.this):
            return typing_rules.condition(expression, "WHERE")

    def _both(self, left: Expression | None, right: Expression | None) -> Expression | None:
        if left is None or right is None:
            return right if left is None else left
        return Logical("AND", left, right, BOOLEAN)

    def _windowed(self, select: exp.Select, scope: _Scope) -> _Scope:
        """The names behind GROUP BY: with a window there, also its bounds."""
        group = select.args.get("group")
        keys = group.expressions if group is not None else []
        calls = [key for key in keys if window_query.is_window(key)]
        if not calls:
            return scope
        if len(calls) > 1:
            raise self._refused("a query has one window; GROUP BY names two", calls[1])
        with self._at(calls[0]):
            self.window = window_query.read_window(
                calls[0], lambda node: self._row(node, scope, "GROUP BY")
            )
        return _Scope(window_query.with_bounds(scope.names, self.window), scope.qualifiers)

    # -- SELECT list and GROUP BY --

    def _items(self, node: exp.Expr, scope: _Scope) -> Iterator[_Item]:
        with self._problems_kept():
            alias = node.alias if isinstance(node, exp.Alias) else None
            value = node.this if isinstance(node, exp.Alias) else node
            while isinstance(value, exp.Paren):
                value = value.this
            if isinstance(value, exp.Star):
                raise self._refused("SELECT * says nothing of groups: name the columns", value)
            if isinstance(value, exp.Filter) or _function_name(value) in AGGREGATES:
                yield self._aggregate(value, alias, scope)
            else:
                expression = self._row(value, scope, "SELECT")
                with self._at(value):
                    typing_rules.typed(expression)
                column = scope.spelling(value.name) if isinstance(value, exp.Column) else None
                readable = scope.readable(value) or "constant"
                if isinstance(expression, WindowBound):
                    readable = expression.name
                yield _Item(value, alias, expression, column=column, readable=readable)

    def _aggregate(self, node: exp.Expr, alias: str | None, scope: _Scope) -> _Item:
        """One aggregate; FILTER (WHERE c) becomes CASE WHEN c THEN argument END."""
        condition = None
        called = node
        if isinstance(node, exp.Filter):
            called = node.this
            if _function_name(called) not in AGGREGATES:
                raise self._refused("FILTER belongs to an aggregate", node)
            inner = node.expression.this
            condition = self._row(inner, scope, "FILTER")
            with self._at(inner):
                condition = typing_rules.condition(condition, "FILTER")
        self._only(called, "this", "expressions")
        function, arguments = _function_name(called), called.expressions
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            raise self._refused(f"{function}(DISTINCT ...) is not supported yet", arguments[0])
        if len(arguments) != 1:
            raise self._refused(f"{function} takes one argument", called, f"{function}(x)")
        rows = function == "COUNT" and isinstance(arguments[0], exp.Star)
        if rows:
            self._only(arguments[0])
            argument: Expression = Constant(1, INT)
        else:
            argument = self._row(arguments[0], scope, function)
            with self._at(arguments[0]):
                typing_rules.aggregate_type(function, typing_rules.typed(argument).type)
        # A constant that is not NULL is counted for every row.
        counted = isinstance(argument, Constant) and argument.value is not None
        rows = rows or (function == "COUNT" and counted)
        if condition is not None:
            argument = Case(((condition, argument),), None, argument.type)
        counts_rows = rows and condition is None
        readable = "_".join(filter(None, (function.lower(), scope.readable(arguments[0]))))
        return _Item(node, alias, argument, function, counts_rows, readable=readable)

    def _keys(self, select: exp.Select, scope: _Scope, items: list[_Item]) -> list[Expression]:
        """The expressions of GROUP BY: of columns, positions, aliases, or written out."""
        group = select.args.get("group")
        if group is None:
            return []
        keys: list[Expression] = []
        with self._problems_kept():
            self._only(group, "expressions")
            for node in group.expressions:
                key = self._key(node, scope, items, len(select.expressions))
                with self._at(node):
                    typing_rules.typed(key)
                whole = window_query.bounds(key.window) if isinstance(key, WindowBound) else [key]
                keys += [each for each in whole if each not in keys]
        return keys

    def _key(self, node: exp.Expr, scope: _Scope, items: list[_Item], width: int) -> Expression:
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            position = int(node.name)
            if not 1 <= position <= width:
                raise self._refused(f"GROUP BY {node.name}: there are columns 1 to {width}", node)
            if self.problems:  # positions are only right when every item was understood
                raise self._refused(f"column {position} is not clear yet", node)
            return self._key_item(items[position - 1], node)
        if self.window is not None and window_query.is_window(node):
            return window_query.bounds(self.window)[0]
        if isinstance(node, exp.Column) and not node.table:
            column = scope.find(node.name)
            aliased = [item for item in items if item.alias and _alike(item.alias, node.name)]
            if column is None and len(aliased) == 1:
                return self._key_item(aliased[0], node)
        return self._row(node, scope, "GROUP BY")

    def _key_item(self, item: _Item, node: exp.Expr) -> Expression:
        if item.function:
            raise self._refused("GROUP BY cannot use an aggregate", node)
        return item.expression

    def _group(self, keys: list[Expression], items: list[_Item]) -> list[Expression]:
        """The group expressions, and behind them what else is selected of them.

        UPPER(k) with GROUP BY k is a function of the key: it joins the key and changes no group.
        """
        group, free = list(keys), list(keys)
        for item in items:
            if item.function:
                continue
            if item.expression in free:
                free.remove(item.expression)
            elif _follows(item.expression, keys):
                group.append(item.expression)
            else:
                with self._problems_kept():
                    raise self._ungrouped(item, keys)
        return group

    def _ungrouped(self, item: _Item, keys: list[Expression]) -> Refusal:
        names = [each.name for each in walk(item.expression) if isinstance(each, Column)]
        loose = next((name for name in names if Column(name, self.columns[name]) not in keys), "")
        message = f"`{loose}` is neither in GROUP BY nor inside an aggregate"
        return self._refused(message, item.node, f"GROUP BY {loose}, or MAX({loose})")

    # -- names --

    def _name_results(self, items: list[_Item]) -> None:
        """Names of the result: AS first, then plain columns, then ones made from what is there."""
        taken: dict[str, str] = {}
        for item in items:
            name = item.column if item.alias is None else item.alias
            if name is None:
                continue
            with self._problems_kept():
                self._check_name(name, item, taken)
            item.name = name
            taken[name.lower()] = name
        for item in items:
            if not item.name:
                item.name = _unused(item.readable, taken)
                taken[item.name.lower()] = item.name

    def _check_name(self, name: str, item: _Item, taken: Mapping[str, str]) -> None:
        if not _NAME.fullmatch(name):
            raise self._refused(
                f"{name!r} cannot be the name of a column: letters, digits and _, at most "
                f"{IDENTIFIER_CHARACTERS_MAX}, not a digit first",
                item.node,
                "AS and another name",
            )
        if name.lower() in RESERVED:
            message = f"`{name}` is a column of the job's own table"
            raise self._refused(message, item.node, f"AS {name}_, or another name")
        if name.lower() in taken:
            same = "" if taken[name.lower()] == name else f", which differs from `{name}` in case"
            message = f"two columns of the result are called `{taken[name.lower()]}`{same}"
            raise self._refused(message, item.node, "AS and another name")

    def _name_keys(self, group: list[Expression], items: list[_Item]) -> tuple[Named, ...]:
        """Group columns are called as in the result; hidden ones get a name of ours."""
        taken = {item.name.lower(): item.name for item in items}
        shown = [item for item in items if not item.function]
        named = []
        for expression in group:
            item = next((each for each in shown if each.expression == expression), None)
            if item is not None:
                shown.remove(item)
                named.append(Named(item.name, expression))
                continue
            name = _unused(_readable(expression), taken)
            taken[name.lower()] = name
            named.append(Named(name, expression))
        return tuple(named)

    def _aggregates(self, items: list[_Item]) -> tuple[tuple[Named, ...], tuple[Aggregate, ...]]:
        """The distinct arguments, and the aggregates over them."""
        arguments: list[Named] = []
        aggregates = []
        taken: dict[str, str] = {}
        for item in items:
            if not item.function:
                continue
            index = None
            if not item.counts_rows:
                known = [each.expression for each in arguments]
                if item.expression not in known:
                    name = _unused(_column_name(item.expression) or item.name, taken)
                    taken[name.lower()] = name
                    arguments.append(Named(name, item.expression))
                    known.append(item.expression)
                index = known.index(item.expression)
            result = typing_rules.aggregate_type(item.function, item.expression.type)
            aggregates.append(Aggregate(item.function, index, item.name, result))
        return tuple(arguments), tuple(aggregates)

    # -- row expressions --

    def _row(self, node: exp.Expr, scope: _Scope, where: str, depth: int = 0) -> Expression:
        """A syntax tree as a typed expression; `where` says what it is part of."""
        if depth > EXPRESSION_DEPTH_MAX:
            raise self._too_large(node)

        def read(inner: exp.Expr) -> Expression:
            return self._row(inner, scope, where, depth + 1)

        if isinstance(node, exp.Column):
            return self._column(node, scope)
        if isinstance(node, exp.Paren):
            self._only(node, "this")
            return read(node.this)
        name = _function_name(node)
        if name in AGGREGATES or isinstance(node, exp.Filter):
            raise self._misplaced_aggregate(node, where)
        reader = _READERS.get(type(node))
        if reader is None:
            raise self._unknown(node)
        with self._at(node):
            expression = reader(self, node, read)
        self._measure(expression, node)
        return expression

    def _column(self, node: exp.Column, scope: _Scope) -> Expression:
        if not isinstance(node.this, exp.Identifier):
            raise self._refused("`.*` is not supported: name the columns", node)
        self._only(node, "this", "table")
        qualifier = node.table
        if qualifier and not any(_alike(each, qualifier) for each in scope.qualifiers):
            known = ", ".join(f"`{each}`" for each in scope.qualifiers) or "none"
            raise self._refused(f"unknown table `{_shown(qualifier)}`; known: {known}", node)
        found = scope.find(node.name)
        if found is not None:
            return found
        if node.name.upper() in NOT_DETERMINISTIC:
            raise self._not_deterministic(node.name.upper(), node)
        alike = [each for each in scope.names if _alike(each, node.name)]
        if alike:
            choices = " and ".join(f"`{each}`" for each in alike)
            message = f"`{node.name}` could be {choices}: write it in the same case"
            raise self._refused(message, node)
        if node.name.lower() in window_query.NAMES:
            raise self._refused(window_query.NO_BOUND.format(node.name.lower()), node)
        close = difflib.get_close_matches(node.name, list(scope.names), 1)
        shown = ", ".join(list(scope.names)[:10])
        hint = close[0] if close else f"one of {shown}" if shown else None
        raise self._refused(f"unknown column `{_shown(node.name)}`", node, hint)

    def _measure(self, expression: Expression, node: exp.Expr) -> None:
        """Bound depth and size of what was made: a derived column may be used, and so written
        into the query, many times."""
        known = self.depths.get(id(expression))
        if known is None:
            inner = [self._size(each) for each in parts(expression)]
            depth = 1 + max((each[0] for each in inner), default=0)
            size = 1 + sum(each[1] for each in inner)
            # Keeping the expression keeps its id from being used again.
            self.depths[id(expression)] = known = (expression, depth, size)
        if known[1] > EXPRESSION_DEPTH_MAX or known[2] > EXPRESSION_NODES_MAX:
            raise self._too_large(node)

    def _size(self, expression: Expression) -> tuple[int, int]:
        """Depth and size; readers make at most a few levels at once, so this ends soon."""
        known = self.depths.get(id(expression))
        if known is None:
            inner = [self._size(each) for each in parts(expression)]
            return 1 + max((each[0] for each in inner), default=0), 1 + sum(
                each[1] for each in inner
            )
        return known[1], known[2]

    # -- refusals --

    def _too_large(self, node: exp.Expr) -> Refusal:
        message = (
            f"this expression is deeper than {EXPRESSION_DEPTH_MAX} levels "
            f"or larger than {EXPRESSION_NODES_MAX} parts"
        )
        return self._refused(message, node, "IN (...) for long chains of OR")

    def _misplaced_aggregate(self, node: exp.Expr, where: str) -> Refusal:
        if where == "SELECT":
            message = "an expression over aggregates is not supported yet"
            return self._refused(message, node, "select each aggregate as a column of its own")
        if where in AGGREGATES:
            return self._refused("an aggregate of an aggregate is not possible", node)
        return self._refused(f"an aggregate is not possible in {where}", node)

    def _unknown(self, node: exp.Expr) -> Refusal:
        name = _function_name(node) or _sql_name(type(node))
        if name in NOT_DETERMINISTIC:
            return self._not_deterministic(name, node)
        if name in AGGREGATES_LATER:
            known = ", ".join(AGGREGATES)
            return self._refused(f"{name} is not supported yet; aggregates are {known}", node)
        if isinstance(node, exp.Window):
            return self._refused("OVER (...) is not supported: a job has no order of rows", node)
        if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
            return self._refused("a subquery is only possible in FROM", node)
        if isinstance(node, exp.Anonymous):
            known_names = [*FUNCTIONS, *SYNONYMS, *AGGREGATES, "IF", "NULLIF", "MOD"]
            close = difflib.get_close_matches(name, known_names, 1)
            hint = close[0] if close else None
            return self._refused(f"unknown function {_shown(name)}", node, hint)
        return self._refused(f"{name} is not supported", node)

    def _not_deterministic(self, name: str, node: exp.Expr) -> Refusal:
        message = f"{name} is not deterministic: a retraction would not find the row it takes back"
        return self._refused(message, node)

    def _only(self, node: exp.Expr, *known: str) -> None:
        """Refuse a part of a node that nothing here would read."""
        for part, value in node.args.items():
            if value and part not in known:
                name = _sql_name(type(node))
                what = part.strip("_").upper()
                inner = value[0] if isinstance(value, list) else value
                place = inner if isinstance(inner, exp.Expr) else node
                raise self._refused(f"{what} is not supported here ({name})", place)

    def _refused(self, message: str, node: object, hint: str | None = None) -> Refusal:
        return Refusal(message, _offset(node), hint)

    @contextmanager
    def _at(self, node: exp.Expr) -> Iterator[None]:
        """Give a problem of types its place."""
        try:
            yield
        except TypeProblem as problem:
            raise self._refused(problem.message, node, problem.hint) from None

    @contextmanager
    def _problems_kept(self) -> Iterator[None]:
        """Note a refusal and go on, so that one answer names all problems."""
        try:
            yield
        except Refusal as refusal:
            self.problems.append(_problem(self.sql, refusal))


# --- the closed list of nodes --------------------------------------------------------------------

_Read = Callable[[exp.Expr], Expression]


def _arithmetic(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this", "expression", "typed", "safe")
    left, right = read(node.this), read(node.expression)
    return typing_rules.arithmetic(_ARITHMETIC[type(node)], left, right)


def _compare(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this", "expression")
    return typing_rules.comparison(_COMPARE[type(node)], read(node.this), read(node.expression))


def _logical(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this", "expression")
    op: LogicalOp = "AND" if isinstance(node, exp.And) else "OR"
    left = typing_rules.condition(read(node.this), op)
    return Logical(op, left, typing_rules.condition(read(node.expression), op), BOOLEAN)


def _not(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    return Not(typing_rules.condition(read(node.this), "NOT"), BOOLEAN)


def _negate(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    return typing_rules.negated(read(node.this))


def _concat(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    return typing_rules.call("CONCAT", [read(node.this), read(node.expression)])


def _is(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    """IS NULL; IS TRUE and IS FALSE, which are never unknown."""
    query._only(node, "this", "expression", "negate")
    operand, against = read(node.this), node.expression
    negate = bool(node.args.get("negate"))
    if isinstance(against, exp.Null):
        result: Expression = IsNull(typing_rules.typed(operand), BOOLEAN)
    elif isinstance(against, exp.Boolean):
        operand = typing_rules.condition(operand, "IS")
        wanted = bool(against.this)
        result = Call("COALESCE", (operand, Constant(not wanted, BOOLEAN)), BOOLEAN)
        negate = negate is wanted
    else:
        raise TypeProblem("IS takes NULL, TRUE or FALSE")
    return Not(result, BOOLEAN) if negate else result


def _between(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this", "low", "high")
    operand, low, high = read(node.this), read(node.args["low"]), read(node.args["high"])
    least = typing_rules.comparison(">=", operand, low)
    return Logical("AND", least, typing_rules.comparison("<=", operand, high), BOOLEAN)


def _in(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    if node.args.get("query"):
        raise TypeProblem("a subquery is only possible in FROM")
    query._only(node, "this", "expressions")
    if not node.expressions:
        raise TypeProblem("IN needs a list of values", "x IN (1, 2)")
    return typing_rules.contained(read(node.this), [read(each) for each in node.expressions])


def _like(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    escape = None
    if isinstance(node, exp.Escape):
        if not isinstance(node.this, exp.Like):
            raise TypeProblem("ESCAPE belongs to LIKE")
        escape, node = _string(node.expression, "ESCAPE"), node.this
    query._only(node, "this", "expression", "negate")
    pattern = _string(node.expression, "LIKE")
    result = typing_rules.like(read(node.this), pattern, escape)
    return Not(result, BOOLEAN) if node.args.get("negate") else result


def _case(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    """CASE WHEN, and CASE x WHEN, which compares x with each."""
    query._only(node, "this", "ifs", "default")
    subject = read(node.this) if node.args.get("this") is not None else None
    branches = []
    for branch in node.args["ifs"]:
        when = read(branch.this)
        if subject is not None:
            when = typing_rules.comparison("=", subject, when)
        branches.append((when, read(branch.args["true"])))
    default = node.args.get("default")
    return typing_rules.choice(branches, None if default is None else read(default), "CASE")


def _cast(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    lenient = isinstance(node, exp.TryCast)
    if not isinstance(node.args["to"], exp.Var):
        return _typed_literal(query, node)
    query._only(node, "this", "to")
    return typing_rules.cast(read(node.this), _named_type(node.args["to"].name), lenient)


def _typed_literal(query: _Query, node: exp.Expr) -> Expression:
    """DATE '...' and TIMESTAMP '...', which sqlglot reads as a cast of a string."""
    kind = node.args["to"].this
    if (
        isinstance(node.this, exp.Literal)
        and node.this.is_string
        and not node.args["to"].expressions
    ):
        if kind is exp.DType.DATE:
            return typing_rules.date_literal(node.this.name)
        if kind is exp.DType.TIMESTAMP:
            return typing_rules.timestamp_literal(node.this.name)
    raise TypeProblem("only DATE '...' and TIMESTAMP '...' are literals with a type", "CAST")


def _named_type(text: str) -> SqlType:
    words = " ".join(text.upper().split())
    if re.match(r"(VAR)?(CHAR|BINARY)\s*\(", words):
        raise TypeProblem(f"{words} would cut values to a length", "STRING, and SUBSTRING to cut")
    words = {"NUMERIC": "DECIMAL", "DEC": "DECIMAL", "VARBINARY": "BINARY"}.get(words, words)
    try:
        return SqlType.parse(words)
    except ValueError as error:
        raise TypeProblem(str(error)) from None


def _literal(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    text = node.name
    return Constant(text, STRING) if node.is_string else typing_rules.number(text)


def _hex(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this")
    try:
        return Constant(bytes.fromhex(node.name), BINARY)
    except ValueError:
        raise TypeProblem("X'...' takes pairs of hexadecimal digits", "X'00FF'") from None


def _boolean(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    return Constant(bool(node.this), BOOLEAN)


def _null(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    return Constant(None, UNTYPED)


def _function(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this", "expressions")
    name = _function_name(node)
    if name in FUNCTIONS or name in SYNONYMS:
        return typing_rules.call(name, [read(each) for each in node.expressions])
    if name in window_query.WORDS:
        return window_query.read_bound(node, query.window, read)
    if name not in _REWRITTEN:
        raise query._unknown(node)
    count, example = _REWRITTEN[name]
    if len(node.expressions) not in count:
        raise TypeProblem(f"{name} does not take {len(node.expressions)} arguments", example)
    arguments = [read(each) for each in node.expressions]
    if name == "MOD":
        return typing_rules.arithmetic("%", *arguments)
    if name == "NULLIF":
        equal = typing_rules.comparison("=", *arguments)
        null = Constant(None, arguments[0].type)
        return typing_rules.choice([(equal, null)], arguments[0], name)
    rest = arguments[2] if len(arguments) > 2 else None
    return typing_rules.choice([(arguments[0], arguments[1])], rest, name)


_REWRITTEN = {
    "IF": ((2, 3), "IF(condition, x, y)"),
    "NULLIF": ((2,), "NULLIF(x, y)"),
    "MOD": ((2,), "MOD(x, y)"),
}


def _substring(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this", "start", "length")
    given = (node.this, node.args.get("start"), node.args.get("length"))
    return typing_rules.call("SUBSTRING", [read(each) for each in given if each is not None])


def _trim(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    if node.args.get("expression") is not None:
        raise TypeProblem("TRIM takes spaces off; other characters are not supported", "TRIM(s)")
    query._only(node, "this")
    return typing_rules.call("TRIM", [read(node.this)])


def _extract(query: _Query, node: exp.Expr, read: _Read) -> Expression:
    query._only(node, "this", "expression")
    part = node.name.upper()
    name = SYNONYMS.get(part, part)
    if name not in ("YEAR", "MONTH", "DAYOFMONTH", "HOUR", "MINUTE", "SECOND"):
        raise TypeProblem(f"EXTRACT({_shown(part)} ...) is not supported", "EXTRACT(YEAR FROM d)")
    return typing_rules.call(name, [read(node.expression)])


def _string(node: exp.Expr, what: str) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise TypeProblem(f"{what} takes a string, written out", "'...'")
    return str(node.name)


_READERS: dict[type[exp.Expr], Callable[[_Query, exp.Expr, _Read], Expression]] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_COMPARE, _compare),
    exp.And: _logical,
    exp.Or: _logical,
    exp.Not: _not,
    exp.Neg: _negate,
    exp.DPipe: _concat,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Literal: _literal,
    exp.HexString: _hex,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Anonymous: _function,
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.Extract: _extract,
}


# --- small questions about nodes and names -------------------------------------------------------


def _function_name(node: exp.Expr) -> str:
    """The name of a call, in capitals; empty for any other node."""
    return node.name.upper() if isinstance(node, exp.Anonymous) else ""


def _sql_name(kind: type[exp.Expr]) -> str:
    """CurrentDate as CURRENT_DATE."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()


def _offset(node: object) -> int:
    """Where a node starts; nodes without a place of their own start where their parts do."""
    while isinstance(node, exp.Expr):
        starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
        if starts:
            return int(min(starts))
        node = node.parent
    return 0


def _alike(left: str, right: str) -> bool:
    return left.lower() == right.lower()


def _shown(name: str) -> str:
    """A name from the query, short and on one line."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return (
        text if len(text) <= IDENTIFIER_CHARACTERS_MAX else text[:IDENTIFIER_CHARACTERS_MAX] + "…"
    )


def _follows(expression: Expression, keys: list[Expression]) -> bool:
    """Whether an expression is made of group expressions and constants alone."""
    if expression in keys:
        return True
    if isinstance(expression, Column):
        return False
    return all(_follows(each, keys) for each in parts(expression))


def _column_name(expression: Expression) -> str | None:
    """The column that an expression is, or is a cast of."""
    while isinstance(expression, Cast):
        expression = expression.operand
    return expression.name if isinstance(expression, Column) else None


def _readable(expression: Expression) -> str:
    """A name for a hidden group column, from the columns of the source that it reads."""
    if isinstance(expression, WindowBound):
        return expression.name
    columns = (each.name for each in walk(expression) if isinstance(each, Column))
    return "_".join(dict.fromkeys(columns)) or "key"


def _unused(name: str, taken: Mapping[str, str]) -> str:
    """The name, or the name with the first number that makes it new; always a valid one."""
    room = IDENTIFIER_CHARACTERS_MAX - 5
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)[:room]
    clean = clean if _NAME.fullmatch(clean) else f"_{clean}"
    candidate, number = clean, 1
    while candidate.lower() in taken or candidate.lower() in RESERVED:
        number += 1
        candidate = f"{clean}_{number}"
    return candidate


__all__ = ["AGGREGATES", "RESERVED", "QueryError", "QueryProblem", "parse_query"]
