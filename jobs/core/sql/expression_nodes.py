"""The closed list of syntax nodes of row expressions, each with its reader.

Every other node is refused by name, never ignored.
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
from jobs.core.sql.problems import INSTEAD_OF_SUBQUERY, SUBQUERY, function_name, printable_name
from schemas.types.sql_types import BINARY, BOOLEAN, STRING, UNSIGNED, SqlType

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

_MIRRORED: dict[CompareOp, CompareOp] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}

Read = Callable[[exp.Expr], Expression]


class RowQuery(Protocol):
    """The methods of a query that the readers of nodes use."""

    window: Window | None

    def require_only(self, node: exp.Expr, *known: str) -> None: ...

    def make_refusal(self, node: exp.Expr) -> Refusal: ...


def _read_arithmetic(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this", "expression", "typed", "safe")
    for moment, interval in ((node.this, node.expression), (node.expression, node.this)):
        if (split := _split_interval(interval)) is not None:
            subtract = isinstance(node, exp.Sub)
            if not isinstance(node, exp.Add) and (not subtract or interval is node.this):
                raise TypeProblem(
                    "an INTERVAL can only be added to a moment or subtracted from one",
                    "t + INTERVAL '1' DAY",
                )
            return _move(read(moment), split, read, subtract=subtract)
    left, right = read(node.this), read(node.expression)
    return typing_rules.make_arithmetic(_ARITHMETIC[type(node)], left, right)


def _split_interval(node: exp.Expr) -> tuple[exp.Interval, exp.Expr | None] | None:
    """Return INTERVAL '1' DAY, or n * INTERVAL '1' DAY, as the interval and n."""
    node = node.unnest()
    if isinstance(node, exp.Interval):
        return node, None
    if isinstance(node, exp.Mul):
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(left, exp.Interval):
            return left, right
        if isinstance(right, exp.Interval):
            return right, left
    return None


def _move(
    moment: Expression,
    split: tuple[exp.Interval, exp.Expr | None],
    read: Read,
    *,
    subtract: bool = False,
) -> Expression:
    """Return a moment plus or minus an interval."""
    count, unit = _read_interval(split[0])
    added: Expression = typing_rules.integer_constant(-count if subtract else count)
    if split[1] is not None:
        added = typing_rules.make_arithmetic("*", read(split[1]), added)
    return functions.make_call("TIMESTAMPADD", [Constant(unit, STRING), added, moment])


def _read_interval(node: exp.Interval) -> tuple[int, str]:
    """Return INTERVAL '3' DAY as (3, "DAY"), and fractions of a second as milliseconds."""
    length, unit = node.this, node.args.get("unit")
    name, match = "", None
    if isinstance(length, exp.Literal) and isinstance(unit, exp.Var):
        name = unit.name.upper().removesuffix("S")
        match = re.fullmatch(r"(-?)(\d{1,9})(?:\.(\d{1,3}))?", length.name)
    if match is None or name not in (*UNITS_US, *UNITS_MONTHS):
        units = ", ".join([*UNITS_US, *UNITS_MONTHS])
        raise TypeProblem(f"the unit of an interval is one of {units}", "INTERVAL '1' DAY")
    sign = -1 if match[1] else 1
    if match[3] is None:
        return sign * int(match[2]), name
    if name != "SECOND" or int(match[2]) >= 1_000_000:
        raise TypeProblem("only seconds below a million can have a fraction")
    return sign * int(match[2] + match[3].ljust(3, "0")), "MILLISECOND"


def _refuse_interval(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    raise TypeProblem("an INTERVAL is only possible after + or -", "t + INTERVAL '1' DAY")


def _read_distinct_from(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """Read IS [NOT] DISTINCT FROM, which is never unknown: NULL equals NULL."""
    query.require_only(node, "this", "expression")
    left, right = literals.read_beside([read(node.this), read(node.expression)])
    equal = typing_rules.make_comparison("=", left, right)
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


def _read_comparison(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this", "expression")
    return _compare(_COMPARE[type(node)], node.this, node.expression, read)


def _compare(op: CompareOp, left: exp.Expr, right: exp.Expr, read: Read) -> Expression:
    """Return a comparison; t - u > INTERVAL '1' HOUR is t > u + INTERVAL '1' HOUR."""
    for this, other, relation in ((left, right, op), (right, left, _MIRRORED[op])):
        split, difference = _split_interval(other), this.unnest()
        if split is not None and isinstance(difference, exp.Sub):
            if _read_interval(split[0])[1] in UNITS_MONTHS:
                raise TypeProblem(
                    "months have no fixed length", "t - u > INTERVAL '30' DAY, or t > u + ..."
                )
            later, earlier = literals.read_beside(
                [read(difference.this), read(difference.expression)]
            )
            return typing_rules.make_comparison(relation, later, _move(earlier, split, read))
    return typing_rules.make_comparison(op, *literals.read_beside([read(left), read(right)]))


def _read_logical(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this", "expression")
    op: LogicalOp = "AND" if isinstance(node, exp.And) else "OR"
    left = typing_rules.require_condition(read(node.this), op)
    return Logical(op, left, typing_rules.require_condition(read(node.expression), op), BOOLEAN)


def _read_not(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    return Not(typing_rules.require_condition(read(node.this), "NOT"), BOOLEAN)


def _read_is(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """Read IS NULL, IS TRUE or IS FALSE, which are never unknown."""
    query.require_only(node, "this", "expression", "negate")
    operand, against = read(node.this), node.expression
    negate = bool(node.args.get("negate"))
    if isinstance(against, exp.Null):
        untyped = operand.type == UNTYPED
        result: Expression = IsNull(Constant(None, BOOLEAN) if untyped else operand, BOOLEAN)
    elif isinstance(against, exp.Boolean):
        operand = typing_rules.require_condition(operand, "IS")
        wanted = bool(against.this)
        result = Call("COALESCE", (operand, Constant(not wanted, BOOLEAN)), BOOLEAN)
        negate = negate is wanted
    else:
        raise TypeProblem("IS must be followed by NULL, TRUE or FALSE")
    return Not(result, BOOLEAN) if negate else result


def _read_between(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this", "low", "high")
    known: dict[int, Expression] = {}

    def read_once(inner: exp.Expr) -> Expression:  # the operand, which both bounds are compared to
        if id(inner) not in known:
            known[id(inner)] = read(inner)
        return known[id(inner)]

    least = _compare(">=", node.this, node.args["low"], read_once)
    return Logical("AND", least, _compare("<=", node.this, node.args["high"], read_once), BOOLEAN)


def _read_in(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    if node.args.get("query"):
        raise TypeProblem(SUBQUERY, INSTEAD_OF_SUBQUERY)
    query.require_only(node, "this", "expressions")
    if not node.expressions:
        raise TypeProblem("IN needs a list of values", "x IN (1, 2)")
    operand, *choices = literals.read_beside([read(e) for e in (node.this, *node.expressions)])
    return typing_rules.make_in(operand, choices)


def _read_like(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    escape = None
    if isinstance(node, exp.Escape):
        if not isinstance(node.this, exp.Like):
            raise TypeProblem("ESCAPE is only possible with LIKE")
        escape, node = _require_string(node.expression, "ESCAPE"), node.this
    query.require_only(node, "this", "expression", "negate")
    pattern = _require_string(node.expression, "LIKE")
    result = typing_rules.make_like(read(node.this), pattern, escape)
    return Not(result, BOOLEAN) if node.args.get("negate") else result


def _read_case(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """Read CASE WHEN, and CASE x WHEN, which compares x with each value."""
    query.require_only(node, "this", "ifs", "default")
    subject = read(node.this) if node.args.get("this") is not None else None
    conditions, values = [], []
    for branch in node.args["ifs"]:
        when = read(branch.this)
        if subject is not None:
            when = typing_rules.make_comparison("=", *literals.read_beside([subject, when]))
        conditions.append(when)
        values.append(read(branch.args["true"]))
    default = node.args.get("default")
    if default is not None:
        values.append(read(default))
    values = literals.read_beside(values)
    rest = None if default is None else values[-1]
    return typing_rules.make_case(list(zip(conditions, values, strict=False)), rest, "CASE")


# Of CHAR(n) and VARCHAR(n); both cut what is longer, and CHAR fills up with spaces.
_TEXT_TYPE = re.compile(r"\s*(VAR)?CHAR(?:ACTER)?\s*\(\s*([1-9]\d{0,8})\s*\)\s*", re.IGNORECASE)


def _read_cast(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    lenient = isinstance(node, exp.TryCast)
    if not isinstance(node.args["to"], exp.Var):
        return _read_typed_literal(query, node)
    query.require_only(node, "this", "to")
    target, operand = node.args["to"].name, read(node.this)
    if (limited := _TEXT_TYPE.fullmatch(target)) is None:
        return typing_rules.make_cast(operand, _named_type(target), lenient)
    text = typing_rules.make_cast(operand, STRING, lenient)
    length = typing_rules.integer_constant(int(limited[2]))
    if limited[1]:  # VARCHAR
        return functions.make_call("LEFT", [text, length])
    return functions.make_call("RPAD", [text, length, Constant(" ", STRING)])


def _read_typed_literal(query: RowQuery, node: exp.Expr) -> Expression:
    """Read DATE '...' or TIMESTAMP '...', which sqlglot parses as a cast of a string."""
    kind = node.args["to"].this
    if (
        isinstance(node.this, exp.Literal)
        and node.this.is_string
        and not node.args["to"].expressions
    ):
        if kind is exp.DType.DATE:
            return literals.date_literal(node.this.name)
        if kind is exp.DType.TIME:
            return literals.time_literal(node.this.name)
        if kind in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPTZ):
            local_zone = kind is not exp.DType.TIMESTAMP
            return literals.timestamp_literal(node.this.name, local_zone=local_zone)
    raise TypeProblem("only DATE, TIME and TIMESTAMP '...' are literals with a type", "CAST")


def _named_type(text: str) -> SqlType:
    words = " ".join(text.upper().split())
    if words.endswith("UNSIGNED") or words in UNSIGNED:
        raise TypeProblem(f"CAST to {words} is not supported: nothing is unsigned", "BIGINT")
    if re.match(r"(VAR)?(CHAR|BINARY)\s*\(", words):
        raise TypeProblem(f"CAST to {words} is not supported", "VARCHAR(1), STRING or BINARY")
    words = re.sub(r"^(NUMERIC|DEC)\b", "DECIMAL", words)
    words = "BINARY" if words == "VARBINARY" else words
    try:
        return SqlType.parse(words)
    except ValueError as error:
        raise TypeProblem(str(error)) from None


def _read_literal(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    text = node.name
    return Constant(text, STRING) if node.is_string else literals.number_literal(text)


def _read_hex(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this")
    try:
        return Constant(bytes.fromhex(node.name), BINARY)
    except ValueError:
        raise TypeProblem("X'...' needs pairs of hexadecimal digits", "X'00FF'") from None


def _read_function(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this", "expressions")
    name = function_name(node)
    if name == "LOG" and len(node.expressions) == 1:
        name = "LN"
    if name in FUNCTIONS or name in SYNONYMS:
        given = [_read_argument(name, i, each, read) for i, each in enumerate(node.expressions)]
        if FUNCTIONS[SYNONYMS.get(name, name)].unify:
            given = literals.read_beside(given)
        elif name == "TIMESTAMPDIFF":
            given = [*given[:1], *literals.read_beside(given[1:])]
        return functions.make_call(name, given)
    if name in window_calls.WORDS:
        return window_calls.read_bound(node, query.window, read)
    if name not in _REWRITTEN:
        raise query.make_refusal(node)
    count, example = _REWRITTEN[name]
    if len(node.expressions) not in count:
        message = f"wrong number of arguments ({len(node.expressions)}) for {name}"
        raise TypeProblem(message, example)
    arguments = [read(each) for each in node.expressions]
    if name == "MOD":
        return typing_rules.make_arithmetic("%", *arguments)
    if name == "NULLIF":
        equal = typing_rules.make_comparison("=", *literals.read_beside(arguments))
        null = Constant(None, arguments[0].type)
        return typing_rules.make_case([(equal, null)], arguments[0], name)
    value, *rest = literals.read_beside(arguments[1:])
    return typing_rules.make_case([(arguments[0], value)], rest[0] if rest else None, name)


def _read_argument(name: str, index: int, node: exp.Expr, read: Read) -> Expression:
    """Read an argument; a unit of time may be a word without quotes."""
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
KNOWN = (*FUNCTIONS, *SYNONYMS, *_REWRITTEN)


def _read_substring(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this", "start", "length")
    given = (node.this, node.args.get("start"), node.args.get("length"))
    return functions.make_call("SUBSTRING", [read(each) for each in given if each is not None])


def _read_trim(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    """Read TRIM(s), which removes spaces, or TRIM([LEADING | TRAILING | BOTH] 'xy' FROM s)."""
    query.require_only(node, "this", "expression", "position")
    side = str(node.args.get("position") or "BOTH").upper()
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(side)
    characters = node.args.get("expression")
    if characters is None:
        return functions.make_call(name or "TRIM", [read(node.this)])
    return functions.make_call(name or "BTRIM", [read(node.this), read(characters)])


def _read_extract(query: RowQuery, node: exp.Expr, read: Read) -> Expression:
    query.require_only(node, "this", "expression")
    part = node.name.upper()
    if part == "EPOCH":
        return _read_epoch(node.expression, read)
    name = SYNONYMS.get(part, part)
    if name not in _PARTS:
        raise TypeProblem(
            f"EXTRACT({printable_name(part)} ...) is not supported", "EXTRACT(YEAR FROM d)"
        )
    return functions.make_call(name, [read(node.expression)])


def _read_epoch(node: exp.Expr, read: Read) -> Expression:
    """Read EXTRACT(EPOCH FROM t), whole seconds since 1970, or of t - u those in between."""
    difference = node.unnest()
    if isinstance(difference, exp.Sub) and _split_interval(difference.expression) is None:
        earlier, later = read(difference.expression), read(difference.this)
    else:
        later = typing_rules.require_computable(read(node), "EXTRACT")
        earlier = Constant(0, later.type)
    return functions.make_call("TIMESTAMPDIFF", [Constant("SECOND", STRING), earlier, later])


_PARTS = (
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK"),
    *("HOUR", "MINUTE", "SECOND"),
)


def _require_string(node: exp.Expr, keyword: str) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise TypeProblem(f"{keyword} needs a string literal", "'...'")
    return str(node.name)


READERS: dict[type[exp.Expr], Callable[[RowQuery, exp.Expr, Read], Expression]] = {
    **dict.fromkeys(_ARITHMETIC, _read_arithmetic),
    **dict.fromkeys(_COMPARE, _read_comparison),
    exp.And: _read_logical,
    exp.Or: _read_logical,
    exp.Not: _read_not,
    exp.Neg: lambda _, node, read: typing_rules.make_negation(read(node.this)),
    exp.DPipe: lambda _, node, read: functions.make_call(
        "CONCAT", [read(node.this), read(node.expression)]
    ),
    exp.Is: _read_is,
    exp.Between: _read_between,
    exp.In: _read_in,
    exp.Like: _read_like,
    exp.Escape: _read_like,
    exp.Case: _read_case,
    exp.Cast: _read_cast,
    exp.TryCast: _read_cast,
    exp.Literal: _read_literal,
    exp.HexString: _read_hex,
    exp.Boolean: lambda _, node, read: Constant(bool(node.this), BOOLEAN),
    exp.Null: lambda _, node, read: Constant(None, UNTYPED),
    exp.Anonymous: _read_function,
    exp.Substring: _read_substring,
    exp.Trim: _read_trim,
    exp.Interval: _refuse_interval,
    exp.NullSafeEQ: _read_distinct_from,
    exp.NullSafeNEQ: _read_distinct_from,
    exp.Extract: _read_extract,
}
