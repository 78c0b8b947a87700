"""The closed list of syntax nodes that a row expression may have, each with its reader.

What is not in the lists is refused by name, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from sqlglot import exp

from jobs.core.plan import scalar_functions as functions
from jobs.core.plan import typing_rules
from jobs.core.plan.scalar_functions import FUNCTIONS, SYNONYMS, UNITS_MONTHS, UNITS_US
from jobs.core.plan.tree import (
    ArithmeticOp,
    Call,
    Case,
    Compare,
    CompareOp,
    Constant,
    Expression,
    IsNull,
    Logical,
    LogicalOp,
    Not,
    Window,
)
from jobs.core.plan.typing_rules import UNTYPED, TypeProblem
from jobs.core.sql import literals, window_calls
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import function_name, shown_name
from schemas.types.sql_types import BINARY, BOOLEAN, STRING, SqlType

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

Read = Callable[[exp.Expr], Expression]


class RowQuery(Protocol):
    """What the readers of nodes need of the query that is read."""

    window: Window | None

    def only(self, node: exp.Expr, *known: str) -> None: ...

    def unknown(self, node: exp.Expr) -> Refusal: ...


def _arithmetic(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this", "expression", "typed", "safe")
    for moment, interval in ((node.this, node.expression), (node.expression, node.this)):
        if isinstance(interval, exp.Interval):
            subtract = isinstance(node, exp.Sub)
            if not isinstance(node, exp.Add) and (not subtract or interval is node.this):
                raise TypeProblem(
                    "an INTERVAL is added to a moment, or taken from one", "t + INTERVAL '1' DAY"
                )
            count, unit = _interval(interval)
            added = typing_rules.integer_constant(-count if subtract else count)
            return functions.call("TIMESTAMPADD", [Constant(unit, STRING), added, read(moment)])
    left, right = read(node.this), read(node.expression)
    return typing_rules.arithmetic(_ARITHMETIC[type(node)], left, right)


def _interval(node: exp.Interval) -> tuple[int, str]:
    """INTERVAL '3' DAY as a number of a unit; fractions of a second as milliseconds."""
    length, unit = node.this, node.args.get("unit")
    name, match = "", None
    if isinstance(length, exp.Literal) and isinstance(unit, exp.Var):
        name = unit.name.upper().removesuffix("S")
        match = re.fullmatch(r"(-?)(\d{1,9})(?:\.(\d{1,3}))?", length.name)
    if match is None or name not in (*UNITS_US, *UNITS_MONTHS):
        units = ", ".join([*UNITS_US, *UNITS_MONTHS])
        raise TypeProblem(f"an interval is a number of one of {units}", "INTERVAL '1' DAY")
    sign = -1 if match[1] else 1
    if match[3] is None:
        return sign * int(match[2]), name
    if name != "SECOND" or int(match[2]) >= 1_000_000:
        raise TypeProblem("only seconds, fewer than a million, may have a fraction")
    return sign * int(match[2] + match[3].ljust(3, "0")), "MILLISECOND"


def _alone(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    raise TypeProblem("an INTERVAL is only possible behind + or -", "t + INTERVAL '1' DAY")


def _distinct_from(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """IS [NOT] DISTINCT FROM, which is never unknown: NULL is NULL's like."""
    query.only(node, "this", "expression")
    left, right = read(node.this), read(node.expression)
    equal = typing_rules.comparison("=", left, right)
    if not isinstance(equal, Compare):
        raise AssertionError
    no_left, no_right = (
        IsNull(cast if given.type == UNTYPED else given, BOOLEAN)
        for given, cast in ((left, equal.left), (right, equal.right))
    )
    either = Logical("OR", no_left, no_right, BOOLEAN)
    both = Logical("AND", no_left, no_right, BOOLEAN)
    alike = Case(((either, both),), equal, BOOLEAN)
    return alike if isinstance(node, exp.NullSafeEQ) else Not(alike, BOOLEAN)


