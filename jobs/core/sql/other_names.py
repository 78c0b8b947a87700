"""What other engines write in another way, as a syntax tree of what retally has.

    COUNT_IF(c)                     ──► COUNT(*) FILTER (WHERE c)
    FIRST(x ORDER BY y)             ──► FIRST_VALUE(x RESPECT NULLS ORDER BY y); LAST likewise
    ARRAY_AGG(x ORDER BY y)[1]      ──► the same
    ANY_VALUE(x ORDER BY y)         ──► FIRST_VALUE(x ORDER BY y)
    WITH w AS (SELECT ...) FROM w   ──► FROM (SELECT ...) AS w
    SELECT DISTINCT ON (k) k, x     ──► SELECT k, FIRST_VALUE(x RESPECT NULLS ORDER BY y, ...)
      FROM t ORDER BY k, y                FROM t GROUP BY k

A name that only differs is a synonym in the table of its function.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.core.sql.aggregate_calls import is_call
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import function_name, offset_of
from schemas.limits import EXPRESSION_NODES_MAX

_ENDS = {"FIRST": "FIRST_VALUE", "LAST": "LAST_VALUE"}
_INSTEAD_OF_WITH = "FROM (SELECT ... FROM t)"


def rewrite_names(select: exp.Select) -> exp.Select:
    """Return the query in the words that retally has; raise Refusal if it cannot be said so."""
    _insert_tables(select)
    for each in list(select.find_all(exp.Select)):
        _rewrite_distinct_on(each)
    for bracket in list(select.find_all(exp.Bracket)):
        _rewrite_first_item(bracket)
    for call in list(select.find_all(exp.Anonymous)):
        name = function_name(call)
        if name in ("COUNTIF", "COUNT_IF"):
            _rewrite_count_if(call)
        elif name in _ENDS:
            _rewrite_end(call, _ENDS[name])
        elif name == "ANY_VALUE" and isinstance(next(iter(call.expressions), None), exp.Order):
            call.set("this", "FIRST_VALUE")
    return select


def _rewrite_count_if(call: exp.Anonymous) -> None:
    if len(call.expressions) != 1 or isinstance(call.expressions[0], exp.Distinct | exp.Order):
        message = f"{function_name(call)} takes one condition"
        raise Refusal(message, offset_of(call), "COUNT_IF(x > 0)")
    condition = call.expressions[0]
    count = _make_call(call, "COUNT", exp.Star())
    outside = call.parent
    if isinstance(outside, exp.Filter):
        both = exp.And(
            this=exp.Paren(this=outside.expression.this), expression=exp.Paren(this=condition)
        )
        outside.set("expression", exp.Where(this=both))
        outside.set("this", count)
    else:
        call.replace(exp.Filter(this=count, expression=exp.Where(this=condition)))


def _rewrite_end(call: exp.Anonymous, name: str) -> None:
    """Rename FIRST or LAST; unlike FIRST_VALUE, these do not ignore NULLs."""
    call.set("this", name)
    order = call.expressions[0] if call.expressions else None
    if isinstance(call.parent, exp.IgnoreNulls | exp.RespectNulls):
        return
    if isinstance(order, exp.Order) and not isinstance(
        order.this, exp.IgnoreNulls | exp.RespectNulls
    ):
        order.set("this", exp.RespectNulls(this=order.this))


def _rewrite_first_item(bracket: exp.Bracket) -> None:
    call = bracket.this.unnest()
    inner = call.this if isinstance(call, exp.Filter) else call
    index, *others = bracket.expressions or [None]
    one = isinstance(index, exp.Literal) and index.name == "1" and not others
    if not one or function_name(inner) not in ("ARRAY_AGG", "LIST"):
        message = "an element of an ARRAY is not supported, except ARRAY_AGG(...)[1]"
        raise Refusal(message, offset_of(bracket), "FIRST_VALUE(x ORDER BY y)")
    _rewrite_end(inner, "FIRST_VALUE")
    bracket.replace(call)


def _make_call(call: exp.Expr, name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call at the position of another one."""
    made = exp.Anonymous(this=name, expressions=list(arguments))
    made.meta.update(call.meta)
    return made


# --- WITH ----------------------------------------------------------------------------------------


