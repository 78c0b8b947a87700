"""Row expressions: their types, what of them can fail, and how they read as SQL.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from jobs.core.plan import (
    Arithmetic,
    ArithmeticOp,
    Call,
    Case,
    Cast,
    Column,
    Compare,
    CompareOp,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Logical,
    Negate,
    Not,
    Plan,
    Window,
    WindowBound,
)
from schemas.types import (
    BIGINT,
    BOOLEAN,
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    FLOAT,
    INT,
    INTEGER_BITS,
    MICROSECOND_PRECISION,
    STRING,
    Kind,
    SqlType,
    decimal,
    integer_range,
    timestamp,
)

INTEGER_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}
DECIMAL_SCALE_KEPT = 6  # fraction digits that a result beyond 38 digits keeps at least
INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
# Largest first, so that a length is written in the largest unit that holds it exactly.
INTERVAL_UNITS_MS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
EPOCH = datetime(1970, 1, 1)
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

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


def aggregate_type(function: str, argument: SqlType | None) -> SqlType:
    """The result type of COUNT, SUM, AVG, MIN, MAX over an argument of a type."""
    if function == "COUNT" or argument is None:
        return BIGINT
    if function in ("MIN", "MAX"):
        return argument
    if not argument.numeric:
        hint = "CAST(x AS INT), or another number" if argument == STRING else None
        raise TypeProblem(f"{function} needs numbers, this is {argument}", hint)
    if argument.kind is not Kind.DECIMAL:
        return argument
    scale = argument.scale or 0
    return decimal(DECIMAL_PRECISION_MAX, scale if function == "SUM" else max(6, scale))


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
        return False
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
        like_parts(pattern, escape)
    return Like(operand, pattern, BOOLEAN, escape)


def like_parts(pattern: str, escape: str | None) -> list[str]:
    """A pattern as single parts, with a backslash as the escape character."""
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise TypeProblem(f"{escape!r} in LIKE must be followed by %, _ or itself")
            parts.append(following if following not in "%_\\" else "\\" + following)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return parts


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


# --- functions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """A scalar function: what each argument must be, and what comes out."""

    example: str
    takes: tuple[str, ...]  # families, one per argument; the last repeats when `repeats`
    gives: Callable[[tuple[Expression, ...]], SqlType]
    optional: int = 0
    repeats: bool = False
    meet: bool = False  # arguments are brought to one type


FAMILIES: dict[str, Callable[[SqlType], bool]] = {
    "STRING": lambda each: each == STRING,
    "number": lambda each: each.numeric,
    "integer": lambda each: each.integer and each.kind is not Kind.BIGINT,
    "DATE or TIMESTAMP": lambda each: each.kind in (Kind.DATE, *INSTANTS),
    "TIMESTAMP": lambda each: each.kind in INSTANTS,
    "value": lambda each: True,
}


def _same(arguments: tuple[Expression, ...]) -> SqlType:
    return arguments[0].type


def _whole(arguments: tuple[Expression, ...]) -> SqlType:
    source = arguments[0].type
    return decimal(source.precision or 1, 0) if source.kind is Kind.DECIMAL else source


def _rounded(arguments: tuple[Expression, ...]) -> SqlType:
    source = arguments[0].type
    digits = 0
    if len(arguments) > 1:
        if not isinstance(arguments[1], Constant) or not isinstance(arguments[1].value, int):
            raise TypeProblem("the second argument of ROUND must be a whole number, written out")
        digits = arguments[1].value
    if abs(digits) > DECIMAL_PRECISION_MAX:
        raise TypeProblem(f"ROUND takes at most {DECIMAL_PRECISION_MAX} digits")
    if source.kind is not Kind.DECIMAL:
        return source
    precision, scale = decimal_shape(source)
    if digits >= scale:
        return source
    kept = max(digits, 0)
    return decimal(min(DECIMAL_PRECISION_MAX, precision - scale + 1 + kept), kept)


def _always(sql_type: SqlType) -> Callable[[tuple[Expression, ...]], SqlType]:
    return lambda _: sql_type


def _text(example: str, arguments: int = 1) -> Signature:
    return Signature(example, ("STRING",) * arguments, _always(STRING))


FUNCTIONS: dict[str, Signature] = {
    "UPPER": _text("UPPER(s)"),
    "LOWER": _text("LOWER(s)"),
    "TRIM": _text("TRIM(s)"),
    "LTRIM": _text("LTRIM(s)"),
    "RTRIM": _text("RTRIM(s)"),
    "REPLACE": _text("REPLACE(s, search, replacement)", 3),
    "SUBSTRING": Signature(
        "SUBSTRING(s, from, length)", ("STRING", "integer", "integer"), _always(STRING), optional=1
    ),
    "CONCAT": Signature("CONCAT(s, t)", ("STRING",), _always(STRING), repeats=True),
    "CHAR_LENGTH": Signature("CHAR_LENGTH(s)", ("STRING",), _always(INT)),
    "ABS": Signature("ABS(x)", ("number",), _same),
    "SIGN": Signature("SIGN(x)", ("number",), _whole),
    "FLOOR": Signature("FLOOR(x)", ("number",), _whole),
    "CEIL": Signature("CEIL(x)", ("number",), _whole),
    "ROUND": Signature("ROUND(x, digits)", ("number", "integer"), _rounded, optional=1),
    "GREATEST": Signature("GREATEST(x, y)", ("value",), _same, repeats=True, meet=True),
    "LEAST": Signature("LEAST(x, y)", ("value",), _same, repeats=True, meet=True),
    "COALESCE": Signature("COALESCE(x, y)", ("value",), _same, repeats=True, meet=True),
    **{
        part: Signature(f"{part}(d)", ("DATE or TIMESTAMP",), _always(BIGINT))
        for part in ("YEAR", "MONTH", "DAYOFMONTH")
    },
    **{
        part: Signature(f"{part}(t)", ("TIMESTAMP",), _always(BIGINT))
        for part in ("HOUR", "MINUTE", "SECOND")
    },
}

SYNONYMS = {
    "SUBSTR": "SUBSTRING",
    "LENGTH": "CHAR_LENGTH",
    "CHARACTER_LENGTH": "CHAR_LENGTH",
    "CEILING": "CEIL",
    "DAY": "DAYOFMONTH",
    "IFNULL": "COALESCE",
    "NVL": "COALESCE",
}


def call(function: str, arguments: Sequence[Expression]) -> Expression:
    """A call of a function of the list, by its own name or a synonym."""
    name = SYNONYMS.get(function, function)
    signature = FUNCTIONS[name]
    most = len(signature.takes)
    if len(arguments) < most - signature.optional or (
        len(arguments) > most and not signature.repeats
    ):
        raise TypeProblem(f"{function} does not take {len(arguments)} arguments", signature.example)
    checked = []
    for index, argument in enumerate(arguments):
        family = signature.takes[min(index, most - 1)]
        if name != "COALESCE" and argument.type != UNTYPED:
            computable(argument, function)
        if argument.type != UNTYPED and not FAMILIES[family](argument.type):
            hint = "CAST(x AS STRING)" if family == "STRING" else signature.example
            raise TypeProblem(f"{function} needs a {family}, this is {argument.type}", hint)
        if family == "STRING" and argument.type == UNTYPED:
            argument = Constant(None, STRING)
        if family == "integer":
            argument = coerced(argument, INT)
        checked.append(argument)
    ready = together(checked, function) if signature.meet else tuple(map(typed, checked))
    return Call(name, ready, signature.gives(ready))


# --- what can fail -------------------------------------------------------------------------------


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside an expression, in the order of evaluation."""
    match expression:
        case Cast() | Negate() | Not() | IsNull() | Like():
            return (expression.operand,)
        case Arithmetic() | Compare() | Logical():
            return (expression.left, expression.right)
        case In():
            return (expression.operand, *expression.choices)
        case Case():
            flat = tuple(each for branch in expression.branches for each in branch)
            return flat if expression.otherwise is None else (*flat, expression.otherwise)
        case Call():
            return expression.arguments
        case WindowBound():
            return (expression.window.time,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it; what is shared comes once."""
    seen: set[int] = set()
    waiting = [expression]
    while waiting:
        current = waiting.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(reversed(parts(current)))


def fails_itself(expression: Expression) -> bool:
    """Whether evaluating this node may fail a row although its operands did not."""
    match expression:
        case Cast():
            return not expression.lenient and cast_fails(expression.operand.type, expression.type)
        case Arithmetic():
            return expression.op in ("/", "%") or _overflows(expression.type)
        case Negate():
            return expression.type.integer
        case Call():
            if expression.function == "ABS":
                return expression.type.integer
            if expression.function == "ROUND":
                return len(expression.arguments) > 1 and _overflows(expression.type)
            return False
        case WindowBound():
            return not expression.end  # a row without time has no window; told once, at its start
        case _:
            return False


def _overflows(sql_type: SqlType) -> bool:
    # A DECIMAL result of fewer than 38 digits was given room for every value.
    return sql_type.integer or sql_type.precision == DECIMAL_PRECISION_MAX


def fails(expression: Expression) -> bool:
    return any(fails_itself(each) for each in walk(expression))


def plan_fails(plan: Plan) -> bool:
    """Whether any row can fail the plan's expressions."""
    rows = [named.expression for named in (*plan.group, *plan.arguments)]
    return any(map(fails, rows if plan.where is None else [plan.where, *rows]))


# --- SQL -----------------------------------------------------------------------------------------

_PRECEDENCE = {"OR": 1, "AND": 2, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_NOT, _PREDICATE, _SIGN, _LEAF = 3, 4, 7, 9


def expression_sql(expression: Expression) -> str:
    """An expression as SQL that reads back to the same expression."""
    return _sql(expression)[0]


def _wrapped(expression: Expression, least: int) -> str:
    text, precedence = _sql(expression)
    return text if precedence >= least else f"({text})"


def _sql(expression: Expression) -> tuple[str, int]:
    """Text and how strongly its outermost operator binds."""
    match expression:
        case Column():
            return identifier_sql(expression.name), _LEAF
        case Constant():
            return _constant_sql(expression)
        case Cast():
            word = "TRY_CAST" if expression.lenient else "CAST"
            return f"{word}({expression_sql(expression.operand)} AS {expression.type})", _LEAF
        case Arithmetic() | Logical():
            strength = _PRECEDENCE[expression.op]
            left = _wrapped(expression.left, strength)
            return f"{left} {expression.op} {_wrapped(expression.right, strength + 1)}", strength
        case Negate():
            return f"-{_wrapped(expression.operand, _LEAF)}", _SIGN
        case Compare():
            left = _wrapped(expression.left, _PREDICATE + 1)
            right = _wrapped(expression.right, _PREDICATE + 1)
            return f"{left} {expression.op} {right}", _PREDICATE
        case Not():
            return f"NOT {_wrapped(expression.operand, _PREDICATE)}", _NOT
        case IsNull():
            return f"{_wrapped(expression.operand, _PREDICATE + 1)} IS NULL", _PREDICATE
        case In():
            choices = ", ".join(map(expression_sql, expression.choices))
            return f"{_wrapped(expression.operand, _PREDICATE + 1)} IN ({choices})", _PREDICATE
        case Like():
            escape = f" ESCAPE {string_sql(expression.escape)}" if expression.escape else ""
            operand = _wrapped(expression.operand, _PREDICATE + 1)
            return f"{operand} LIKE {string_sql(expression.pattern)}{escape}", _PREDICATE
        case Case():
            whens = "".join(
                f" WHEN {expression_sql(when)} THEN {expression_sql(value)}"
                for when, value in expression.branches
            )
            rest = expression.otherwise
            last = "" if rest is None else f" ELSE {expression_sql(rest)}"
            return f"CASE{whens}{last} END", _LEAF
        case Call():
            arguments = ", ".join(map(expression_sql, expression.arguments))
            return f"{expression.function}({arguments})", _LEAF
        case WindowBound():
            return window_sql(expression.window, "_END" if expression.end else "_START"), _LEAF


def window_sql(window: Window, bound: str = "") -> str:
    """A window as GROUP BY says it, or one of its bounds as SELECT does."""
    lengths = [window.size_ms] if window.function == "TUMBLE" else [window.slide_ms, window.size_ms]
    arguments = ", ".join([identifier_sql(window.time.name), *map(interval_sql, lengths)])
    return f"{window.function}{bound}({arguments})"


def interval_sql(milliseconds: int) -> str:
    """A length of time in the largest unit that holds it exactly, or in seconds."""
    for unit, length in INTERVAL_UNITS_MS.items():
        if milliseconds % length == 0:
            return f"INTERVAL '{milliseconds // length}' {unit}"
    return f"INTERVAL '{milliseconds // 1000}.{milliseconds % 1000:03}' SECOND"


def identifier_sql(name: str) -> str:
    """A name, in backticks where it could be read as something else."""
    plain = PLAIN_NAME.fullmatch(name) and name.upper() not in _WORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


# Words that mean something to the parser where a name could stand.
_KEYWORDS = """
    ALL AND ANY AS ASC BETWEEN BY CASE CAST CROSS CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DATE DESC DISTINCT ELSE END ESCAPE EXCEPT EXISTS EXTRACT FALSE FETCH FILTER FOR
    FROM FULL GROUP HAVING IF IN INNER INTERSECT INTERVAL INTO IS ISNULL JOIN LATERAL LEFT LIKE
    LIMIT LOCALTIME LOCALTIMESTAMP MAP NATURAL NOT NOTNULL NULL OFFSET ON OR ORDER OUTER OVER
    PARTITION QUALIFY RIGHT ROW ROWS SELECT SET SOME STRUCT TABLE THEN TIME TIMESTAMP TIMESTAMPTZ
    TIMESTAMP_LTZ TRUE UNION UNNEST USING VALUES WHEN WHERE WINDOW WITH XOR DIV ILIKE RLIKE
    REGEXP GLOB OVERLAPS SIMILAR
"""
_WORDS = frozenset(_KEYWORDS.split()) | {*Kind, "TEXT", "JSON", "ARRAY"}


def string_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _constant_sql(constant: Constant) -> tuple[str, int]:
    value, sql_type = constant.value, constant.type
    if value is None:
        return f"CAST(NULL AS {sql_type})", _LEAF
    if isinstance(value, bool):
        return str(value).upper(), _LEAF
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'", _LEAF
    if isinstance(value, str):
        return string_sql(value), _LEAF
    if isinstance(value, float):
        text = repr(value)
        return text if "e" in text else text + "e0", _LEAF if value >= 0 else _SIGN
    if sql_type.kind is Kind.DATE:
        return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'", _LEAF
    if sql_type.kind is Kind.TIMESTAMP:
        moment = EPOCH + timedelta(microseconds=value)
        fraction = f"{moment.microsecond:06}"[: sql_type.precision]
        stamp = moment.isoformat(" ", "seconds") + (f".{fraction}" if fraction else "")
        return f"TIMESTAMP '{stamp}'", _LEAF
    digits = str(abs(value)).rjust((sql_type.scale or 0) + 1, "0")
    if sql_type.scale:
        digits = f"{digits[: -sql_type.scale]}.{digits[-sql_type.scale :]}"
    return ("-" + digits, _SIGN) if value < 0 else (digits, _LEAF)


def plan_sql(plan: Plan, table: str = "source") -> str:
    """A plan as one query without derived tables, FILTER, aliases or ordinals in GROUP BY."""
    group = {named.name: named.expression for named in plan.group}
    aggregates = {aggregate.name: aggregate for aggregate in plan.aggregates}
    selected = []
    for name in plan.output:
        if name in group:
            text = expression_sql(group[name])
        else:
            index = aggregates[name].argument
            inner = "*" if index is None else expression_sql(plan.arguments[index].expression)
            text = f"{aggregates[name].function}({inner})"
        selected.append(f"{text} AS {identifier_sql(name)}")
    lines = [f"SELECT {', '.join(selected)}", f"FROM {identifier_sql(table)}"]
    if plan.where is not None:
        lines.append(f"WHERE {expression_sql(plan.where)}")
    if group:
        keys = [
            window_sql(each.window) if isinstance(each, WindowBound) else _key_sql(each)
            for each in group.values()
        ]
        lines.append("GROUP BY " + ", ".join(dict.fromkeys(keys)))  # both bounds are one window
    return "\n".join(lines)


def _key_sql(expression: Expression) -> str:
    # A bare whole number in GROUP BY would be the position of a column.
    text = expression_sql(expression)
    return f"CAST({text} AS {expression.type})" if text.isdigit() else text


# --- literals ------------------------------------------------------------------------------------

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2})(?:\.(\d+))?")
_NUMBER = re.compile(r"(\d*)(?:\.(\d*))?([eE][+-]?\d+)?")


