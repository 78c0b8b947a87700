"""Evaluate expressions in plain Python, as Spark does.

    SUM(a) / COUNT(*)  ──evaluator──►  row of the group ──► value, or EvaluationError
    price * quantity   ──evaluator──►  row of columns   ──► the same

Exact decimals, halves away from zero, NULL for NULL operands, three-valued logic, and no evaluation
of operands that SQL would skip. Tests compare every kind of expression with Spark's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from operator import add, eq, ge, gt, itemgetter, le, lt, mul, ne, sub
from typing import Any

from jobs.core.evaluate.casts import cast_function
from jobs.core.evaluate.functions import FUNCTIONS
from jobs.core.plan import tree
from jobs.core.plan.tree import Plan
from jobs.core.plan.typing_rules import like_pattern
from jobs.core.plan.walk import node_can_fail, walk
from jobs.core.values.change import Row
from jobs.core.values.exact_numbers import divide_half_up, to_float32
from jobs.core.values.float_values import canonical_float
from jobs.core.values.rounding import EvaluationError, fit_decimal, to_significant
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType, integer_range

Values = Sequence[Any]  # a group's key, then the values of its aggregates
Evaluator = Callable[[Values], Any]

_NODES = (
    *(tree.AggregateValue, tree.KeyValue, tree.Constant, tree.Cast, tree.Arithmetic, tree.Negate),
    *(tree.Compare, tree.Logical, tree.Not, tree.IsNull, tree.In, tree.Like, tree.Case, tree.Call),
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class NodeFailed(EvaluationError):
    """An expression failed at this node, and the value that it could not take, if it was a cast."""

    def __init__(self, why: str, node: tree.Expression, operand: Any = None) -> None:
        super().__init__(why)
        self.node = node
        self.operand = operand


def why_not_evaluable(expression: tree.Expression) -> str | None:
    """Return why an expression cannot be evaluated over a group's results, or None if it can."""
    for each in walk(expression):
        if isinstance(each, tree.Call) and each.function == "GROUPING":
            return "GROUPING is possible in SELECT, not in an expression"
        if not isinstance(each, _NODES):
            return f"{type(each).__name__} is not possible over aggregates"
        if each.type.items:
            return f"{each.type} can only be selected, without an expression"
    return None


def evaluator(expression: tree.Expression, key_columns: int) -> Evaluator:
    """Return the expression as a function of key and aggregate values.

    The function raises EvaluationError for values with which a row would fail."""
    evaluate = _compile(expression, key_columns)
    return _name_failures(expression, evaluate) if node_can_fail(expression) else evaluate


def _name_failures(node: tree.Expression, evaluate: Evaluator) -> Evaluator:
    """Return the evaluator of a node; its failures name it, and those of its operands stay."""

    def evaluate_named(row: Values) -> Any:
        try:
            return evaluate(row)
        except NodeFailed:
            raise
        except EvaluationError as error:
            raise NodeFailed(str(error), node) from None

    return evaluate_named


def _compile(expression: tree.Expression, key_columns: int) -> Evaluator:
    def inner(part: tree.Expression) -> Evaluator:
        return evaluator(part, key_columns)

    match expression:
        case tree.KeyValue():
            return itemgetter(expression.index)
        case tree.AggregateValue():
            return itemgetter(key_columns + expression.index)
        case tree.Constant():
            value = expression.value
            return lambda row: value
        case tree.Cast():
            return _cast(expression, inner(expression.operand))
        case tree.Arithmetic():
            return _arithmetic(expression, inner(expression.left), inner(expression.right))
        case tree.Negate():
            return _negation(expression.type, inner(expression.operand))
        case tree.Compare():
            left, right = inner(expression.left), inner(expression.right)
            return _comparison(expression.op, expression.left.type, left, right)
        case tree.Logical():
            return _logical(expression.op == "AND", inner(expression.left), inner(expression.right))
        case tree.Not():
            return _inverse(inner(expression.operand))
        case tree.IsNull():
            operand = inner(expression.operand)
            return lambda row: operand(row) is None
        case tree.In():
            choices = [inner(each) for each in expression.choices]
            return _membership(expression.operand.type, inner(expression.operand), choices)
        case tree.Like():
            return _like(expression, inner(expression.operand))
        case tree.Case():
            branches = [(inner(when), inner(value)) for when, value in expression.branches]
            rest = None if expression.otherwise is None else inner(expression.otherwise)
            return _case(branches, rest)
        case tree.Call():
            arguments = [inner(each) for each in expression.arguments]
            if expression.function == "COALESCE":
                return _coalesce(arguments)
            return _call(expression, arguments)
        case tree.Composite():
            return _composite(expression, [inner(each) for each in expression.parts])
        case _:
            raise AssertionError(f"the parser refuses {type(expression).__name__}")


