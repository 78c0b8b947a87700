"""Turn the SQL text of a query into a plan, or report every problem with line and column.

    SELECT name, SUM(v) AS s FROM (SELECT name, CAST(cnt AS INT) AS v FROM t) GROUP BY name
       │ dialect: text to syntax tree
       ▼
    scopes (a derived table is inserted into the outer query) ──► typed expressions, joins
       ▼
    Plan: where, group columns, distinct arguments, aggregates, result columns

There is a closed list of kinds of syntax nodes, and for each kind a closed list of parts. Anything
else is refused by name, never ignored. No text of a user gets beyond this package: a plan contains
only names that match `NAME`, columns of the source, and typed values.

    select            the SELECT as a whole: clauses, keys
    from_clause       one item of FROM; joins has several
    result_columns    the SELECT list, aggregates, names
    scope             the meaning of names
    row_expressions   row expressions; expression_nodes has a reader for each kind of node
    problems          problems and their positions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from jobs.core.plan import typing_rules
from jobs.core.plan.relations import columns_in, prune
from jobs.core.plan.tree import Column, Expression, Named, Plan, WindowBound
from jobs.core.sql import grouping_sets, window_calls
from jobs.core.sql.aggregate_calls import AGGREGATES, OperatorClass, mark_classes
from jobs.core.sql.dialect import Refusal, parse_select
from jobs.core.sql.joins import JoinReader
from jobs.core.sql.other_names import rewrite_names
from jobs.core.sql.problems import QueryError, QueryProblem, problem_at, same_name
from jobs.core.sql.result_columns import ResultExpressions
from jobs.core.sql.scope import RESERVED, Scope, SelectItem, readable_name
from schemas.limits import COLUMNS_MAX, EXPRESSION_NODES_MAX
from schemas.types.sql_types import SqlType

NO_CLASSES: Mapping[str, OperatorClass] = {}


def parse_query(
    sql: str,
    columns: Mapping[str, SqlType],
    metadata: Mapping[str, SqlType] | None = None,
    classes: Mapping[str, OperatorClass] = NO_CLASSES,
) -> Plan:
    """Return the plan of a query over these columns; raise QueryError with every problem.

    A query may name `metadata` too, which is then among the used columns of the plan only. It may
    call `classes` like other aggregates."""
    plan = parse_joins(sql, {"": {**columns, **(metadata or {})}}, classes)
    if plan.relation is not None:
        return plan
    return replace(plan, columns=tuple(each for each in plan.columns if each.name in columns))


def parse_joins(
    sql: str,
    sources: Mapping[str, Mapping[str, SqlType]],
    classes: Mapping[str, OperatorClass] = NO_CLASSES,
) -> Plan:
    """Return the plan of a query over these sources; raise QueryError with every problem.

    FROM may call a source without a name as it likes."""
    problems: list[QueryProblem] = []
    plan = None
    try:
        select = mark_classes(rewrite_names(parse_select(sql)), classes)
        plan = _Query(sql, problems, sources=sources).plan(select)
    except Refusal as refusal:
        problems.append(problem_at(sql, refusal))
    if plan is None or problems:
        raise QueryError(sorted(problems, key=lambda each: (each.line, each.column)))
    return plan


@dataclass
class _Query(JoinReader):
    """Turns one query into a plan."""

    sets: grouping_sets.KeySets | None = None  # set after GROUP BY, if it has grouping sets

    # -- the SELECT as a whole --

    def plan(self, select: exp.Select) -> Plan | None:
        scope, relation, where = self.read_relations(select)
        scope = self._scope_with_window(select, scope)
        items = [item for node in select.expressions for item in self.read_items(node, scope)]
        keys = self._read_keys(select, scope, items)
        having = self._read_having(select, scope, items)
        if self.problems:
            return None
        having = self._apply_sets(select, keys, items, having)
        keys = self._apply_distinct(select, keys, items)
        if len(items) > COLUMNS_MAX:
            raise Refusal(f"a result can have at most {COLUMNS_MAX} columns", 0)
        if not keys and not self.calls and not any(item.call for item in items):
            raise self.refusal(
                "a query needs GROUP BY or an aggregate",
                select,
                "SELECT k, COUNT(*) ... GROUP BY k",
            )
        group = self.group_columns(keys, items)
        called = self.all_calls(items)
        over = ResultExpressions(self, keys, group, called)
        having = None if having is None else over.resolve(having, select.args["having"].this)
        for item in items:
            if item.computed:
                with self.collect_problems():
                    item.expression = over.resolve(item.expression, item.node)
        self.name_results(items)
        if self.problems:
            return None
        named = self.name_keys(group, items)
        arguments, aggregates = self.make_aggregates(called, [*items, *named])
        computed = tuple(Named(each.name, each.expression) for each in items if each.computed)
        read = [each.expression for each in (*named, *arguments, *computed)]
        read += [each for each in (where, having) if each is not None]
        if sum(self.size(each)[1] for each in read) > EXPRESSION_NODES_MAX:
            message = f"the query has more than {EXPRESSION_NODES_MAX} parts, derived ones included"
            raise Refusal(message, 0)
        used = set(columns_in(read))
        if relation is None:
            columns = self.sources[""].items()
            source = tuple(Column(name, sql_type) for name, sql_type in columns)
        else:
            relation = prune(relation, used)
            source = relation.columns
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
            relation=relation,
        )

    def _scope_with_window(self, select: exp.Select, scope: Scope) -> Scope:
        """Return the scope after GROUP BY, which also has the bounds of its window."""
        group = select.args.get("group")
        keys = group.expressions if group is not None else []
        calls = [key for key in keys if window_calls.is_window(key)]
        if not calls:
            return scope
        if len(calls) > 1:
            raise self.refusal("a query can have one window only", calls[1])
        with self.blame(calls[0]):
            self.window = window_calls.read_window(
                calls[0], lambda node: self.read_row(node, scope, "GROUP BY")
            )
        return replace(scope, names=window_calls.add_bounds(scope.names, self.window))

    # -- SELECT list and GROUP BY --

    def _read_keys(
        self, select: exp.Select, scope: Scope, items: list[SelectItem]
    ) -> list[Expression]:
        """Return the expressions of GROUP BY; it may name columns, positions and aliases."""
        group = select.args.get("group")
        if group is None:
            return []
        keys: list[Expression] = []
        with self.collect_problems():
            if group.args.get("rollup") or group.args.get("cube"):
                hint = "GROUP BY ROLLUP(a, b), or CUBE(a, b)"
                raise self.refusal("WITH ROLLUP and WITH CUBE are not supported", group, hint)
            self.require_only(group, "expressions", "all")
            if group.args.get("all"):  # GROUP BY ALL
                return list(
                    dict.fromkeys(e.expression for e in items if not (e.call or e.computed))
                )
            if grouping_sets.has_sets(group.expressions):
                return self._read_grouping_sets(group, scope, items, select)
            for node in group.expressions:
                keys += [
                    e for e in self._read_key_columns(node, scope, items, select) if e not in keys
                ]
        return keys

    def _read_key_columns(
        self, node: exp.Expr, scope: Scope, items: list[SelectItem], select: exp.Select
    ) -> list[Expression]:
        """Return a key of GROUP BY: one expression, or both bounds of a window."""
        key = self._read_key(node, scope, items, len(select.expressions))
        with self.blame(node):
            typing_rules.require_type(key)
        return [*window_calls.window_bounds(key.window)] if isinstance(key, WindowBound) else [key]

    def _read_grouping_sets(
        self, group: exp.Group, scope: Scope, items: list[SelectItem], select: exp.Select
    ) -> list[Expression]:
        """Return the keys as in grouping sets, and then what tells the sets apart."""
        with self.blame(group):
            sets = grouping_sets.read_sets(group.expressions)
        read = {
            id(node): self._read_key_columns(node, scope, items, select)
            for each in sets
            for node in each
        }
        by_set = [[key for node in each for key in read[id(node)]] for each in sets]
        made = grouping_sets.KeySets(by_set, distinct=group.args.get("all") is False)
        for key, wrapped in zip(made.keys, made.set_columns, strict=True):
            if isinstance(key, WindowBound) and wrapped != key:
                hint = f"GROUP BY {window_calls.EXAMPLES['TUMBLE']}, ROLLUP(a, b)"
                raise self.refusal("every grouping set must contain the window", group, hint)
        self.sets = made
        return [*made.set_columns, *made.ids] if made.has_several else made.keys

    def _read_having(
        self, select: exp.Select, scope: Scope, items: list[SelectItem]
    ) -> Expression | None:
        """Return the condition of HAVING; a source column hides a result column."""
        having = select.args.get("having")
        if having is None:
            return None
        with self.collect_problems():
            names = {**self.alias_expressions(items, scope), **scope.names}
            within = replace(scope, names=names)
            expression = self.read_row(having.this, within, "HAVING")
            with self.blame(having.this):
                return typing_rules.require_condition(expression, "HAVING")
        return None

    def _apply_sets(
        self,
        select: exp.Select,
        keys: list[Expression],
        items: list[SelectItem],
        having: Expression | None,
    ) -> Expression | None:
        """Rewrite items and HAVING over the key columns of the grouping sets."""
        sets = self.sets or grouping_sets.KeySets([keys])
        for item in items:
            if not item.call:
                with self.blame(item.node):
                    item.expression = sets.rewrite(item.expression)
        if having is None:
            return None
        with self.blame(select.args["having"].this):
            return sets.rewrite(having)

    def _apply_distinct(
        self, select: exp.Select, keys: list[Expression], items: list[SelectItem]
    ) -> list[Expression]:
        """Return the keys of SELECT DISTINCT: SELECT DISTINCT a, b is GROUP BY a, b.

        With aggregates, or with all keys of GROUP BY selected, the rows are distinct already."""
        distinct = select.args.get("distinct")
        if distinct is None:
            return keys
        self.require_only(distinct)
        rows = [item.expression for item in items if not (item.call or item.computed)]
        if select.args.get("group") is None:
            return keys if len(rows) < len(items) else list(dict.fromkeys(rows))
        if hidden := [key for key in keys if key not in rows]:
            message = f"SELECT DISTINCT lacks the key `{readable_name(hidden[0])}` of GROUP BY"
            hint = "select it, or let a second job read the first one's changelog"
            raise self.refusal(message, distinct, hint)
        return keys

    def _read_key(
        self, node: exp.Expr, scope: Scope, items: list[SelectItem], width: int
    ) -> Expression:
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            position = int(node.name)
            if not 1 <= position <= width:
                message = f"GROUP BY {node.name} is not a position from 1 to {width}"
                raise self.refusal(message, node)
            if self.problems:  # positions are only correct if every item is valid
                message = f"GROUP BY {position} needs a SELECT list without problems"
                raise self.refusal(message, node)
            return self._require_key_item(items[position - 1], node)
        if self.window is not None and window_calls.is_window(node):
            return window_calls.window_bounds(self.window)[0]
        if isinstance(node, exp.Column) and not node.table:
            column = scope.lookup(node.name)
            aliased = [item for item in items if item.alias and same_name(item.alias, node.name)]
            if column is None and len(aliased) == 1:
                return self._require_key_item(aliased[0], node)
        return self.read_row(node, scope, "GROUP BY")

    def _require_key_item(self, item: SelectItem, node: exp.Expr) -> Expression:
        if item.call or item.computed:
            raise self.refusal("GROUP BY cannot contain an aggregate", node)
        return item.expression


__all__ = ["AGGREGATES", "RESERVED", "QueryError", "QueryProblem", "parse_query"]
