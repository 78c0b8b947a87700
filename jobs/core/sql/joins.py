"""Read a FROM of several items, and IN and EXISTS of WHERE, as a left-deep tree of joins.

    FROM orders AS o LEFT JOIN customers AS c ON o.customer_id = c.id AND c.active
    WHERE o.amount > 0 AND EXISTS (SELECT 1 FROM shipped AS s WHERE s.order_id = o.id)
       │
       ├─ an equality of both sides      ──► a key of the join
       ├─ a condition on one side        ──► the scan of this side, where SQL allows it
       │      on a side that is kept     ──► its key: a row for which it is not true never matches
       ├─ another condition on both      ──► INNER only: which pairs match
       ├─ IN, EXISTS, NOT EXISTS         ──► a SEMI or ANTI join, the last of the tree
       └─ what is left of WHERE          ──► Plan.where, over the joined rows

NULL is equal to nothing, so a key with NULL never matches. Both types of a key are equal: a cast in
the query is visible, and a hidden one could fail or round.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from sqlglot import exp

from jobs.core.plan import typing_rules
from jobs.core.plan.relations import aliases_in, join_conditions, list_scans, push_condition
from jobs.core.plan.scalar_functions import make_call
from jobs.core.plan.tree import Case, Expression, Join, JoinKind, Named, Relation, Scan
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.from_clause import QUERY_CLAUSES, SUBQUERY_CLAUSES, FromItem, FromReader
from jobs.core.sql.printer import expression_sql
from jobs.core.sql.problems import printable_name, split_ands
from jobs.core.sql.scope import NAME, Scope, find_spelling, free_name
from schemas.limits import JOINS_MAX
from schemas.types.sql_types import STRING

_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "INNER",
    ("", "INNER"): "INNER",
    ("", "CROSS"): "INNER",
    ("LEFT", ""): "LEFT",
    ("LEFT", "OUTER"): "LEFT",
    ("RIGHT", ""): "RIGHT",
    ("RIGHT", "OUTER"): "RIGHT",
    ("FULL", ""): "FULL",
    ("FULL", "OUTER"): "FULL",
}
_NO_EQUALITY = "a join needs an equality of its two sides"
_NOT_IN = "NOT IN (SELECT ...) is never true if the subquery returns a NULL"


@dataclass(frozen=True, slots=True)
class _Condition:
    """A part of ON or WHERE; an equality also as its two operands."""

    node: exp.Expr
    expression: Expression
    operands: tuple[Expression, Expression] | None = None


@dataclass(slots=True)
class _Pending:
    """An item of FROM that is to be joined with all before it."""

    node: exp.Expr
    kind: JoinKind
    scan: Scan
    conditions: list[_Condition]


class _Names:
    """The names that the items of FROM have so far."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Expression]] = {}
        self.merged: dict[str, Expression] = {}  # by USING

    def scope(self) -> Scope:
        every = [name for names in self.tables.values() for name in names]
        counts = Counter(name.lower() for name in every)
        merged = {name.lower() for name in self.merged}
        names = {
            name: expression
            for table in self.tables.values()
            for name, expression in table.items()
            if counts[name.lower()] == 1
        }
        ambiguous = {name for name, count in counts.items() if count > 1} - merged
        return Scope(names | self.merged, tuple(self.tables), self.tables, frozenset(ambiguous))


