"""Evaluation: expressions over a group's results, in plain Python, as Spark has them over rows.

    SUM(a) / COUNT(*)  ──evaluator──►  row of the group ──► value, or Failed

A group's results exist only where it is folded, so what the query makes of them is computed there.
The rules are those of `jobs.edge.spark.expression_values`: exact decimals, halves away from zero,
NULL in, NULL out, three-valued logic, parts that SQL would not evaluate left alone. What cannot be
the same in both (`not_here`) is refused with the query.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from operator import add, eq, ge, gt, itemgetter, le, lt, mul, ne, sub
from typing import Any, NamedTuple

from jobs.core.evaluate.casts import conversion, no_conversion
from jobs.core.evaluate.functions import FUNCTIONS
from jobs.core.plan.tree import (
    AggregateValue,
    Arithmetic,
    Call,
    Case,
    Cast,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    KeyValue,
    Like,
    Logical,
    Negate,
    Not,
)
from jobs.core.plan.typing_rules import like_pattern
from jobs.core.plan.walk import walk
from jobs.core.values.exact_numbers import float32
from jobs.core.values.rounding import Failed, canonical, fitted, half_up, to_significant
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType, integer_range

Values = Sequence[Any]  # a group's key, and behind it the values of its aggregates
Evaluator = Callable[[Values], Any]

_NODES = (AggregateValue, KeyValue, Constant, Cast, Arithmetic, Negate, Compare, Logical)
_NODES_MORE = (Not, IsNull, In, Like, Case, Call)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class NotHere(NamedTuple):
    """Why an expression cannot be evaluated over a group's results, and what to do instead."""

    name: str  # of the function that cannot be
    message: str
    hint: str | None = None


def not_here(expression: Expression) -> NotHere | None:
    """Why an expression cannot be evaluated over a group's results, and what to do instead."""
    for each in walk(expression):
        if (
            isinstance(each, Call)
            and each.function not in FUNCTIONS
            and each.function != "COALESCE"
        ):
            reason = f"{each.function} is possible over rows, not over aggregates"
            hint = f"use it inside the aggregate, or GROUP BY {each.function}(...)"
            return NotHere(each.function, reason, hint)
        if isinstance(each, Cast) and (why := no_conversion(each.operand.type, each.type)):
            name = "TRY_CAST" if each.lenient else "CAST"
            return NotHere(
                name, f"{name} from {each.operand.type} to {each.type} over aggregates: {why}"
            )
        if not isinstance(each, (*_NODES, *_NODES_MORE)):
            return NotHere("", f"{type(each).__name__} is not possible over aggregates")
        if each.type.items:
            return NotHere("", f"{each.type} can be selected as it is, and not be looked into")
    return None


def evaluator(expression: Expression, key_columns: int) -> Evaluator:
    """The expression as a function of key and aggregate values; it raises Failed where a row
    expression would fail its row."""

    def made(inner: Expression) -> Evaluator:
        return evaluator(inner, key_columns)

    match expression:
        case KeyValue():
            return itemgetter(expression.index)
        case AggregateValue():
            return itemgetter(key_columns + expression.index)
        case Constant():
            value = expression.value
            return lambda row: value
        case Cast():
            return _cast(expression, made(expression.operand))
        case Arithmetic():
            return _arithmetic(expression, made(expression.left), made(expression.right))
        case Negate():
            return _negation(expression.type, made(expression.operand))
        case Compare():
            left, right = made(expression.left), made(expression.right)
            return _comparison(expression.op, expression.left.type, left, right)
        case Logical():
            return _logical(expression.op == "AND", made(expression.left), made(expression.right))
        case Not():
            return _inverse(made(expression.operand))
        case IsNull():
            operand = made(expression.operand)
            return lambda row: operand(row) is None
        case In():
            choices = [made(each) for each in expression.choices]
            return _contained(expression.operand.type, made(expression.operand), choices)
        case Like():
            return _like(expression, made(expression.operand))
        case Case():
            branches = [(made(when), made(value)) for when, value in expression.branches]
            rest = None if expression.otherwise is None else made(expression.otherwise)
            return _case(branches, rest)
        case Call():
            arguments = [made(each) for each in expression.arguments]
            if expression.function == "COALESCE":
                return _coalesce(arguments)
            return _call(expression, arguments)
        case _:
            raise AssertionError(f"{type(expression).__name__} is refused with the query")


def _cast(cast: Cast, operand: Evaluator) -> Evaluator:
    convert, lenient = conversion(cast.operand.type, cast.type), cast.lenient

    def converted(row: Values) -> Any:
        value = operand(row)
        if value is None:
            return None
        try:
            return convert(value)
        except Failed:
            if lenient:
                return None
            raise

    return converted


def _arithmetic(arithmetic: Arithmetic, left: Evaluator, right: Evaluator) -> Evaluator:
    calculate: Callable[[Any, Any], Any]
    if arithmetic.type.integer:
        calculate = _whole_numbers(arithmetic.op, arithmetic.type)
    elif arithmetic.type.floating:
        calculate = _floats(arithmetic.op, arithmetic.type.kind is Kind.FLOAT)
    else:
        calculate = _decimals(arithmetic)

    def calculated(row: Values) -> Any:
        a, b = left(row), right(row)
        return None if a is None or b is None else calculate(a, b)

    return calculated