def _compare(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this", "expression")
    return typing_rules.comparison(_COMPARE[type(node)], read(node.this), read(node.expression))


def _logical(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this", "expression")
    op: LogicalOp = "AND" if isinstance(node, exp.And) else "OR"
    left = typing_rules.condition(read(node.this), op)
    return Logical(op, left, typing_rules.condition(read(node.expression), op), BOOLEAN)


def _not(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    return Not(typing_rules.condition(read(node.this), "NOT"), BOOLEAN)


def _negate(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    return typing_rules.negated(read(node.this))


def _concat(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    return functions.call("CONCAT", [read(node.this), read(node.expression)])


def _is(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """IS NULL; IS TRUE and IS FALSE, which are never unknown."""
    query.only(node, "this", "expression", "negate")
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


def _between(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this", "low", "high")
    operand, low, high = read(node.this), read(node.args["low"]), read(node.args["high"])
    least = typing_rules.comparison(">=", operand, low)
    return Logical("AND", least, typing_rules.comparison("<=", operand, high), BOOLEAN)


def _in(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    if node.args.get("query"):
        raise TypeProblem("a subquery is only possible in FROM")
    query.only(node, "this", "expressions")
    if not node.expressions:
        raise TypeProblem("IN needs a list of values", "x IN (1, 2)")
    return typing_rules.contained(read(node.this), [read(each) for each in node.expressions])


def _like(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    escape = None
    if isinstance(node, exp.Escape):
        if not isinstance(node.this, exp.Like):
            raise TypeProblem("ESCAPE belongs to LIKE")
        escape, node = _string(node.expression, "ESCAPE"), node.this
    query.only(node, "this", "expression", "negate")
    pattern = _string(node.expression, "LIKE")
    result = typing_rules.like(read(node.this), pattern, escape)
    return Not(result, BOOLEAN) if node.args.get("negate") else result


def _case(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """CASE WHEN, and CASE x WHEN, which compares x with each."""
    query.only(node, "this", "ifs", "default")
    subject = read(node.this) if node.args.get("this") is not None else None
    branches = []
    for branch in node.args["ifs"]:
        when = read(branch.this)
        if subject is not None:
            when = typing_rules.comparison("=", subject, when)
        branches.append((when, read(branch.args["true"])))
    default = node.args.get("default")
    return typing_rules.choice(branches, None if default is None else read(default), "CASE")


def _cast(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    lenient = isinstance(node, exp.TryCast)
    if not isinstance(node.args["to"], exp.Var):
        return _typed_literal(query, node)
    query.only(node, "this", "to")
    return typing_rules.cast(read(node.this), _named_type(node.args["to"].name), lenient)


def _typed_literal(query: RowQuery, node: exp.Expr) -> Expression:
    """DATE '...' and TIMESTAMP '...', which sqlglot reads as a cast of a string."""
    kind = node.args["to"].this
    if (
        isinstance(node.this, exp.Literal)
        and node.this.is_string
        and not node.args["to"].expressions
    ):
        if kind is exp.DType.DATE:
            return literals.date_literal(node.this.name)
        if kind is exp.DType.TIMESTAMP:
            return literals.timestamp_literal(node.this.name)
    raise TypeProblem("only DATE '...' and TIMESTAMP '...' are literals with a type", "CAST")


def _named_type(text: str) -> SqlType:
    words = " ".join(text.upper().split())
    if re.match(r"(VAR)?(CHAR|BINARY)\s*\(", words):
        raise TypeProblem(f"{words} would cut values to a length", "STRING, and SUBSTRING to cut")
    words = re.sub(r"^(NUMERIC|DEC)\b", "DECIMAL", words)
    words = "BINARY" if words == "VARBINARY" else words
    try:
        return SqlType.parse(words)
    except ValueError as error:
        raise TypeProblem(str(error)) from None


def _literal(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    text = node.name
    return Constant(text, STRING) if node.is_string else literals.number(text)


def _hex(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this")
    try:
        return Constant(bytes.fromhex(node.name), BINARY)
    except ValueError:
        raise TypeProblem("X'...' takes pairs of hexadecimal digits", "X'00FF'") from None


def _boolean(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    return Constant(bool(node.this), BOOLEAN)


def _null(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    return Constant(None, UNTYPED)


def _function(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this", "expressions")
    name = function_name(node)
    if name == "LOG" and len(node.expressions) == 1:
        name = "LN"
    if name in FUNCTIONS or name in SYNONYMS:
        return functions.call(
            name, [_argument(name, i, each, read) for i, each in enumerate(node.expressions)]
        )
    if name in window_calls.WORDS:
        return window_calls.read_bound(node, query.window, read)
    if name not in _REWRITTEN:
        raise query.unknown(node)
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


def _argument(name: str, index: int, node: exp.Expr, read: Read) -> Expression:
    """An argument; a unit of time may be a bare word."""
    if index == 0 and name in _UNIT_FIRST:
        if isinstance(node, exp.Column | exp.Var) and not node.args.get("table"):
            return Constant(node.name.upper().removesuffix("S"), STRING)
        if isinstance(node, exp.Literal) and node.is_string:
            return Constant(node.name.upper(), STRING)
    return read(node)


_UNIT_FIRST = ("DATE_TRUNC", "TIMESTAMPADD", "TIMESTAMPDIFF")
_REWRITTEN = {
    "IF": ((2, 3), "IF(condition, x, y)"),
    "NULLIF": ((2,), "NULLIF(x, y)"),
    "MOD": ((2,), "MOD(x, y)"),
}


def _substring(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this", "start", "length")
    given = (node.this, node.args.get("start"), node.args.get("length"))
    return functions.call("SUBSTRING", [read(each) for each in given if each is not None])


def _trim(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """TRIM(s) takes spaces off; TRIM([LEADING | TRAILING | BOTH] 'xy' FROM s) these characters."""
    query.only(node, "this", "expression", "position")
    side = str(node.args.get("position") or "BOTH").upper()
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(side)
    taken = node.args.get("expression")
    if taken is None:
        return functions.call(name or "TRIM", [read(node.this)])
    return functions.call(name or "BTRIM", [read(node.this), read(taken)])


def _extract(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.only(node, "this", "expression")
    part = node.name.upper()
    name = SYNONYMS.get(part, part)
    if name not in _PARTS:
        raise TypeProblem(
            f"EXTRACT({shown_name(part)} ...) is not supported", "EXTRACT(YEAR FROM d)"
        )
    return functions.call(name, [read(node.expression)])


_PARTS = (
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK"),
    *("HOUR", "MINUTE", "SECOND"),
)


def _string(node: exp.Expr, what: str) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise TypeProblem(f"{what} takes a string, written out", "'...'")
    return str(node.name)


READERS: dict[type[exp.Expr], Callable[[RowQuery, exp.Expr, Read], Expression]] = {
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
    exp.Interval: _alone,
    exp.NullSafeEQ: _distinct_from,
    exp.NullSafeNEQ: _distinct_from,
    exp.Extract: _extract,
}
