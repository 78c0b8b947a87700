"""What other engines write in another way, as a syntax tree of what retally has.

    COUNT_IF(c)                     ──► COUNT(*) FILTER (WHERE c)
    FIRST(x ORDER BY y)             ──► FIRST_VALUE(x RESPECT NULLS ORDER BY y); LAST likewise
    ARRAY_AGG(x ORDER BY y)[1]      ──► the same
    ARG_MAX(x, y, k)                ──► ARG_MAX_N(x, y, k)
    ANY_VALUE(x ORDER BY y)         ──► FIRST_VALUE(x ORDER BY y)
    JSON_AGG(x ORDER BY y)          ──► JSON_ARRAYAGG(x ORDER BY y NULL ON NULL)
    JSON_OBJECT_AGG(k, v)           ──► JSON_OBJECTAGG(KEY k VALUE v NULL ON NULL)
    WITH w AS (SELECT ...) FROM w   ──► FROM (SELECT ...) AS w
    the first row of each group     ──► GROUP BY (see first_rows)

A name that only differs is a synonym in the table of its function.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.core.aggregates import SYNONYMS
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.first_rows import rewrite_first_rows
from jobs.core.sql.problems import function_name, make_call, offset_of
from schemas.limits import EXPRESSION_NODES_MAX

_ENDS = {"FIRST": "FIRST_VALUE", "LAST": "LAST_VALUE"}
_JSON = {
    **dict.fromkeys(("JSON_AGG", "JSONB_AGG", "JSON_GROUP_ARRAY"), "JSON_ARRAYAGG"),
    **dict.fromkeys(("JSON_OBJECT_AGG", "JSONB_OBJECT_AGG", "JSON_GROUP_OBJECT"), "JSON_OBJECTAGG"),
}
_INSTEAD_OF_WITH = "FROM (SELECT ... FROM t)"


def rewrite_names(select: exp.Select) -> exp.Select:
    """Return the query in the words that retally has; raise Refusal if it cannot be said so."""
    _insert_tables(select)
    for bracket in list(select.find_all(exp.Bracket)):
        _rewrite_first_item(bracket)
    for call in list(select.find_all(exp.Anonymous)):
        name = function_name(call)
        if name in ("COUNTIF", "COUNT_IF"):
            _rewrite_count_if(call)
        elif name in _ENDS:
            _rewrite_end(call, _ENDS[name])
        elif (known := SYNONYMS.get(name, name)) in ("ARG_MIN", "ARG_MAX") and len(
            call.expressions
        ) == 3:
            call.set("this", f"{known}_N")
        elif name == "ANY_VALUE" and isinstance(next(iter(call.expressions), None), exp.Order):
            call.set("this", "FIRST_VALUE")
        elif name in _JSON:
            call.set("this", _JSON[name])
            if _JSON[name] == "JSON_OBJECTAGG":  # the parser gives the value, then its key
                call.set("expressions", call.expressions[::-1])
            call.append("expressions", exp.Literal.string("NULL"))
    for each in list(select.find_all(exp.Select)):
        rewrite_first_rows(each)
    return select


def _rewrite_count_if(call: exp.Anonymous) -> None:
    if len(call.expressions) != 1 or isinstance(call.expressions[0], exp.Distinct | exp.Order):
        message = f"{function_name(call)} takes one condition"
        raise Refusal(message, offset_of(call), "COUNT_IF(x > 0)")
    condition = call.expressions[0]
    count = make_call(call, "COUNT", exp.Star())
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