class JoinReader(FromReader):
    """Reads FROM and WHERE of a query."""

    def read_relations(
        self, select: exp.Select
    ) -> tuple[Scope, Relation | None, Expression | None]:
        """Return the names, what FROM joins (None: an only source), and what WHERE adds to it."""
        first = self.check_clauses(select, QUERY_CLAUSES)
        where = select.args.get("where")
        nodes = [] if where is None else list(split_ands(where.this))
        joins = select.args.get("joins") or []
        subqueries = [node for node in nodes if _subquery_of(node) is not None]
        if not joins and not subqueries and "" in self.sources:
            item = self.read_item(first)
            rest = item.where
            with self.collect_problems():
                rest = join_conditions(rest, self.read_where(select, item.scope))
            return item.scope, None, rest
        if beyond := [*joins, *subqueries][JOINS_MAX:]:
            raise self.refusal(f"a query can have at most {JOINS_MAX} joins", beyond[0])
        names = _Names()
        relation: Relation = self._read_scan(first, names)
        pending = [self._read_join(node, names) for node in joins]
        scope = names.scope()
        conditions = [self._read_part(n, scope, "WHERE") for n in nodes if n not in subqueries]
        for index, each in enumerate(pending):
            filled = any(later.kind in ("RIGHT", "FULL") for later in pending[index:])
            taken = [] if filled else self._take_keys(relation, each, conditions)
            relation = self._join(
                each.node, each.kind, relation, each.scan, each.conditions + taken
            )
        for node in subqueries:
            relation = self._join_subquery(relation, node, scope)
        rest = None
        for condition in conditions:
            pushed = push_condition(relation, condition.expression)
            if pushed is None:
                rest = join_conditions(rest, condition.expression)
            relation = relation if pushed is None else pushed
        return scope, relation, rest

    # -- items of FROM --

    def _read_scan(self, node: exp.Expr, names: _Names) -> Scan:
        item = self.read_item(node)
        alias = item.alias
        if alias is None:
            raise self.refusal("a derived table in a join needs a name", node, "AS name")
        if not NAME.fullmatch(alias):
            raise self.refusal(f"`{printable_name(alias)}` cannot name a table", node, "AS name")
        if alias.lower() in map(str.lower, names.tables):
            message = f"FROM has two tables with the name `{alias}`"
            raise self.refusal(message, node, f"AS {alias}_2")
        scan = _scan_of(item, alias)
        names.tables[alias] = _names_of(scan)
        return scan

    def _read_join(self, node: exp.Join, names: _Names) -> _Pending:
        kind = self._read_kind(node)
        before = names.scope()
        scan = self._read_scan(node.this, names)
        conditions: list[_Condition] = []
        if on := node.args.get("on"):
            scope = names.scope()
            conditions = [self._read_part(part, scope, "ON") for part in split_ands(on)]
        for name in node.args.get("using") or ():
            here = Scope(names.tables[scan.alias], (scan.alias,))
            left = self.read_row(exp.Column(this=name.copy()), before, "USING")
            right = self.read_row(exp.Column(this=name.copy()), here, "USING")
            conditions.append(self._read_equality(name, left, right))
            merged = right if kind == "RIGHT" else left
            if kind == "FULL":
                merged = make_call("COALESCE", [left, right])
            names.merged[find_spelling(names.merged, name.name) or name.name] = merged
        if not conditions and kind != "INNER":
            raise self.refusal(_NO_EQUALITY, node, f"{kind} JOIN t ON a.k = t.k")
        return _Pending(node, kind, scan, conditions)

    def _read_kind(self, node: exp.Join) -> JoinKind:
        if method := node.args.get("method"):
            message = f"{method} JOIN is not supported"
            raise self.refusal(message, node, "USING (k), or ON a.k = b.k")
        if isinstance(node.this, exp.Lateral):
            raise self.refusal(
                "LATERAL is not supported: a row cannot choose the rows to join", node
            )
        if node.this.args.get("version"):
            message = "a join with a version of a table is not supported"
            hint = "join its current rows, without FOR SYSTEM_TIME: a later change is corrected"
            raise self.refusal(message, node.this.args["version"], hint)
        self.require_only(node, "this", "side", "kind", "on", "using")
        kind = _KINDS.get((node.side, node.kind))
        if kind is None:
            message = f"{' '.join(filter(None, (node.side, node.kind)))} JOIN is not supported"
            hint = "WHERE EXISTS (SELECT 1 FROM t WHERE t.k = a.k)" if node.side else "JOIN"
            raise self.refusal(message, node, hint)
        return kind

    # -- conditions --

    def _read_part(self, node: exp.Expr, scope: Scope, clause: str) -> _Condition:
        if not isinstance(node, exp.EQ):
            return _Condition(node, self.read_condition(node, scope, clause))
        left = self.read_row(node.this, scope, clause)
        return self._read_equality(node, left, self.read_row(node.expression, scope, clause))

    def _read_equality(self, node: exp.Expr, left: Expression, right: Expression) -> _Condition:
        both = bool(aliases_in(left) and aliases_in(right))
        if both and typing_rules.common_type(left.type, right.type) is None:
            self._check_key(node, left, right)
        with self.blame(node):
            expression = typing_rules.make_comparison("=", left, right)
        return _Condition(node, expression, (left, right))

    def _key_of(
        self, condition: _Condition, left: set[str], right: str
    ) -> tuple[Expression, Expression] | None:
        """Return the keys of both sides if the condition is an equality of them."""
        for ours, theirs in _both_orders(condition.operands):
            reads = aliases_in(ours)
            if reads and reads <= left and aliases_in(theirs) == {right}:
                self._check_key(condition.node, ours, theirs)
                return ours, theirs
        return None

    def _check_key(self, node: exp.Expr, left: Expression, right: Expression) -> None:
        texts = [expression_sql(each) for each in (left, right)]
        if left.type != right.type:
            message = f"the key of a join is {left.type} on one side and {right.type} on the other"
            common = typing_rules.common_type(left.type, right.type)
            if common is None and typing_rules.can_cast(left.type, right.type):
                common = STRING if left.type == STRING else right.type
            sides = zip(texts, (left, right), strict=True)
            cast = [t if e.type == common else f"CAST({t} AS {common})" for t, e in sides]
            raise self.refusal(message, node, None if common is None else " = ".join(cast))
        if left.type.floating:
            message = f"{left.type} cannot be the key of a join, because its values are rounded"
            hint = " = ".join(f"CAST({text} AS DECIMAL(38, 6))" for text in texts)
            raise self.refusal(message, node, hint)

    # -- joins --

    def _take_keys(
        self, relation: Relation, item: _Pending, where: list[_Condition]
    ) -> list[_Condition]:
        """Take the equalities of WHERE that are keys of an inner join.

        WHERE comes after all joins. So a later join must not fill the rows of this one with NULL.
        """
        left = {scan.alias for scan in list_scans(relation)}
        inner = item.kind == "INNER"
        taken = [each for each in where if inner and self._key_of(each, left, item.scan.alias)]
        where[:] = [each for each in where if each not in taken]
        return taken

    def _join(
        self,
        node: exp.Expr,
        kind: JoinKind,
        left: Relation,
        right: Scan,
        conditions: list[_Condition],
    ) -> Join:
        join = Join(kind, left, right, (), (), ())
        aliases = {scan.alias for scan in list_scans(left)}
        keys: list[tuple[Expression, Expression]] = []
        guards: tuple[list[Expression], list[Expression]] = ([], [])  # of the left, of the right
        for each in conditions:
            key, reads = self._key_of(each, aliases, right.alias), aliases_in(each.expression)
            if key is not None:
                keys.append(key)
            elif reads <= aliases:
                pushed = None if join.keeps_left else push_condition(join.left, each.expression)
                if pushed is None:
                    guards[0].append(each.expression)
                else:
                    join = replace(join, left=pushed)
            elif reads == {right.alias}:
                pushed = None if join.keeps_right else push_condition(join.right, each.expression)
                if isinstance(pushed, Scan):
                    join = replace(join, right=pushed)
                else:
                    guards[1].append(each.expression)
            elif kind == "INNER":
                join = replace(join, residual=join_conditions(join.residual, each.expression))
            else:
                raise self._two_sided_refusal(kind, each.node)
        if not keys:
            raise self.refusal(_NO_EQUALITY, node, "ON a.k = b.k; or another order of the tables")
        ours, theirs = (
            _guard(tuple(side), conditions)
            for side, conditions in zip(zip(*keys, strict=True), guards, strict=True)
        )
        return replace(join, left_keys=ours, right_keys=theirs, columns=join.inputs)

    def _two_sided_refusal(self, kind: JoinKind, node: exp.Expr) -> Refusal:
        if kind in ("SEMI", "ANTI"):
            message = "a subquery can be related to its query by equalities only"
            return self.refusal(message, node, "a condition on the columns of one side")
        message = f"a condition on both sides of a {kind} JOIN must be an equality"
        return self.refusal(message, node, "JOIN, or a condition on the columns of one side")

    def _join_subquery(self, relation: Relation, node: exp.Expr, scope: Scope) -> Relation:
        """Join the rows of IN (SELECT ...), EXISTS or NOT EXISTS."""
        inner = _subquery_of(node)
        assert inner is not None
        negated, holder = isinstance(node, exp.Not), _without_not(node)
        if negated and isinstance(holder, exp.In):
            raise self.refusal(_NOT_IN, node, "NOT EXISTS (SELECT 1 FROM t WHERE t.k = a.k)")
        item = self.read_item(self.check_clauses(inner, (*SUBQUERY_CLAUSES, "distinct")))
        taken = {scan.alias.lower(): scan.alias for scan in list_scans(relation)}
        scan = _scan_of(item, free_name(item.alias or "subquery", taken))
        names, qualifiers = _names_of(scan), item.scope.qualifiers
        within = Scope(names, qualifiers, dict.fromkeys(qualifiers, names), outer=scope)
        where = inner.args.get("where")
        parts = [] if where is None else split_ands(where.this)
        conditions = [self._read_part(part, within, "WHERE") for part in parts]
        if isinstance(holder, exp.In):
            if len(inner.expressions) != 1:
                raise self.refusal("IN (SELECT ...) needs one column", inner)
            (value,) = inner.expressions
            value = value.this if isinstance(value, exp.Alias) else value
            left = self.read_row(holder.this, scope, "IN")
            equality = self._read_equality(node, left, self.read_row(value, within, "IN"))
            conditions.insert(0, equality)
        else:  # it returns a row for each of the scan, which an aggregate does not
            for each in inner.expressions:
                if not each.is_star:
                    self.read_row(each.unalias(), within, "EXISTS")
        return self._join(node, "ANTI" if negated else "SEMI", relation, scan, conditions)


