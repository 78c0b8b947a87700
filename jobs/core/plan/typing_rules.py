"""Typing rules of expressions: common types, result types, and implicit casts.

They follow Flink (LogicalTypeMerging), which agrees with Spark about decimals:

    INT op INT            the wider integer; 7 / 2 is 3 (toward zero)
    DECIMAL op DECIMAL    Flink's precision and scale, at most 38 digits; an integer counts as
                          DECIMAL(3 | 5 | 10 | 19, 0)
    FLOAT with integers   FLOAT; with DECIMAL or DOUBLE: DOUBLE
    everything else       only equal types: there are no implicit casts from or to STRING

An overflow or a division by zero fails the row; Flink would wrap around, or return NULL or
infinity. The built expressions contain every cast, so that evaluation needs no typing rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jobs.core.plan.tree import (
    Arithmetic,
    ArithmeticOp,
    Case,
    Cast,
    Compare,
    CompareOp,
    Constant,
    Expression,
    In,
    Like,
    Negate,
)
from schemas.types.sql_types import (
    BIGINT,
    BOOLEAN,
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    FLOAT,
    INT,
    INTEGER_BITS,
    STRING,
    TIME,
    Kind,
    SqlType,
    decimal,
    integer_range,
)

INTEGER_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}
DECIMAL_SCALE_KEPT = 6  # a result beyond 38 digits keeps at least so many fraction digits
INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)

# A NULL literal has this type until its context determines one; no plan contains it.
UNTYPED = SqlType(Kind.BOOLEAN, precision=-1)


class TypeProblem(Exception):
    """The types of an expression do not fit; `hint` is SQL that would help."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