def number(text: str) -> Constant:
    """A number as SQL writes it: INT, BIGINT, DECIMAL, or DOUBLE with an exponent."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        raise TypeProblem(f"{text!r} is not a number")
    whole, fraction, exponent = match[1].lstrip("0"), match[2] or "", match[3]
    if len(whole) + len(fraction) > DECIMAL_PRECISION_MAX:
        raise TypeProblem(f"a number has at most {DECIMAL_PRECISION_MAX} digits")
    if exponent:
        value = float(text)
        if value == float("inf"):
            raise TypeProblem(f"{text} is beyond the range of DOUBLE")
        return Constant(value, DOUBLE)
    if not fraction:
        return integer_constant(int(whole or "0"))
    precision = len(whole) + len(fraction)
    return Constant(int(whole + fraction), decimal(precision, len(fraction)))


def date_literal(text: str) -> Constant:
    if not _DATE.fullmatch(text):
        raise TypeProblem(f"{text!r} is not a date", "DATE '2024-12-31'")
    try:
        return Constant((date.fromisoformat(text) - EPOCH.date()).days, SqlType(Kind.DATE))
    except ValueError as error:
        raise TypeProblem(f"{text!r} is not a date: {error}") from None


def timestamp_literal(text: str) -> Constant:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise TypeProblem(f"{text!r} is not a timestamp", "TIMESTAMP '2024-12-31 23:59:59.123'")
    fraction = match[2] or ""
    if len(fraction) > MICROSECOND_PRECISION:
        raise TypeProblem("a timestamp literal has at most 6 fraction digits")
    try:
        moment = datetime.fromisoformat(match[1])
    except ValueError as error:
        raise TypeProblem(f"{text!r} is not a timestamp: {error}") from None
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    micros += int(fraction.ljust(MICROSECOND_PRECISION, "0"))
    return Constant(micros, timestamp(len(fraction)))
