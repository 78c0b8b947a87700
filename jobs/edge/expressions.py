"""Expressions: the plan's row expressions as Spark Columns, with the failures of rows beside them.

    plan Expression ──build──► value: the Column, NULL where something failed
                           └─► failure: why the row fails, NULL where it does not; None: never

Nothing here throws while Spark runs: every operation that can fail is one of Spark's try forms, and
a failure is a text of its own beside the value, so that one bad row goes to quarantine and the
others go on. A part that SQL would not evaluate (an untaken branch, the right side of a false AND)
reports no failure. Only typed values and names of columns reach Spark; no text of a user is ever
parsed by it. The session's time zone is UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.expressions import (
    DECIMAL_SCALE_KEPT,
    expression_sql,
    fails_itself,
    like_parts,
    plan_fails,
)
from jobs.core.plan import (
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Logical,
    Negate,
    Not,
    Plan,
    WindowBound,
)
from jobs.edge.window_columns import bound_column, with_windows
from schemas.types import (
    BIGINT,
    BOOLEAN,
    DECIMAL_PRECISION_MAX,
    STRING,
    Kind,
    SqlType,
    integer_range,
)

SHOWN_SQL_CHARACTERS_MAX = 200
SHOWN_VALUE_CHARACTERS_MAX = 100
EXACT_DOUBLE_MAX = float(2**53)  # from here on every DOUBLE is a whole number

_SPARK_TYPES: dict[Kind, T.DataType] = {
    Kind.BOOLEAN: T.BooleanType(),
    Kind.TINYINT: T.ByteType(),
    Kind.SMALLINT: T.ShortType(),
    Kind.INT: T.IntegerType(),
    Kind.BIGINT: T.LongType(),
    Kind.FLOAT: T.FloatType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.STRING: T.StringType(),
    Kind.DATE: T.DateType(),
    Kind.TIMESTAMP: T.TimestampNTZType(),
    Kind.TIMESTAMP_LTZ: T.TimestampType(),
    Kind.BINARY: T.BinaryType(),
}

# What a text must look like before Spark reads it as a date or a time: Spark also knows zones, and
# for constants words such as `now`, which would make a query give other results tomorrow.
_DATE_TEXT = r"^\s*\d{4}(-\d{1,2}(-\d{1,2}(\s.*)?)?)?$"
_TIMESTAMP_TEXT = r"^\s*\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{0,9})?)?)?\s*$"
_FRACTION_TEXT = r"^\s*[+-]?(\d+\.\d*|\.\d+)\s*$"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A row expression in Spark: what it gives, and why a row fails (None: it cannot)."""

    value: SparkColumn
    failure: SparkColumn | None = None


def spark_type(sql_type: SqlType) -> T.DataType:
    """The Spark type of a column of a SQL type."""
    if sql_type.kind is Kind.DECIMAL:
        return T.DecimalType(sql_type.precision or 10, sql_type.scale or 0)
    return T.StringType() if sql_type.textual_time else _SPARK_TYPES[sql_type.kind]


def fallible(plan: Plan) -> bool:
    """Whether `project` gives a failure column."""
    return plan_fails(plan)


def project(
    frame: DataFrame, plan: Plan, carry: Sequence[str] = (), keep: SparkColumn | None = None
) -> DataFrame:
    """Source rows to the rows that are folded: carried columns, g0.., a0.., and `failure` where
    the plan is fallible. Rows that fail pass the WHERE, so that they are seen; so do rows that
    `keep` is true for, which are no rows of the source. Of windows that hop a row becomes
    several."""
    application = frame.sparkSession.sparkContext.applicationId
    passes, columns = _projection(plan, tuple(carry), application)
    if passes is not None:
        frame = frame.where(passes if keep is None else keep | passes)
    if plan.window is not None:
        frame = with_windows(frame, plan.window)
    return frame.select(*columns)


