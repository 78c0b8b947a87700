"""The scalar functions of `jobs.core.functions` as Spark Columns."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.plan import Call, Constant
from jobs.edge.expression_values import negated, spark_type
from schemas.types import Kind

EXACT_DOUBLE_MAX = float(2**53)  # from here on every DOUBLE is a whole number

_Function = Callable[[Call, list[SparkColumn]], SparkColumn]


def _abs(call: Call, values: list[SparkColumn]) -> SparkColumn:
    if call.type.floating:
        return F.abs(values[0])
    return F.when(values[0] < F.lit(0), negated(values[0], call.type)).otherwise(values[0])


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


FUNCTIONS: dict[str, _Function] = {
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