# --- types -------------------------------------------------------------------------------------


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """Return the type to which values of both types are converted, or None if there is none."""
    if left == right or right == UNTYPED:
        return left
    if left == UNTYPED:
        return right
    if left.numeric and right.numeric:
        if left.floating or right.floating:
            exact = Kind.DECIMAL in (left.kind, right.kind)
            return DOUBLE if exact or Kind.DOUBLE in (left.kind, right.kind) else FLOAT
        if left.integer and right.integer:
            return max(left, right, key=lambda each: INTEGER_BITS[each.kind])
        (p1, s1), (p2, s2) = decimal_shape(left), decimal_shape(right)
        return _bounded_decimal(max(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
    if left.kind is right.kind and left.kind in INSTANTS:
        return max(left, right, key=lambda each: each.precision or 0)
    return None


def decimal_shape(sql_type: SqlType) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL, or of the DECIMAL that holds an integer type."""
    if sql_type.integer:
        return INTEGER_DIGITS[sql_type.kind], 0
    return sql_type.precision or 0, sql_type.scale or 0


def _bounded_decimal(precision: int, scale: int) -> SqlType:
    """Return a DECIMAL of at most 38 digits; as in Flink and Spark, fraction digits go first."""
    if precision <= DECIMAL_PRECISION_MAX:
        return decimal(precision, scale)
    kept = min(scale, DECIMAL_SCALE_KEPT)
    scale = max(DECIMAL_PRECISION_MAX - (precision - scale), kept)
    return decimal(DECIMAL_PRECISION_MAX, scale)


def _decimal_result(op: ArithmeticOp, left: SqlType, right: SqlType) -> SqlType:
    (p1, s1), (p2, s2) = decimal_shape(left), decimal_shape(right)
    scale = max(s1, s2)
    if op in ("+", "-"):
        return _bounded_decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if op == "*":
        return _bounded_decimal(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(DECIMAL_SCALE_KEPT, s1 + p2 + 1)
        return _bounded_decimal(p1 - s1 + s2 + scale, scale)
    return _bounded_decimal(min(p1 - s1, p2 - s2) + scale, scale)


def require_numeric(argument: SqlType, function: str) -> None:
    """Raise TypeProblem unless the argument of a function is a number."""
    if not argument.numeric:
        hint = "CAST(x AS INT), or another number" if argument == STRING else None
        raise TypeProblem(f"{function} needs numbers, this is {argument}", hint)


def can_cast(source: SqlType, target: SqlType) -> bool:
    """Return whether CAST exists between two types; a value may still fail it."""
    if source == target:
        return True
    kinds = (source.kind, target.kind)
    if source.textual_time or target.textual_time:
        return False
    if Kind.STRING in kinds:
        return True
    if all(kind in (Kind.DATE, *INSTANTS) for kind in kinds):
        return True
    return all(SqlType(kind).numeric or kind is Kind.BOOLEAN for kind in kinds)


def cast_can_fail(source: SqlType, target: SqlType) -> bool:
    """Return whether CAST fails for some value of `source`."""
    if source == target or target == STRING:
        return source.kind is Kind.BINARY and target == STRING  # bytes may not be UTF-8
    if source == STRING:
        return target.kind is not Kind.BINARY
    if not target.numeric or target.floating:
        return source.kind is Kind.DOUBLE and target.kind is Kind.FLOAT
    if source.kind is Kind.BOOLEAN:
        return decimal_shape(target)[0] == decimal_shape(target)[1]
    if source.floating:
        return True
    if source.integer and target.integer:
        return INTEGER_BITS[source.kind] > INTEGER_BITS[target.kind]
    (p1, s1), (p2, s2) = decimal_shape(source), decimal_shape(target)
    if target.integer:
        return p1 - s1 >= p2
    # Fewer fraction digits means rounding, which may need one more digit before the point.
    return p1 - s1 + (s2 < s1) > p2 - s2


# --- construction, with every implicit cast made explicit --------------------------------------


def require_type(operand: Expression) -> Expression:
    """Return the operand; raise TypeProblem if it is a NULL literal without a type."""
    if operand.type == UNTYPED:
        raise TypeProblem("NULL has no type here", "CAST(NULL AS INT), or another type")
    return operand


def require_computable(operand: Expression, operation: str) -> Expression:
    """Return the operand; raise TypeProblem if it has no type, or is a time kept as text."""
    if operand.type.textual_time:
        raise TypeProblem(
            f"{operation} does not support {operand.type}, whose columns can only be grouped by, "
            "counted, tested for NULL, and used in MIN and MAX",
            f"declare it as {'STRING' if operand.type.kind is Kind.TIME else 'TIMESTAMP(6)'}",
        )
    return require_type(operand)


def coerce(operand: Expression, target: SqlType) -> Expression:
    """Return the operand in a type that is known to hold it, with a cast if needed."""
    if operand.type == target:
        return operand
    if isinstance(operand, Constant):
        fits = operand.type.integer and target.integer
        if operand.value is None or fits:
            return Constant(operand.value, target)
    return Cast(operand, target)


def unify(operands: Sequence[Expression], operation: str) -> tuple[Expression, ...]:
    """Return all operands in their common type; raise TypeProblem if there is none."""
    unified = UNTYPED
    for operand in operands:
        common = common_type(unified, operand.type)
        if common is None:
            hint = f"CAST one of them, e.g. to {operand.type}"
            raise TypeProblem(f"{operation} mixes {unified} and {operand.type}", hint)
        unified = common
    if unified == UNTYPED:
        require_type(operands[0])
    return tuple(coerce(operand, unified) for operand in operands)


def make_cast(operand: Expression, target: SqlType, lenient: bool = False) -> Expression:
    if isinstance(operand, Constant) and operand.value is None:
        return Constant(None, target)
    if operand.type == target:
        return operand
    require_computable(operand, "CAST")
    if target.textual_time:
        raise TypeProblem(f"CAST to {target} is not supported", "CAST(x AS TIMESTAMP(6))")
    if not can_cast(operand.type, target):
        raise TypeProblem(f"{operand.type} cannot be CAST to {target}")
    return Cast(operand, target, lenient)


def make_arithmetic(op: ArithmeticOp, left: Expression, right: Expression) -> Expression:
    for operand in (left, right):
        if operand.type != UNTYPED and not operand.type.numeric:
            hint = "CAST(x AS INT), or another number" if operand.type == STRING else None
            if operand.type.kind in (Kind.DATE, *INSTANTS):
                hint = "t + INTERVAL '1' DAY, or TIMESTAMPDIFF(SECOND, t, u)"
            raise TypeProblem(f"{op} needs numbers, this is {operand.type}", hint)
    if UNTYPED in (left.type, right.type):
        left, right = unify((left, right), op)
    common = common_type(left.type, right.type)
    if common is None or common.kind is not Kind.DECIMAL:
        left, right = unify((left, right), op)
        return Arithmetic(op, left, right, left.type)
    left, right = (
        coerce(each, decimal(*decimal_shape(each.type))) if each.type.integer else each
        for each in (left, right)
    )
    return Arithmetic(op, left, right, _decimal_result(op, left.type, right.type))


def make_negation(operand: Expression) -> Expression:
    """Return -x; for a number that is a constant."""
    if not require_type(operand).type.numeric:
        raise TypeProblem(f"- needs a number, this is {operand.type}")
    if isinstance(operand, Constant) and isinstance(operand.value, int | float):
        if isinstance(operand.value, int) and not operand.type.scale:
            return integer_constant(-operand.value)
        return Constant(0 - operand.value, operand.type)  # there is no -0.0
    return Negate(operand, operand.type)


def integer_constant(value: int) -> Constant:
    """Return a whole number as INT, BIGINT or DECIMAL, the first that holds it."""
    for kind in (INT, BIGINT):
        low, high = integer_range(kind)
        if low <= value <= high:
            return Constant(value, kind)
    digits = len(str(abs(value)))
    if digits > DECIMAL_PRECISION_MAX:
        raise TypeProblem(f"a number can have at most {DECIMAL_PRECISION_MAX} digits")
    return Constant(value, decimal(digits, 0))


def make_comparison(op: CompareOp, left: Expression, right: Expression) -> Expression:
    for operand in (left, right):
        if operand.type not in (UNTYPED, TIME):
            require_computable(operand, op)
    left, right = unify((left, right), op)
    return Compare(op, left, right, BOOLEAN)


def require_condition(operand: Expression, operation: str) -> Expression:
    """Return a BOOLEAN operand; raise TypeProblem if it has another type."""
    if operand.type == UNTYPED:
        return Constant(None, BOOLEAN)
    if operand.type != BOOLEAN:
        raise TypeProblem(f"{operation} needs a condition, this is {operand.type}")
    return operand


def make_in(operand: Expression, choices: Sequence[Expression]) -> Expression:
    for each in (operand, *choices):
        if each.type not in (UNTYPED, TIME):
            require_computable(each, "IN")
    operand, *rest = unify((operand, *choices), "IN")
    return In(operand, tuple(rest), BOOLEAN)


def make_like(operand: Expression, pattern: str, escape: str | None) -> Expression:
    if require_computable(operand, "LIKE").type != STRING:
        raise TypeProblem(f"LIKE needs a STRING, this is {operand.type}", "CAST(x AS STRING)")
    if escape is not None:
        if len(escape) != 1:
            raise TypeProblem(f"ESCAPE takes one character, not {escape!r}")
        like_pattern(pattern, escape)
    return Like(operand, pattern, BOOLEAN, escape)


def like_pattern(pattern: str, escape: str | None) -> str:
    """Return a regular expression that the whole text has to match.

    Each part between two % matches at its first occurrence (an atomic group). So no text makes the
    time grow with the number of possible matches.
    """
    parts = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise TypeProblem(f"{escape!r} in LIKE must be followed by %, _ or itself")
            parts[-1] += re.escape(following)
        elif character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    if len(parts) == 1:
        return parts[0]
    first, *middle, last = parts
    return first + "".join(f"(?>.*?{part})" for part in middle if part) + ".*" + last


def make_case(
    branches: Sequence[tuple[Expression, Expression]], otherwise: Expression | None, operation: str
) -> Expression:
    values = [value for _, value in branches] + ([] if otherwise is None else [otherwise])
    if all(value.type == UNTYPED for value in values):
        for when, _ in branches:
            require_condition(when, operation)
        return values[0]  # NULL in any case; its place gives the type
    unified = unify(values, operation)
    pairs = tuple(
        (require_condition(when, operation), value)
        for (when, _), value in zip(branches, unified, strict=False)
    )
    rest = None if otherwise is None else unified[-1]
    return Case(pairs, rest, unified[0].type)