def _cast(cast: tree.Cast, operand: Evaluator) -> Evaluator:
    convert, lenient = cast_function(cast.operand.type, cast.type), cast.lenient

    def evaluate(row: Values) -> Any:
        value = operand(row)
        if value is None:
            return None
        try:
            return convert(value)
        except EvaluationError as error:
            if lenient:
                return None
            raise NodeFailed(str(error), cast, value) from None

    return evaluate


def _arithmetic(arithmetic: tree.Arithmetic, left: Evaluator, right: Evaluator) -> Evaluator:
    calculate: Callable[[Any, Any], Any]
    if arithmetic.type.integer:
        calculate = _whole_numbers(arithmetic.op, arithmetic.type)
    elif arithmetic.type.floating:
        calculate = _floats(arithmetic.op, arithmetic.type.kind is Kind.FLOAT)
    else:
        calculate = _decimals(arithmetic)

    def evaluate(row: Values) -> Any:
        a, b = left(row), right(row)
        return None if a is None or b is None else calculate(a, b)

    return evaluate


def _whole_numbers(op: str, sql_type: SqlType) -> Callable[[int, int], int]:
    low, high = integer_range(sql_type)
    exact = _EXACT[op]

    def calculate(a: int, b: int) -> int:
        value = exact(a, b)
        if not low <= value <= high:
            raise EvaluationError(f"out of the range of {sql_type}")
        return value

    return calculate


def _quotient(a: int, b: int) -> int:
    """Return a / b rounded toward zero."""
    if b == 0:
        raise EvaluationError("division by zero")
    return abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))


def _remainder(a: int, b: int) -> int:
    """Return the remainder of a / b, with the sign of a."""
    if b == 0:
        raise EvaluationError("division by zero")
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
            raise EvaluationError("division by zero")
        elif op == "/":
            value = a / b
        else:
            value = math.fmod(a, b) if math.isfinite(a) else math.nan
        return canonical_float(to_float32(value) if single else value)

    return calculate


def _decimals(arithmetic: tree.Arithmetic) -> Callable[[int, int], int]:
    """Return an operation on units of 10^-scale.

    As in Spark, a product is rounded to 38 digits, and a quotient to 38 fraction digits, before
    they get the scale of the result."""
    op, target = arithmetic.op, arithmetic.type
    left, right = arithmetic.left.type.scale or 0, arithmetic.right.type.scale or 0
    wide = max(left, right)

    def calculate(a: int, b: int) -> int:
        if op == "*":
            value, scale = to_significant(a * b, left + right, DECIMAL_PRECISION_MAX)
        elif op == "/":
            if b == 0:
                raise EvaluationError("division by zero")
            shift = DECIMAL_PRECISION_MAX + right - left
            up, down = (10**shift, 1) if shift >= 0 else (1, 10**-shift)
            value, scale = divide_half_up(a * up, b * down), DECIMAL_PRECISION_MAX
        else:
            a, b, scale = a * 10 ** (wide - left), b * 10 ** (wide - right), wide
            value = _remainder(a, b) if op == "%" else a + b if op == "+" else a - b
        return fit_decimal(value, scale, target)

    return calculate


def _negation(sql_type: SqlType, operand: Evaluator) -> Evaluator:
    low = -(10**DECIMAL_PRECISION_MAX)
    high = integer_range(sql_type)[1] if sql_type.integer else -low

    def evaluate(row: Values) -> Any:
        value = operand(row)
        if value is None:
            return None
        if sql_type.floating:
            return canonical_float(0.0 - value)
        if -value > high:
            raise EvaluationError(f"out of the range of {sql_type}")
        return -value

    return evaluate


def _comparison(op: str, sql_type: SqlType, left: Evaluator, right: Evaluator) -> Evaluator:
    compare, floating = _COMPARE[op], sql_type.floating

    def evaluate(row: Values) -> bool | None:
        a, b = left(row), right(row)
        if a is None or b is None:
            return None
        return compare(_rank(a), _rank(b)) if floating else compare(a, b)

    return evaluate


