"""Types of row expressions: what goes together, what comes out, and the implicit casts.

Types follow Flink (LogicalTypeMerging), which for decimals is what Spark does too:

    INT op INT            the wider integer; 7 / 2 is 3 (toward zero)
    DECIMAL op DECIMAL    Flink's precision and scale, at most 38 digits; an integer counts as
                          DECIMAL(3 | 5 | 10 | 19, 0)
    FLOAT with integers   FLOAT; with DECIMAL or DOUBLE: DOUBLE
    everything else       only like with like: there are no implicit casts from or to STRING

Where Flink would wrap around or give NULL (overflow) or infinity (division by zero), an
expression fails its row instead. What is made here has every cast written out, so that whoever
evaluates it needs no typing rules of its own.
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
    Kind,
    SqlType,
    decimal,
    integer_range,
)

INTEGER_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}
DECIMAL_SCALE_KEPT = 6  # fraction digits that a result beyond 38 digits keeps at least
INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
# Largest first, so that a length is written in the largest unit that holds it exactly.


# A bare NULL has this type until its surroundings give it one; no plan contains it.
UNTYPED = SqlType(Kind.BOOLEAN, precision=-1)


class TypeProblem(Exception):
    """Expressions that do not go together, and what would help."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


# --- types -------------------------------------------------------------------------------------


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The type that values of both take when they meet; None where they cannot."""
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
        return _fitted(max(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
    if left.kind is right.kind and left.kind in INSTANTS:
        return max(left, right, key=lambda each: each.precision or 0)
    return None


def decimal_shape(sql_type: SqlType) -> tuple[int, int]:
    """Precision and scale of a DECIMAL, or of the DECIMAL that holds an integer type."""
    if sql_type.integer:
        return INTEGER_DIGITS[sql_type.kind], 0
    return sql_type.precision or 0, sql_type.scale or 0


def _fitted(precision: int, scale: int) -> SqlType:
    """Cut to 38 digits as Flink and Spark do: fraction digits go first, down to six of them."""
    if precision <= DECIMAL_PRECISION_MAX:
        return decimal(precision, scale)
    kept = min(scale, DECIMAL_SCALE_KEPT)
    scale = max(DECIMAL_PRECISION_MAX - (precision - scale), kept)
    return decimal(DECIMAL_PRECISION_MAX, scale)


def _decimal_result(op: ArithmeticOp, left: SqlType, right: SqlType) -> SqlType:
    (p1, s1), (p2, s2) = decimal_shape(left), decimal_shape(right)
    scale = max(s1, s2)
    if op in ("+", "-"):
        return _fitted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if op == "*":
        return _fitted(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(DECIMAL_SCALE_KEPT, s1 + p2 + 1)
        return _fitted(p1 - s1 + s2 + scale, scale)
    return _fitted(min(p1 - s1, p2 - s2) + scale, scale)


def numeric(argument: SqlType, function: str) -> None:
    """Refuse what a function cannot calculate with."""
    if not argument.numeric:
        hint = "CAST(x AS INT), or another number" if argument == STRING else None
        raise TypeProblem(f"{function} needs numbers, this is {argument}", hint)


def castable(source: SqlType, target: SqlType) -> bool:
    """Whether CAST exists between two types at all; a value may still fail it."""
    if source == target:
        return True
    text, whole = Kind.STRING in (source.kind, target.kind), (source.kind, target.kind)
    if source.textual_time or target.textual_time:
        return False
    if text:
        return True
    if all(each in (Kind.DATE, *INSTANTS) for each in whole):
        return True
    return all(SqlType(each).numeric or each is Kind.BOOLEAN for each in whole)


def cast_fails(source: SqlType, target: SqlType) -> bool:
    """Whether some value of `source` has no counterpart in `target`."""
    if source == target or target == STRING:
        return source.kind is Kind.BINARY and target == STRING  # bytes that are no UTF-8
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
    # Dropping fraction digits rounds, and rounding may need one digit more before the point.
    return p1 - s1 + (s2 < s1) > p2 - s2


# --- construction, with every implicit cast made explicit --------------------------------------


def typed(operand: Expression) -> Expression:
    if operand.type == UNTYPED:
        raise TypeProblem("NULL has no type here", "CAST(NULL AS INT), or another type")
    return operand


def computable(operand: Expression, what: str) -> Expression:
    """An operand that `what` looks into: not NULL without a type, not a time kept as text."""
    if operand.type.textual_time:
        raise TypeProblem(
            f"{what} cannot look into {operand.type}: columns of this type can be grouped by, "
            "counted, tested for NULL, and be arguments of MIN and MAX",
            f"declare it as {'STRING' if operand.type.kind is Kind.TIME else 'TIMESTAMP(6)'}",
        )
    return typed(operand)


def coerced(operand: Expression, target: SqlType) -> Expression:
    """The operand in a type that its surroundings ask for and that it is known to fit."""
    if operand.type == target:
        return operand
    if isinstance(operand, Constant):
        fits = operand.type.integer and target.integer
        if operand.value is None or fits:
            return Constant(operand.value, target)
    return Cast(operand, target)


def together(operands: Sequence[Expression], what: str) -> tuple[Expression, ...]:
    """All operands in their common type."""
    meeting = UNTYPED
    for operand in operands:
        found = common_type(meeting, operand.type)
        if found is None:
            hint = f"CAST one of them, e.g. to {operand.type}"
            raise TypeProblem(f"{what} mixes {meeting} and {operand.type}", hint)
        meeting = found
    if meeting == UNTYPED:
        typed(operands[0])
    return tuple(coerced(operand, meeting) for operand in operands)


def cast(operand: Expression, target: SqlType, lenient: bool = False) -> Expression:
    if isinstance(operand, Constant) and operand.value is None:
        return Constant(None, target)
    if operand.type == target:
        return operand
    computable(operand, "CAST")
    if target.textual_time:
        raise TypeProblem(f"CAST to {target} is not supported", "TIMESTAMP(6) is the finest")
    if not castable(operand.type, target):
        raise TypeProblem(f"{operand.type} cannot be CAST to {target}")
    return Cast(operand, target, lenient)


def arithmetic(op: ArithmeticOp, left: Expression, right: Expression) -> Expression:
    for operand in (left, right):
        if operand.type != UNTYPED and not operand.type.numeric:
            hint = "CAST(x AS INT), or another number" if operand.type == STRING else None
            if operand.type.kind in (Kind.DATE, *INSTANTS):
                hint = "t + INTERVAL '1' DAY, or TIMESTAMPDIFF(SECOND, t, u)"
            raise TypeProblem(f"{op} needs numbers, this is {operand.type}", hint)
    if UNTYPED in (left.type, right.type):
        left, right = together((left, right), op)
    meeting = common_type(left.type, right.type)
    if meeting is None or meeting.kind is not Kind.DECIMAL:
        left, right = together((left, right), op)
        return Arithmetic(op, left, right, left.type)
    left, right = (
        coerced(each, decimal(*decimal_shape(each.type))) if each.type.integer else each
        for each in (left, right)
    )
    return Arithmetic(op, left, right, _decimal_result(op, left.type, right.type))


def negated(operand: Expression) -> Expression:
    """-x; a number with a sign is a constant of its own."""
    if not typed(operand).type.numeric:
        raise TypeProblem(f"- needs a number, this is {operand.type}")
    if isinstance(operand, Constant) and isinstance(operand.value, int | float):
        if isinstance(operand.value, int) and not operand.type.scale:
            return integer_constant(-operand.value)
        return Constant(0 - operand.value, operand.type)  # there is no -0.0
    return Negate(operand, operand.type)


def integer_constant(value: int) -> Constant:
    """A whole number: INT, BIGINT where that is too small, else DECIMAL."""
    for kind in (INT, BIGINT):
        low, high = integer_range(kind)
        if low <= value <= high:
            return Constant(value, kind)
    digits = len(str(abs(value)))
    if digits > DECIMAL_PRECISION_MAX:
        raise TypeProblem(f"a number has at most {DECIMAL_PRECISION_MAX} digits")
    return Constant(value, decimal(digits, 0))


def comparison(op: CompareOp, left: Expression, right: Expression) -> Expression:
    for operand in (left, right):
        if operand.type != UNTYPED:
            computable(operand, op)
    left, right = together((left, right), op)
    return Compare(op, left, right, BOOLEAN)


def condition(operand: Expression, what: str) -> Expression:
    """An operand that is true, false or unknown."""
    if operand.type == UNTYPED:
        return Constant(None, BOOLEAN)
    if operand.type != BOOLEAN:
        raise TypeProblem(f"{what} needs a condition, this is {operand.type}")
    return operand


def contained(operand: Expression, choices: Sequence[Expression]) -> Expression:
    for each in (operand, *choices):
        if each.type != UNTYPED:
            computable(each, "IN")
    operand, *rest = together((operand, *choices), "IN")
    return In(operand, tuple(rest), BOOLEAN)


def like(operand: Expression, pattern: str, escape: str | None) -> Expression:
    if computable(operand, "LIKE").type != STRING:
        raise TypeProblem(f"LIKE needs a STRING, this is {operand.type}", "CAST(x AS STRING)")
    if escape is not None:
        if len(escape) != 1:
            raise TypeProblem(f"ESCAPE takes one character, not {escape!r}")
        like_pattern(pattern, escape)
    return Like(operand, pattern, BOOLEAN, escape)


def like_pattern(pattern: str, escape: str | None) -> str:
    """Return the regular expression, for Python and Java, that a text has to match as a whole.

    Each part between two % is taken at its first place (an atomic group), so that no text makes
    the time grow with the number of ways to place the parts.
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


def choice(
    branches: Sequence[tuple[Expression, Expression]], otherwise: Expression | None, what: str
) -> Expression:
    """CASE: the conditions as conditions, the values in one type."""
    values = [value for _, value in branches] + ([] if otherwise is None else [otherwise])
    values_typed = together(values, what)
    pairs = tuple(
        (condition(when, what), value)
        for (when, _), value in zip(branches, values_typed, strict=False)
    )
    rest = None if otherwise is None else values_typed[-1]
    return Case(pairs, rest, values_typed[0].type)