def _insert_tables(select: exp.Select) -> None:
    """Replace each name that WITH defines by its SELECT, as a derived table."""
    clause = select.args.get("with_")
    if clause is None:
        return
    if clause.args.get("recursive"):
        message = "WITH RECURSIVE is not supported: a job reads each row once"
        raise Refusal(message, offset_of(clause))
    select.set("with_", None)
    known: dict[str, exp.Expr] = {}
    used: set[str] = set()
    parts = 0
    for scope in [*clause.expressions, select]:
        body = scope.this if isinstance(scope, exp.CTE) else scope
        for table in list(body.find_all(exp.Table)):
            found = None if table.args.get("db") else known.get(table.name.lower())
            if found is None:
                continue
            used.add(table.name.lower())
            parts += sum(1 for _ in found.walk())
            if parts > EXPRESSION_NODES_MAX:
                message = f"WITH makes the query larger than {EXPRESSION_NODES_MAX} parts"
                raise Refusal(message, offset_of(table))
            alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
            rest = {key: each for key, each in table.args.items() if key not in ("this", "alias")}
            table.replace(exp.Subquery(this=found.copy(), alias=alias.copy(), **rest))
        if isinstance(scope, exp.CTE):
            _define(scope, known)
    if unused := known.keys() - used:
        message = f"WITH defines `{min(unused)}`, which no FROM names"
        raise Refusal(message, offset_of(clause))


def _define(scope: exp.CTE, known: dict[str, exp.Expr]) -> None:
    alias, name = scope.args["alias"], scope.alias.lower()
    if name in known:
        raise Refusal(f"WITH defines `{scope.alias}` twice", offset_of(scope))
    extra = [part for part, value in scope.args.items() if value and part not in ("this", "alias")]
    if extra or alias.args.get("columns") or not isinstance(scope.this, exp.Select):
        message = "WITH needs a name and one SELECT: WITH w AS (SELECT ...)"
        raise Refusal(message, offset_of(scope), _INSTEAD_OF_WITH)
    known[name] = scope.this


# --- DISTINCT ON ---------------------------------------------------------------------------------


def _rewrite_distinct_on(select: exp.Select) -> None:
    """Rewrite SELECT DISTINCT ON (k): of each k the first row by ORDER BY.

    All columns of a row are the last sort keys of each of them, so that they are of one row."""
    distinct = select.args.get("distinct")
    on = None if distinct is None else distinct.args.get("on")
    if on is None:
        return
    keys = on.expressions if isinstance(on, exp.Tuple) else [on.unnest()]
    values = [each.unalias().unnest() for each in select.expressions]
    if select.args.get("group") is not None or any(
        is_call(part) for value in values for part in value.walk()
    ):
        message = "SELECT DISTINCT ON cannot have GROUP BY or aggregates"
        raise Refusal(message, offset_of(select), "ARG_MAX(x, y) with GROUP BY k")
    order = select.args.get("order")
    sorted_by = [] if order is None else [_sort_key(each, select) for each in order.expressions]
    sorted_by = [each for each in sorted_by if each.this not in keys]
    named = [each.this for each in sorted_by]
    sorted_by += [
        exp.Ordered(this=value, nulls_first=True)
        for value in values
        if value not in keys and value not in named
    ]
    items = []
    for item, value in zip(select.expressions, values, strict=True):
        if value in keys or isinstance(value, exp.Star):
            items.append(item)
            continue
        by = [each.copy() for each in sorted_by]
        first = exp.Order(this=exp.RespectNulls(this=value.copy()), expressions=by)
        made = _make_call(value, "FIRST_VALUE", first)
        name = item.alias or (value.name if isinstance(value, exp.Column) else "")
        items.append(exp.Alias(this=made, alias=exp.to_identifier(name)) if name else made)
    select.set("expressions", items)
    select.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    select.set("distinct", None)
    select.set("order", None)


def _sort_key(ordered: exp.Ordered, select: exp.Select) -> exp.Ordered:
    """Return a sort key over rows; ORDER BY may also name a position or an alias."""
    key, items = ordered.this.unnest(), select.expressions
    if isinstance(key, exp.Literal) and key.name.isdigit() and 0 < int(key.name) <= len(items):
        key = items[int(key.name) - 1].unalias()
    elif isinstance(key, exp.Column) and not key.table:
        named = (each.this for each in items if isinstance(each, exp.Alias))
        key = next((each for each in named if each.parent.alias == key.name), key)
    made = ordered.copy()
    made.set("this", key.unnest().copy())
    return made
