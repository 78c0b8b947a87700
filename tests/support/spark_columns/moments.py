"""Build the functions of moments (DATE, TIMESTAMP) as Spark Columns.

TIMESTAMPADD(unit, n, t)   add days or microseconds, or add months to the day
TO_DATE, TO_TIMESTAMP      read a text by a pattern; TO_TIMESTAMP_LTZ reads a number
DATE_TRUNC, TIMESTAMPDIFF  divide by units of fixed length; use the calendar for months

A result outside of the years 1 to 9999 is NULL and fails the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.plan.scalar_functions import TIME_FORMAT_PART, UNITS_MONTHS, UNITS_US
from jobs.core.plan.tree import Call, Constant
from jobs.edge.spark.column_types import spark_type
from schemas.types.sql_types import Kind

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


def _truncate(call: Call, values: list[SparkColumn]) -> SparkColumn:
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
    "DATE_TRUNC": _truncate,
    "DATE_FORMAT": lambda call, values: F.date_format(values[0], _constant(call, 1)),
    "TO_DATE": _from_text,
    "TO_TIMESTAMP": _from_text,
    "TO_TIMESTAMP_LTZ": _from_number,
}