def _rank(value: float) -> tuple[bool, float]:
    """Return a sort key: NaN equals itself and is the greatest value."""
    return (True, 0.0) if value != value else (False, value)


def _logical(conjunction: bool, left: Evaluator, right: Evaluator) -> Evaluator:
    """Return AND or OR, which evaluate the right side only if the left one does not decide."""

    def evaluate(row: Values) -> bool | None:
        first = left(row)
        if first is not None and first is not conjunction:
            return not conjunction
        second = right(row)
        if second is not None and second is not conjunction:
            return not conjunction
        return None if first is None or second is None else conjunction

    return evaluate


def _inverse(operand: Evaluator) -> Evaluator:
    def evaluate(row: Values) -> bool | None:
        value = operand(row)
        return None if value is None else not value

    return evaluate


def _membership(sql_type: SqlType, operand: Evaluator, choices: Sequence[Evaluator]) -> Evaluator:
    rank: Callable[[Any], Any] = _rank if sql_type.floating else lambda value: value

    def evaluate(row: Values) -> bool | None:
        value, unknown = operand(row), False
        wanted = None if value is None else rank(value)
        for choice in choices:
            other = choice(row)
            if value is not None and other is not None and rank(other) == wanted:
                return True
            unknown = unknown or other is None
        return None if value is None or unknown else False

    return evaluate


def _like(like: tree.Like, operand: Evaluator) -> Evaluator:
    match = re.compile(like_pattern(like.pattern, like.escape), re.DOTALL).fullmatch

    def evaluate(row: Values) -> bool | None:
        value = operand(row)
        return None if value is None else match(value) is not None

    return evaluate


def _case(branches: Sequence[tuple[Evaluator, Evaluator]], rest: Evaluator | None) -> Evaluator:
    def evaluate(row: Values) -> Any:
        for when, value in branches:
            if when(row):
                return value(row)
        return None if rest is None else rest(row)

    return evaluate


def _coalesce(arguments: Sequence[Evaluator]) -> Evaluator:
    def evaluate(row: Values) -> Any:
        for argument in arguments:
            if (value := argument(row)) is not None:
                return value
        return None

    return evaluate


def _composite(composite: tree.Composite, parts: Sequence[Evaluator]) -> Evaluator:
    null_where = composite.null_where

    def evaluate(row: Values) -> Any:
        values = tuple([part(row) for part in parts])
        if null_where == "last":
            return None if values[-1] is None else values
        return None if null_where == "any" and None in values else values

    return evaluate


def _call(call: tree.Call, arguments: Sequence[Evaluator]) -> Evaluator:
    function = FUNCTIONS[call.function](call)
    skips_nulls = call.function == "CONCAT_WS"

    def evaluate(row: Values) -> Any:
        values = [argument(row) for argument in arguments]
        if None in values and not skips_nulls:
            return None
        return function(*values)

    return evaluate


class GroupRows:
    """Computes the rows of a plan's groups.

        key, aggregates ──► computed columns ──► stored: aggregates and computed, as in the state
                        └─► HAVING ──► whether the group has a row ──► row: the selected columns

    Aggregates that only HAVING or an expression needs are in the state, but in no row. An
    expression that fails for a group is NULL, which HAVING treats as false. It is counted as a
    misfit, and has a value again as soon as it no longer fails.
    """

    def __init__(self, plan: Plan) -> None:
        width = len(plan.group)
        self._computed = [evaluator(named.expression, width) for named in plan.computed]
        self._having = None if plan.having is None else evaluator(plan.having, width)
        shown = dict(plan.results)
        self._indexes = [i for i, (name, _) in enumerate(plan.kept_results) if name in shown]
        self._all = len(self._indexes) == len(plan.kept_results)

    def compute(self, key: Row, aggregates: Row, misfits: list[int]) -> tuple[Row, bool]:
        """Return a group's result as in the state, and whether the group has a row."""
        values = (*key, *aggregates)
        computed = [_evaluate(expression, values, misfits) for expression in self._computed]
        passes = self._having is None or _evaluate(self._having, values, misfits) is True
        return (*aggregates, *computed), passes

    def select(self, stored: Row) -> Row:
        """Return the selected columns of a group's result."""
        return stored if self._all else tuple([stored[index] for index in self._indexes])


def _evaluate(evaluate: Evaluator, values: Values, misfits: list[int]) -> Any:
    try:
        return evaluate(values)
    except EvaluationError:
        misfits[0] += 1
        return None
