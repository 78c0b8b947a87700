"""The first row of each group by an order, as a query with GROUP BY.

    SELECT DISTINCT ON (k) k, a FROM t ORDER BY k, v DESC
    SELECT k, a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) = 1
    SELECT k, a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM t)
      WHERE rn = 1
       └──► SELECT k, FIRST_VALUE(a RESPECT NULLS ORDER BY v DESC, a DESC) AS a FROM t GROUP BY k

Each value is a sort key of all others. So they are of one row, and share one multiset.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from jobs.core.sql.aggregate_calls import is_call
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import function_name, make_call, offset_of, same_name, split_ands

_CLAUSES = ("expressions", "from_", "where")
# A row is the first one if its number, on the left, compares so with the literal.
_FIRST: dict[type[exp.Expr], str] = {exp.EQ: "1", exp.LTE: "1", exp.LT: "2"}


def rewrite_first_rows(select: exp.Select) -> None:
    """Rewrite a SELECT of the first row of each group; leave any other as it is."""
    distinct, qualify = select.args.get("distinct"), select.args.get("qualify")
    if distinct is not None and (on := distinct.args.get("on")) is not None:
        _rewrite_distinct_on(select, on)
    elif qualify is not None:
        window = _numbering_of(number_of_first(qualify.this))
        if window is not None:
            select.set("qualify", None)
            _group(select, window.args["partition_by"], window.args["order"].expressions)
    elif select.args.get("from_") is not None and select.args.get("where") is not None:
        inner = select.args["from_"].this.this
        for item in inner.expressions if isinstance(inner, exp.Select) else ():
            if (window := _numbering_of(item.unalias())) is not None and item.alias:
                _rewrite_row_number(select, inner, item, window)
                break


def _rewrite_distinct_on(select: exp.Select, on: exp.Expr) -> None:
    written = on.expressions if isinstance(on, exp.Tuple) else [on.unnest()]
    keys = [_item_of(each, select) for each in written]
    order = select.args.get("order")
    sorted_by = [] if order is None else [_sort_key(each, select) for each in order.expressions]
    _group(select, keys, sorted_by)
    select.set("distinct", None)
    select.set("order", None)


def _sort_key(ordered: exp.Ordered, select: exp.Select) -> exp.Ordered:
    """Return a sort key over rows; ORDER BY may also name a position or an alias."""
    made = ordered.copy()
    made.set("this", _item_of(ordered.this.unnest(), select))
    return made


def _item_of(key: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return the item of SELECT that a position or an alias names; else the key itself."""
    items = select.expressions
    if isinstance(key, exp.Literal) and key.name.isdigit() and 0 < int(key.name) <= len(items):
        key = items[int(key.name) - 1].unalias()
    elif isinstance(key, exp.Column) and not key.table:
        named = (each.this for each in items if isinstance(each, exp.Alias))
        key = next((each for each in named if each.parent.alias == key.name), key)
    return key.unnest().copy()


# --- ROW_NUMBER ----------------------------------------------------------------------------------


def _numbering_of(node: exp.Expr | None) -> exp.Window | None:
    """Return ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..); None of anything else."""
    if not isinstance(node, exp.Window) or function_name(node.this) != "ROW_NUMBER":
        return None
    parts = {part for part, value in node.args.items() if value}
    return node if parts == {"this", "partition_by", "order", "over"} else None


def number_of_first(condition: exp.Expr) -> exp.Expr | None:
    """Return n of n = 1, n <= 1 or n < 2; None of anything else."""
    left, right = condition.args.get("this"), condition.args.get("expression")
    if isinstance(condition, exp.EQ) and isinstance(left, exp.Literal):
        left, right = right, left
    literal = _FIRST.get(type(condition))
    return left if literal is not None and right == exp.Literal.number(literal) else None