@lru_cache(maxsize=64)
def _projection(
    plan: Plan, carry: tuple[str, ...], application: str
) -> tuple[SparkColumn | None, list[SparkColumn]]:
    """Columns belong to no frame: they are built once for a plan and a Spark application, because
    each of their nodes is a call to the JVM (0.3 s for a dozen expressions, every epoch)."""
    failures = []
    passes = None
    if plan.where is not None:
        where = build(plan.where)
        failures.append(where.failure)
        passes = where.value
        if where.failure is not None:
            passes = where.failure.isNotNull() | where.value
    columns = [_column(name) for name in carry]
    for letter, named in (("g", plan.group), ("a", plan.arguments)):
        for index, each in enumerate(named):
            evaluated = build(each.expression)
            failures.append(evaluated.failure)
            value = evaluated.value
            if not isinstance(each.expression, Column):
                # Spark's typing and ours agree; where they ever do not, ours is what is declared.
                value = value.try_cast(spark_type(each.type))
            columns.append(value.alias(f"{letter}{index}"))
    failure = _first(*failures)
    if failure is not None:
        columns.append(failure.alias("failure"))
    return passes, columns


def build(expression: Expression) -> Evaluated:
    """An expression as Columns; recursion ends at the depth that the query parser allows."""
    match expression:
        case Column():
            return Evaluated(_column(expression.name))
        case Constant():
            return Evaluated(_constant(expression))
        case Cast():
            return _build_cast(expression)
        case Arithmetic():
            return _build_arithmetic(expression)
        case Negate():
            return _build_negation(expression)
        case Compare():
            left, right = build(expression.left), build(expression.right)
            value = _COMPARE[expression.op](left.value, right.value)
            return Evaluated(value, _first(left.failure, right.failure))
        case Logical():
            return _build_logical(expression)
        case Not():
            operand = build(expression.operand)
            return Evaluated(~operand.value, operand.failure)
        case IsNull():
            operand = build(expression.operand)
            return Evaluated(operand.value.isNull(), operand.failure)
        case In():
            return _build_in(expression)
        case Like():
            operand = build(expression.operand)
            pattern = "".join(like_parts(expression.pattern, expression.escape))
            value = F.like(operand.value, F.lit(pattern), F.lit("\\"))
            return Evaluated(value, operand.failure)
        case Case():
            return _build_case(expression)
        case Call():
            return _build_call(expression)
        case WindowBound():
            return Evaluated(*bound_column(expression))