def _scan_of(item: FromItem, alias: str) -> Scan:
    outputs = tuple(Named(f"{alias}.{name}", each) for name, each in item.names.items())
    return Scan(item.source, alias, outputs, item.where)


def _names_of(scan: Scan) -> dict[str, Expression]:
    """Return the columns of a scan's rows by their names in the query."""
    start = len(scan.alias) + 1
    return {column.name[start:]: column for column in scan.columns}


def _guard(keys: tuple[Expression, ...], conditions: list[Expression]) -> tuple[Expression, ...]:
    """Return keys that are NULL, so that they never match, where a condition is not true."""
    first, *rest = keys
    for condition in conditions:
        first = Case(((condition, first),), None, first.type)
    return (first, *rest)


def _without_not(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this if isinstance(node, exp.Not) else node
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return inner


def _subquery_of(node: exp.Expr) -> exp.Select | None:
    """Return the SELECT of IN, NOT IN, EXISTS or NOT EXISTS; None of anything else."""
    holder = _without_not(node)
    inner = holder.args.get("query") if isinstance(holder, exp.In) else None
    if isinstance(holder, exp.Exists):
        inner = holder.this
    while isinstance(inner, exp.Subquery | exp.Paren):
        inner = inner.this
    return inner if isinstance(inner, exp.Select) else None


def _both_orders(
    operands: tuple[Expression, Expression] | None,
) -> tuple[tuple[Expression, Expression], ...]:
    return () if operands is None else (operands, (operands[1], operands[0]))