def _rewrite_row_number(
    select: exp.Select, inner: exp.Select, item: exp.Expr, window: exp.Window
) -> None:
    """Group the rows of the inner SELECT if the outer one takes those with the number 1."""
    conditions = list(split_ands(select.args["where"].this))
    numbers = [number_of_first(each) for each in conditions]
    rest = [
        each
        for each, number in zip(conditions, numbers, strict=True)
        if not isinstance(number, exp.Column) or not same_name(number.name, item.alias)
    ]
    if len(rest) == len(conditions):
        return
    others = [part for part, value in select.args.items() if value and part not in _CLAUSES]
    if others or any(map(_has_call, select.expressions)):
        message = "GROUP BY, aggregates and joins over the first rows of groups are not supported"
        raise Refusal(message, offset_of(select), "let a second job read the first one's changelog")
    item.set("this", exp.Cast(this=exp.Literal.number(1), to=exp.Var(this="BIGINT")))
    keys = [_name_inside(inner, each) for each in window.args["partition_by"]]
    sorted_by = window.args["order"].expressions
    for each in sorted_by:
        each.set("this", _name_inside(inner, each.this))
    select.set("where", None)
    _group(select, keys, sorted_by, rest)


def _name_inside(inner: exp.Select, value: exp.Expr) -> exp.Column:
    """Return the column of a derived table with a value; add it if there is none."""
    for item in inner.expressions:
        if item.unalias() == value:
            return exp.column(item.alias_or_name)
    if isinstance(value, exp.Column) and any(isinstance(i, exp.Star) for i in inner.expressions):
        return exp.Column(this=value.this.copy())
    name = exp.to_identifier(f"ROW_NUMBER {len(inner.expressions)}", quoted=True)
    inner.append("expressions", exp.Alias(this=value, alias=name))
    return exp.Column(this=name.copy())


# --- the query with GROUP BY ---------------------------------------------------------------------


def _group(
    select: exp.Select,
    keys: Sequence[exp.Expr],
    sorted_by: Sequence[exp.Ordered],
    conditions: Sequence[exp.Expr] = (),
) -> None:
    """Make a SELECT over rows one of the first row by an order, for each group by keys."""
    values = [each.unalias().unnest() for each in select.expressions]
    if select.args.get("group") is not None or any(map(_has_call, values)):
        message = "a query of the first row of each group cannot have GROUP BY or aggregates"
        raise Refusal(message, offset_of(select), "ARG_MAX(x, y) with GROUP BY k")
    by = [each for each in sorted_by if not _is_key(each.this, keys)]
    named = [each.this for each in by]
    down = bool(by and by[-1].args.get("desc"))  # one direction needs no sorting
    for value in (*values, *conditions):
        if not _is_key(value, keys) and value not in named:
            named.append(value)
            by.append(exp.Ordered(this=value, desc=down, nulls_first=not down))

    def first(value: exp.Expr) -> exp.Expr:
        order = exp.Order(this=exp.RespectNulls(this=value), expressions=by)
        return make_call(value, "FIRST_VALUE", order)

    items = []
    for item, value in zip(select.expressions, values, strict=True):
        if _is_key(value, keys) or isinstance(value, exp.Star):
            items.append(item)
            continue
        name = item.alias or (value.name if isinstance(value, exp.Column) else "")
        made = first(value)
        items.append(exp.Alias(this=made, alias=exp.to_identifier(name)) if name else made)
    select.set("expressions", items)
    select.set("group", exp.Group(expressions=list(keys)))
    if conditions:
        both = reduce(
            lambda left, right: exp.And(this=left, expression=right), map(first, conditions)
        )
        select.set("having", exp.Having(this=both))


def _is_key(value: exp.Expr, keys: Sequence[exp.Expr]) -> bool:
    """Return whether a value is a key, which may have another spelling or a qualifier."""
    columns = [each for each in keys if isinstance(each, exp.Column)]
    return value in keys or any(
        isinstance(value, exp.Column)
        and same_name(value.name, key.name)
        and not (value.table and key.table)
        for key in columns
    )


def _has_call(node: exp.Expr) -> bool:
    return any(map(is_call, node.walk()))
