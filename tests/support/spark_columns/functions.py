"""Build the scalar functions of `jobs.core.plan.scalar_functions` as Spark Columns.

A moment outside of the years 1 to 9999 is NULL and fails the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.evaluate.functions import EXACT_DOUBLE_MAX
from jobs.core.plan.scalar_functions import TIME_FORMAT_PART, UNITS_MONTHS, UNITS_US
from jobs.core.plan.tree import Call, Constant
from jobs.edge.spark.column_types import spark_type
from schemas.types.sql_types import Kind
from tests.support.spark_columns.values import negate

_DAY_US = UNITS_US["DAY"]
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_FIRST_US, _LAST_US = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1
_MONTHS_MAX = 12 * 10_000


def _constant(call: Call, index: int) -> str:
    argument = call.arguments[index]
    assert isinstance(argument, Constant)
    return str(argument.value)


def _micros(moment: SparkColumn) -> SparkColumn:
    return F.unix_micros(moment.try_cast(T.TimestampType()))


def _add(call: Call, values: list[SparkColumn]) -> SparkColumn:
    unit, count, moment = _constant(call, 0), values[1].cast(T.LongType()), values[2]
    if unit in UNITS_MONTHS:
        return _add_months(call, F.lit(UNITS_MONTHS[unit]) * count, moment)
    if call.type.kind is Kind.DATE:
        days = F.unix_date(moment).cast(T.LongType())
        days = days + count * F.lit(UNITS_US[unit] // _DAY_US)
        possible = days.between(_FIRST_DAY, _LAST_DAY)
        return F.when(possible, F.date_from_unix_date(days.try_cast(T.IntegerType())))
    step = F.try_multiply(count, F.lit(UNITS_US[unit]).cast(T.LongType()))
    return _stamp(call, F.try_add(_micros(moment), step))


def _add_months(call: Call, months: SparkColumn, moment: SparkColumn) -> SparkColumn:
    """Add months to the day and keep the time of day."""
    few = months.between(-_MONTHS_MAX, _MONTHS_MAX)
    day = moment.cast(T.DateType())
    moved = F.unix_date(F.add_months(day, F.when(few, months).try_cast(T.IntegerType())))
    possible = moved.between(_FIRST_DAY, _LAST_DAY)
    if call.type.kind is Kind.DATE:
        return F.when(possible, F.date_from_unix_date(moved))
    day_us = F.lit(_DAY_US).cast(T.LongType())
    time = _micros(moment) - F.unix_date(day).cast(T.LongType()) * day_us
    return _stamp(call, F.when(possible, moved).cast(T.LongType()) * day_us + time)


def _stamp(call: Call, micros: SparkColumn) -> SparkColumn:
    possible = micros.between(F.lit(_FIRST_US), F.lit(_LAST_US))
    return F.when(possible, F.timestamp_micros(micros).try_cast(spark_type(call.type)))


def _difference(call: Call, values: list[SparkColumn]) -> SparkColumn:
    """Return the whole units from the first to the second moment, rounded toward zero."""
    unit = _constant(call, 0)
    first, second = (value.try_cast(T.TimestampType()) for value in values[1:])
    if unit in UNITS_MONTHS:
        months = F.timestamp_diff("MONTH", first, second)
        return F.call_function("div", months, F.lit(UNITS_MONTHS[unit])).cast(T.LongType())
    micros = F.unix_micros(second) - F.unix_micros(first)
    return F.call_function("div", micros, F.lit(UNITS_US[unit]).cast(T.LongType()))


def _truncate_moment(call: Call, values: list[SparkColumn]) -> SparkColumn:
    return F.date_trunc(_constant(call, 0), values[1]).try_cast(spark_type(call.type))


def _from_text(call: Call, values: list[SparkColumn]) -> SparkColumn:
    """Read a text that has the digits of the format.

    Spark would also read years of more than four digits, and throw if the microseconds overflow.
    """
    form = _constant(call, 1)
    text = F.when(values[0].rlike(_text_pattern(form)), values[0])
    return _stamp(call, F.unix_micros(F.try_to_timestamp(text, F.lit(form))))


def _text_pattern(form: str) -> str:
    """Return a pattern for texts of a format: all digits of a part, at least one of a fraction."""
    return "^" + "".join(map(_part_pattern, TIME_FORMAT_PART.findall(form))) + "$"


def _part_pattern(part: str) -> str:
    if part == "'T'":
        return "[Tt]"
    if not part[0].isalpha():
        return re.escape(part)
    return rf"\d{{{'1,' * part.startswith('S')}{len(part)}}}"


def _from_number(call: Call, values: list[SparkColumn]) -> SparkColumn:
    unit = UNITS_US["SECOND" if _constant(call, 1) == "0" else "MILLISECOND"]
    number = values[0].cast(T.LongType())
    return _stamp(call, F.try_multiply(number, F.lit(unit).cast(T.LongType())))


MOMENT_FUNCTIONS: dict[str, Callable[[Call, list[SparkColumn]], SparkColumn]] = {
    "TIMESTAMPADD": _add,
    "TIMESTAMPDIFF": _difference,
    "DATE_TRUNC": _truncate_moment,
    "DATE_FORMAT": lambda call, values: F.date_format(values[0], _constant(call, 1)),
    "TO_DATE": _from_text,
    "TO_TIMESTAMP": _from_text,
    "TO_TIMESTAMP_LTZ": _from_number,
}


_Function = Callable[[Call, list[SparkColumn]], SparkColumn]


def _abs(call: Call, values: list[SparkColumn]) -> SparkColumn:
    if call.type.floating:
        return F.abs(values[0])
    return F.when(values[0] < F.lit(0), negate(values[0], call.type)).otherwise(values[0])


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
        # Spark's FLOOR of a DOUBLE is a BIGINT; beyond 2^53 a DOUBLE has no fraction.
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
    # Through DECIMAL, which can round up beyond the integer's range without an error.
    return F.round(values[0].try_cast(T.DecimalType(19, 0)), digits).try_cast(target)


def _extreme(of: Callable[..., SparkColumn]) -> _Function:
    def extreme(call: Call, values: list[SparkColumn]) -> SparkColumn:
        if len(values) == 1:
            return values[0]
        complete = values[0].isNotNull()
        for value in values[1:]:
            complete = complete & value.isNotNull()
        return F.when(complete, of(*values))  # Spark's function skips NULLs, Flink's does not

    return extreme


def _plain(function: Callable[..., SparkColumn]) -> _Function:
    return lambda call, values: function(*values)


def _long(function: Callable[..., SparkColumn]) -> _Function:
    return lambda call, values: function(*values).cast(T.LongType())


# --- strings -------------------------------------------------------------------------------------


def _repeat(call: Call, values: list[SparkColumn]) -> SparkColumn:
    return F.repeat(values[0], _whole_constant(call, 1))


def _padding(pad: Callable[..., SparkColumn]) -> _Function:
    def apply(call: Call, values: list[SparkColumn]) -> SparkColumn:
        return pad(values[0], _whole_constant(call, 1), _text_constant(call, 2))

    return apply


def _split_index(call: Call, values: list[SparkColumn]) -> SparkColumn:
    """Return the part at an index from 0, or NULL; the delimiter is text, not a pattern."""
    parts = F.split(values[0], re.escape(_text_constant(call, 1)), -1)
    return F.when(values[2] >= F.lit(0), F.get(parts, values[2]))


def _end(of: Callable[[SparkColumn, SparkColumn], SparkColumn]) -> _Function:
    """Build LEFT or RIGHT, which return '' for a length of 0 or less."""

    def end(call: Call, values: list[SparkColumn]) -> SparkColumn:
        text, length = values
        given = text.isNotNull() & length.isNotNull()
        return F.when(length > F.lit(0), of(text, length)).when(given, F.lit(""))

    return end


# --- mathematics: NULL if there is no value, which fails the row ---------------------------------


def _where(possible: Callable[[SparkColumn], SparkColumn], of: _Function) -> _Function:
    """Build a function of one number that is NULL where the function is not defined."""

    def apply(call: Call, values: list[SparkColumn]) -> SparkColumn:
        number = values[-1]
        return F.when(F.isnan(number), number).when(possible(number), of(call, values))

    return apply


def _power(call: Call, values: list[SparkColumn]) -> SparkColumn:
    base, exponent = values
    power = F.pow(base, exponent)
    given = F.isnan(base) | F.isnan(exponent) | _infinite(base) | _infinite(exponent)
    return F.when(given | ~(F.isnan(power) | _infinite(power)), power)


def _exponential(call: Call, values: list[SparkColumn]) -> SparkColumn:
    power = F.exp(values[0])
    return F.when(_infinite(values[0]) | ~_infinite(power), power)


def _logarithm(call: Call, values: list[SparkColumn]) -> SparkColumn:
    base, number = values
    possible = (base > F.lit(0.0)) & (base != F.lit(1.0)) & ~F.isnan(base)
    return F.when(F.isnan(base), base).when(possible, F.log(number) / F.log(base))


def _infinite(value: SparkColumn) -> SparkColumn:
    return F.abs(value) == F.lit(float("inf"))


def _truncate(call: Call, values: list[SparkColumn]) -> SparkColumn:
    if call.type.integer and (len(values) == 1 or _whole_constant(call, 1) >= 0):
        return values[0]
    digits = F.lit(0 if len(values) == 1 else _whole_constant(call, 1))
    wide = values[0].try_cast(T.DecimalType(19, 0)) if call.type.integer else values[0]
    down, up = F.floor(wide, digits), F.ceil(wide, digits)
    return F.when(wide >= F.lit(0), down).otherwise(up).try_cast(spark_type(call.type))


_POSITIVE: Callable[[SparkColumn], SparkColumn] = lambda number: number > F.lit(0.0)  # noqa: E731


# --- JSON ----------------------------------------------------------------------------------------


def _json(call: Call, values: list[SparkColumn]) -> tuple[SparkColumn, SparkColumn]:
    """Return the value at the path, or NULL, and whether it is an object or an array."""
    part = F.try_variant_get(F.try_parse_json(values[0]), _text_constant(call, 1), "variant")
    kind = F.schema_of_variant(part)
    return part, kind.startswith("OBJECT") | kind.startswith("ARRAY")


def _json_value(call: Call, values: list[SparkColumn]) -> SparkColumn:
    part, nested = _json(call, values)
    return F.when(~nested, F.try_variant_get(part, "$", "string"))


def _json_query(call: Call, values: list[SparkColumn]) -> SparkColumn:
    part, nested = _json(call, values)
    return F.when(nested, F.to_json(part))


def _json_exists(call: Call, values: list[SparkColumn]) -> SparkColumn:
    part, _ = _json(call, values)
    return F.when(values[0].isNotNull(), part.isNotNull())


def _text_constant(call: Call, index: int) -> str:
    argument = call.arguments[index]
    assert isinstance(argument, Constant) and isinstance(argument.value, str)
    return argument.value


def _whole_constant(call: Call, index: int) -> int:
    argument = call.arguments[index]
    assert isinstance(argument, Constant) and isinstance(argument.value, int)
    return argument.value


FUNCTIONS: dict[str, _Function] = {
    "UPPER": _plain(F.upper),
    "LOWER": _plain(F.lower),
    "TRIM": _plain(F.trim),
    "LTRIM": _plain(F.ltrim),  # of spaces, or of the characters in a second argument
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
    "QUARTER": _long(F.quarter),
    "WEEK": _long(F.weekofyear),
    "DAYOFYEAR": _long(F.dayofyear),
    "DAYOFWEEK": _long(F.dayofweek),
    "LEFT": _end(F.left),
    "RIGHT": _end(F.right),
    "BTRIM": _plain(F.trim),
    "REVERSE": _plain(F.reverse),
    "REPEAT": _repeat,
    "LPAD": _padding(F.lpad),
    "RPAD": _padding(F.rpad),
    "TRANSLATE": lambda call, values: F.translate(
        values[0], _text_constant(call, 1), _text_constant(call, 2)
    ),
    "SPLIT_INDEX": _split_index,
    "CONCAT_WS": lambda call, values: F.concat_ws(_text_constant(call, 0), *values[1:]),
    "POSITION": lambda call, values: F.position(values[0], values[1]),
    "STARTSWITH": lambda call, values: values[0].startswith(values[1]),
    "ENDSWITH": lambda call, values: values[0].endswith(values[1]),
    "MD5": lambda call, values: F.md5(values[0]),
    "SHA256": lambda call, values: F.sha2(values[0], 256),
    "TRUNCATE": _truncate,
    "SQRT": _where(lambda x: x >= F.lit(0.0), lambda call, values: F.sqrt(values[0])),
    "EXP": _exponential,
    "LN": _where(_POSITIVE, lambda call, values: F.log(values[0])),
    "LOG10": _where(_POSITIVE, lambda call, values: F.log10(values[0])),
    "LOG2": _where(_POSITIVE, lambda call, values: F.log2(values[0])),
    "LOG": _where(_POSITIVE, _logarithm),
    "POWER": _power,
    "JSON_VALUE": _json_value,
    "JSON_QUERY": _json_query,
    "JSON_EXISTS": _json_exists,
    **MOMENT_FUNCTIONS,
}