_COMPARE: dict[str, Callable[[SparkColumn, SparkColumn], SparkColumn]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


# --- columns, constants, failures ----------------------------------------------------------------


def _column(name: str) -> SparkColumn:
    return F.col("`" + name.replace("`", "``") + "`")


def _constant(constant: Constant) -> SparkColumn:
    value, target = constant.value, spark_type(constant.type)
    if isinstance(value, int) and not isinstance(value, bool):
        if constant.type.kind is Kind.DECIMAL:
            # Built from its digits: Decimal's arithmetic would round to 28 of them.
            sign, digits = int(value < 0), tuple(map(int, str(abs(value))))
            return F.lit(Decimal((sign, digits, -(constant.type.scale or 0)))).try_cast(target)
        if constant.type.kind is Kind.DATE:
            return F.date_from_unix_date(F.lit(value))
        if constant.type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
            return F.timestamp_micros(F.lit(value)).try_cast(target)
    if isinstance(value, bytes):
        return F.lit(bytearray(value))
    return F.lit(value).try_cast(target)


def _no_failure() -> SparkColumn:
    return F.lit(None).cast(T.StringType())


def _first(*failures: SparkColumn | None) -> SparkColumn | None:
    """The first failure of several that are all evaluated."""
    real = [failure for failure in failures if failure is not None]
    return F.coalesce(*real) if len(real) > 1 else real[0] if real else None


def _in_turn(steps: Sequence[tuple[SparkColumn, SparkColumn | None]]) -> SparkColumn | None:
    """The failure of parts evaluated in turn: each step is (this is where it ends, failure then).

    A step whose failure is its own condition is a part that has to be evaluated on the way.
    """
    if all(failure is None for _, failure in steps):
        return None
    chosen: SparkColumn | None = None
    for ends, failure in steps:
        then = _no_failure() if failure is None else failure
        chosen = F.when(ends, then) if chosen is None else chosen.when(ends, then)
    return chosen


def _evaluated_on_the_way(part: Evaluated) -> list[tuple[SparkColumn, SparkColumn | None]]:
    return [] if part.failure is None else [(part.failure.isNotNull(), part.failure)]


def _text(expression: Expression) -> str:
    text = expression_sql(expression)
    if len(text) <= SHOWN_SQL_CHARACTERS_MAX:
        return text
    return text[:SHOWN_SQL_CHARACTERS_MAX] + "…"


# --- one node each -------------------------------------------------------------------------------


def _build_cast(cast: Cast) -> Evaluated:
    operand = build(cast.operand)
    source, target = cast.operand.type, cast.type
    value = _converted(operand.value, source, target)
    if not fails_itself(cast):
        return Evaluated(value, operand.failure)
    if source.kind is Kind.BINARY:
        reason = F.lit(f"{_text(cast)}: the bytes are no UTF-8 text")
    else:
        shown = F.substring(operand.value.try_cast("string"), 1, SHOWN_VALUE_CHARACTERS_MAX)
        wrong = f"is no {target}" if source == STRING else f"does not fit {target}"
        reason = F.concat(F.lit(f"{_text(cast)}: '"), shown, F.lit(f"' {wrong}"))
    own = F.when(operand.value.isNotNull() & value.isNull(), reason)
    return Evaluated(value, _first(operand.failure, own))


def _converted(value: SparkColumn, source: SqlType, target: SqlType) -> SparkColumn:
    """CAST as Flink does it, with NULL for what cannot be cast."""
    plain = value.try_cast(spark_type(target))
    if target == STRING:
        return _as_text(value, source)
    if source == STRING and target.integer:
        # Flink drops the fraction of '12.5'; Spark's CAST does not read it at all.
        whole = F.regexp_replace(value, r"(\d*)\.\d*\s*$", "0$1").try_cast(spark_type(target))
        return F.coalesce(plain, F.when(value.rlike(_FRACTION_TEXT), whole))
    if source == STRING and target.kind is Kind.DATE:
        return F.when(value.rlike(_DATE_TEXT), plain)
    if target.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        if source == STRING:
            plain = F.when(value.rlike(_TIMESTAMP_TEXT), plain)
        stamped = source.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
        finer = source == STRING or (stamped and (source.precision or 0) > (target.precision or 0))
        return _truncated(plain, target) if finer else plain
    return plain


def _as_text(value: SparkColumn, source: SqlType) -> SparkColumn:
    if source == BOOLEAN:
        return F.when(value, F.lit("TRUE")).when(~value, F.lit("FALSE"))
    if source.kind is Kind.BINARY:
        return F.try_validate_utf8(value.try_cast("string"))
    if source.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        fraction = "." + "S" * source.precision if source.precision else ""
        return F.date_format(value, f"yyyy-MM-dd HH:mm:ss{fraction}")
    return value.try_cast("string")


def _truncated(value: SparkColumn, target: SqlType) -> SparkColumn:
    """A timestamp without the digits that its type does not have."""
    unit = 10 ** (6 - (target.precision or 0))
    if unit == 1:
        return value
    micros = F.unix_micros(value.try_cast(T.TimestampType()))
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(unit))).try_cast(spark_type(target))


def _build_arithmetic(arithmetic: Arithmetic) -> Evaluated:
    left, right = build(arithmetic.left), build(arithmetic.right)
    value = _calculated(arithmetic, left.value, right.value)
    failure = _first(left.failure, right.failure)
    if fails_itself(arithmetic):
        reason = F.lit(f"{_text(arithmetic)}: out of the range of {arithmetic.type}")
        if arithmetic.op in ("/", "%"):
            zero = F.lit(f"{_text(arithmetic)}: division by zero")
            reason = F.when(right.value == F.lit(0), zero).otherwise(reason)
        given = left.value.isNotNull() & right.value.isNotNull()
        failure = _first(failure, F.when(given & value.isNull(), reason))
    return Evaluated(value, failure)