def _whole_numbers(op: str, sql_type: SqlType) -> Callable[[int, int], int]:
    low, high = integer_range(sql_type)
    exact = _EXACT[op]

    def calculate(a: int, b: int) -> int:
        value = exact(a, b)
        if not low <= value <= high:
            raise Failed(f"out of the range of {sql_type}")
        return value

    return calculate


def _quotient(a: int, b: int) -> int:
    """a / b toward zero."""
    if b == 0:
        raise Failed("division by zero")
    return abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))


def _remainder(a: int, b: int) -> int:
    """What is left of a, with its sign."""
    if b == 0:
        raise Failed("division by zero")
    return abs(a) % abs(b) if a >= 0 else -(abs(a) % abs(b))


_EXACT: dict[str, Callable[[int, int], int]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": _quotient,
    "%": _remainder,
}


def _floats(op: str, single: bool) -> Callable[[float, float], float]:
    def calculate(a: float, b: float) -> float:
        if op == "+":
            value = a + b
        elif op == "-":
            value = a - b
        elif op == "*":
            value = a * b
        elif b == 0:
            raise Failed("division by zero")
        elif op == "/":
            value = a / b
        else:
            value = math.fmod(a, b) if math.isfinite(a) else math.nan
        return canonical(float32(value) if single else value)

    return calculate


def _decimals(arithmetic: Arithmetic) -> Callable[[int, int], int]:
    """Units of 10^-scale. A product is rounded to 38 digits, a quotient to 38 fraction digits,
    before they are brought to their scale: Spark's decimals do so."""
    op, target = arithmetic.op, arithmetic.type
    left, right = arithmetic.left.type.scale or 0, arithmetic.right.type.scale or 0
    wide = max(left, right)

    def calculate(a: int, b: int) -> int:
        if op == "*":
            value, scale = to_significant(a * b, left + right, DECIMAL_PRECISION_MAX)
        elif op == "/":
            if b == 0:
                raise Failed("division by zero")
            shift = DECIMAL_PRECISION_MAX + right - left
            up, down = (10**shift, 1) if shift >= 0 else (1, 10**-shift)
            value, scale = half_up(a * up, b * down), DECIMAL_PRECISION_MAX
        else:
            a, b, scale = a * 10 ** (wide - left), b * 10 ** (wide - right), wide
            value = _remainder(a, b) if op == "%" else a + b if op == "+" else a - b
        return fitted(value, scale, target)

    return calculate


def _negation(sql_type: SqlType, operand: Evaluator) -> Evaluator:
    low = -(10**DECIMAL_PRECISION_MAX)
    high = integer_range(sql_type)[1] if sql_type.integer else -low

    def negated(row: Values) -> Any:
        value = operand(row)
        if value is None:
            return None
        if sql_type.floating:
            return canonical(0.0 - value)
        if -value > high:
            raise Failed(f"out of the range of {sql_type}")
        return -value

    return negated


def _comparison(op: str, sql_type: SqlType, left: Evaluator, right: Evaluator) -> Evaluator:
    compare, floating = _COMPARE[op], sql_type.floating

    def compared(row: Values) -> bool | None:
        a, b = left(row), right(row)
        if a is None or b is None:
            return None
        return compare(_rank(a), _rank(b)) if floating else compare(a, b)

    return compared


def _rank(value: float) -> tuple[bool, float]:
    """NaN equals itself and is the greatest."""
    return (True, 0.0) if value != value else (False, value)


def _logical(conjunction: bool, left: Evaluator, right: Evaluator) -> Evaluator:
    """AND and OR look at the right side only where the left one does not decide."""

    def decided(row: Values) -> bool | None:
        first = left(row)
        if first is not None and first is not conjunction:
            return not conjunction
        second = right(row)
        if second is not None and second is not conjunction:
            return not conjunction
        return None if first is None or second is None else conjunction

    return decided


def _inverse(operand: Evaluator) -> Evaluator:
    def inverse(row: Values) -> bool | None:
        value = operand(row)
        return None if value is None else not value

    return inverse


def _contained(sql_type: SqlType, operand: Evaluator, choices: Sequence[Evaluator]) -> Evaluator:
    rank: Callable[[Any], Any] = _rank if sql_type.floating else lambda value: value

    def contained(row: Values) -> bool | None:
        value, unknown = operand(row), False
        wanted = None if value is None else rank(value)
        for choice in choices:
            other = choice(row)
            if value is not None and other is not None and rank(other) == wanted:
                return True
            unknown = unknown or other is None
        return None if value is None or unknown else False

    return contained


def _like(like: Like, operand: Evaluator) -> Evaluator:
    match = re.compile(like_pattern(like.pattern, like.escape), re.DOTALL).fullmatch

    def liked(row: Values) -> bool | None:
        value = operand(row)
        return None if value is None else match(value) is not None

    return liked


def _case(branches: Sequence[tuple[Evaluator, Evaluator]], rest: Evaluator | None) -> Evaluator:
    def chosen(row: Values) -> Any:
        for when, value in branches:
            if when(row):
                return value(row)
        return None if rest is None else rest(row)

    return chosen


def _coalesce(arguments: Sequence[Evaluator]) -> Evaluator:
    def first(row: Values) -> Any:
        for argument in arguments:
            if (value := argument(row)) is not None:
                return value
        return None

    return first


def _call(call: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    function = FUNCTIONS[call.function](call)
    skips_nulls = call.function == "CONCAT_WS"

    def called(row: Values) -> Any:
        values = [argument(row) for argument in arguments]
        if None in values and not skips_nulls:
            return None
        return function(*values)

    return called