def _calculated(arithmetic: Arithmetic, left: SparkColumn, right: SparkColumn) -> SparkColumn:
    target = spark_type(arithmetic.type)
    match arithmetic.op:
        case "+":
            value = F.try_add(left, right)
        case "-":
            value = F.try_subtract(left, right)
        case "*":
            value = F.try_multiply(left, right)
        case "%":
            value = F.try_mod(left, right)
        case "/":
            if arithmetic.type.integer:
                return _divided(arithmetic.type, left, right).try_cast(target)
            value = F.try_divide(left, right)
    return value.try_cast(target)


def _divided(sql_type: SqlType, left: SparkColumn, right: SparkColumn) -> SparkColumn:
    """Whole division, which has no try form: it is only reached where it cannot fail."""
    possible = right != F.lit(0)
    if sql_type == BIGINT:
        overflows = (left == F.lit(integer_range(BIGINT)[0])) & (right == F.lit(-1))
        possible = possible & ~overflows
    return F.when(possible, F.call_function("div", left, right))


def _build_negation(negation: Negate) -> Evaluated:
    operand = build(negation.operand)
    value = _negated(operand.value, negation.type)
    return Evaluated(value, _first(operand.failure, _overflow(negation, operand.value, value)))


def _negated(value: SparkColumn, sql_type: SqlType) -> SparkColumn:
    """0 - x, which also has no -0.0; Spark's own minus rounds a DECIMAL to 34 digits."""
    target = spark_type(sql_type)
    precision, scale = sql_type.precision or 0, sql_type.scale or 0
    if precision == DECIMAL_PRECISION_MAX and scale > DECIMAL_SCALE_KEPT:
        # The difference of such decimals has one fraction digit less: change the sign as text.
        text = value.try_cast("string")
        turned = F.when(value < F.lit(0), F.substr(text, F.lit(2))).otherwise(
            F.concat(F.lit("-"), text)
        )
        return turned.try_cast(target)
    return F.try_subtract(F.lit(0).try_cast(target), value).try_cast(target)


def _overflow(
    expression: Expression, operand: SparkColumn, value: SparkColumn
) -> SparkColumn | None:
    """The failure of a node with one operand, whose result may be beyond its type."""
    if not fails_itself(expression):
        return None
    reason = F.lit(f"{_text(expression)}: out of the range of {expression.type}")
    return F.when(operand.isNotNull() & value.isNull(), reason)


def _build_logical(logical: Logical) -> Evaluated:
    """AND and OR look at the right side only where the left one does not decide."""
    left, right = build(logical.left), build(logical.right)
    if logical.op == "AND":
        value, open_still = left.value & right.value, left.value.isNull() | left.value
    else:
        value, open_still = left.value | right.value, left.value.isNull() | ~left.value
    later = None if right.failure is None else F.when(open_still, right.failure)
    return Evaluated(value, _first(left.failure, later))


def _build_in(contained: In) -> Evaluated:
    operand = build(contained.operand)
    choices = [build(choice) for choice in contained.choices]
    value = operand.value.isin(*(choice.value for choice in choices))
    if all(choice.failure is None for choice in choices):
        return Evaluated(value, operand.failure)
    steps = _evaluated_on_the_way(operand)
    for choice in choices:
        steps += _evaluated_on_the_way(choice)
        steps.append((operand.value == choice.value, None))
    return Evaluated(value, _in_turn(steps))


def _build_case(case: Case) -> Evaluated:
    value: SparkColumn | None = None
    steps: list[tuple[SparkColumn, SparkColumn | None]] = []
    for when, then in case.branches:
        condition, result = build(when), build(then)
        if value is None:
            value = F.when(condition.value, result.value)
        else:
            value = value.when(condition.value, result.value)
        steps += _evaluated_on_the_way(condition)
        steps.append((condition.value, result.failure))
    assert value is not None
    if case.otherwise is not None:
        otherwise = build(case.otherwise)
        value = value.otherwise(otherwise.value)
        steps += _evaluated_on_the_way(otherwise)
    return Evaluated(value, _in_turn(steps))


def _build_call(call: Call) -> Evaluated:
    arguments = [build(argument) for argument in call.arguments]
    values = [argument.value for argument in arguments]
    if call.function == "COALESCE":
        steps: list[tuple[SparkColumn, SparkColumn | None]] = []
        for argument in arguments:
            steps += _evaluated_on_the_way(argument)
            steps.append((argument.value.isNotNull(), None))
        return Evaluated(F.coalesce(*values), _in_turn(steps))
    value = _FUNCTIONS[call.function](call, values)
    failure = _first(*(argument.failure for argument in arguments))
    return Evaluated(value, _first(failure, _overflow(call, values[0], value)))


# --- functions -----------------------------------------------------------------------------------

_Function = Callable[[Call, list[SparkColumn]], SparkColumn]


def _abs(call: Call, values: list[SparkColumn]) -> SparkColumn:
    if call.type.floating:
        return F.abs(values[0])
    return F.when(values[0] < F.lit(0), _negated(values[0], call.type)).otherwise(values[0])


def _sign(call: Call, values: list[SparkColumn]) -> SparkColumn:
    target = spark_type(call.type)
    if call.type.floating:
        return F.signum(values[0]).try_cast(target)
    zero = F.lit(0)
    sign = F.when(values[0] > zero, F.lit(1)).when(values[0] < zero, F.lit(-1))
    return sign.when(values[0] == zero, zero).try_cast(target)


def _whole(toward: Callable[[SparkColumn], SparkColumn]) -> _Function:
    def whole(call: Call, values: list[SparkColumn]) -> SparkColumn:
        target = spark_type(call.type)
        if call.type.integer:
            return values[0]
        if call.type.kind is Kind.DECIMAL:
            return toward(values[0]).try_cast(target)
        # Spark's FLOOR of a DOUBLE is a BIGINT; beyond 2^53 there is nothing to take off.
        small = F.abs(values[0]) < F.lit(EXACT_DOUBLE_MAX)
        return F.when(small, toward(values[0]).try_cast(target)).otherwise(values[0])

    return whole


def _round(call: Call, values: list[SparkColumn]) -> SparkColumn:
    second = call.arguments[1] if len(call.arguments) > 1 else None
    digits = second.value if isinstance(second, Constant) and isinstance(second.value, int) else 0
    target = spark_type(call.type)
    if not call.type.integer:
        return F.round(values[0], digits).try_cast(target)
    if digits >= 0:
        return values[0]
    # Through DECIMAL, where rounding up beyond the integer's range is no error yet.
    return F.round(values[0].try_cast(T.DecimalType(19, 0)), digits).try_cast(target)


def _extreme(of: Callable[..., SparkColumn]) -> _Function:
    def extreme(call: Call, values: list[SparkColumn]) -> SparkColumn:
        if len(values) == 1:
            return values[0]
        complete = values[0].isNotNull()
        for value in values[1:]:
            complete = complete & value.isNotNull()
        return F.when(complete, of(*values))  # Spark's own skips NULLs, SQL's and Flink's do not

    return extreme


def _plain(function: Callable[..., SparkColumn]) -> _Function:
    return lambda call, values: function(*values)


def _long(function: Callable[..., SparkColumn]) -> _Function:
    return lambda call, values: function(*values).cast(T.LongType())


_FUNCTIONS: dict[str, _Function] = {
    "UPPER": _plain(F.upper),
    "LOWER": _plain(F.lower),
    "TRIM": _plain(F.trim),
    "LTRIM": _plain(F.ltrim),
    "RTRIM": _plain(F.rtrim),
    "REPLACE": _plain(F.replace),
    "SUBSTRING": _plain(F.substr),
    "CONCAT": _plain(F.concat),
    "CHAR_LENGTH": _plain(F.char_length),
    "ABS": _abs,
    "SIGN": _sign,
    "FLOOR": _whole(F.floor),
    "CEIL": _whole(F.ceil),
    "ROUND": _round,
    "GREATEST": _extreme(F.greatest),
    "LEAST": _extreme(F.least),
    "YEAR": _long(F.year),
    "MONTH": _long(F.month),
    "DAYOFMONTH": _long(F.dayofmonth),
    "HOUR": _long(F.hour),
    "MINUTE": _long(F.minute),
    "SECOND": _long(F.second),
}
