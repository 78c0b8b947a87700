"""Build the values of casts, arithmetic and constants as Spark Columns; a failure is NULL.

Each operation uses a try form of Spark, so that nothing here throws while Spark runs. The module
`expressions` adds why a value failed.
"""

from __future__ import annotations

import math
from decimal import Decimal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.plan.tree import Arithmetic, Constant
from jobs.core.plan.typing_rules import DECIMAL_SCALE_KEPT
from jobs.edge.spark.column_types import spark_type
from schemas.types.sql_types import (
    BIGINT,
    BOOLEAN,
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    STRING,
    Kind,
    SqlType,
    integer_range,
)

# Spark reads a text as a date or a time only if it matches these. Spark also accepts the year 0,
# zones, and for constants words such as `now`, which would make results depend on the day.
_DATE_TEXT = r"^\s*(?!0000)\d{4}(-\d{1,2}(-\d{1,2}(\s.*)?)?)?$"
_TIMESTAMP_TEXT = (
    r"^\s*(?!0000)\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{0,9})?)?)?\s*$"
)
_OFFSET = r"(Z|[+-]\d{1,2}:\d{2})?"
_STAMP_TEXT = _TIMESTAMP_TEXT.replace(r")?)?\s*$", rf")?{_OFFSET})?\s*$")
_FRACTION_TEXT = r"^\s*[+-]?(\d+\.\d*|\.\d+)\s*$"


def named_column(name: str) -> SparkColumn:
    """Return the column of this name, whatever characters the name has."""
    return F.col("`" + name.replace("`", "``") + "`")


def constant_value(constant: Constant) -> SparkColumn:
    """Return a constant with its declared type."""
    value, target = constant.value, spark_type(constant.type)
    if isinstance(value, int) and not isinstance(value, bool):
        if constant.type.kind is Kind.DECIMAL:
            # Build it from its digits, because Decimal's arithmetic rounds to 28 digits.
            sign, digits = int(value < 0), tuple(map(int, str(abs(value))))
            return F.lit(Decimal((sign, digits, -(constant.type.scale or 0)))).try_cast(target)
        if constant.type.kind is Kind.DATE:
            return F.date_from_unix_date(F.lit(value))
        if constant.type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
            return F.timestamp_micros(F.lit(value)).try_cast(target)
    if isinstance(value, bytes):
        return F.lit(bytearray(value))
    return F.lit(value).try_cast(target)


def convert(value: SparkColumn, source: SqlType, target: SqlType) -> SparkColumn:
    """Return CAST(value AS target) as in Flink; NULL if the value cannot be cast."""
    plain = value.try_cast(spark_type(target))
    if target == STRING:
        return _as_text(value, source)
    if source == STRING and target.integer:
        # Flink drops the fraction of '12.5'; Spark's CAST gives NULL.
        whole = F.regexp_replace(value, r"(\d*)\.\d*\s*$", "0$1").try_cast(spark_type(target))
        return F.coalesce(plain, F.when(value.rlike(_FRACTION_TEXT), whole))
    if source == STRING and target.kind is Kind.DATE:
        return F.when(value.rlike(_DATE_TEXT), plain)
    if target.floating and source in (STRING, DOUBLE):
        # Only an infinite value stays infinite: a text of digits that is too large is not a number.
        was = ~value.rlike("[0-9]") if source == STRING else F.abs(value) == F.lit(math.inf)
        return F.when(was | (F.abs(plain) < F.lit(math.inf)) | F.isnan(plain), plain)
    if target.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        if source == STRING:
            text = _TIMESTAMP_TEXT if target.kind is Kind.TIMESTAMP else _STAMP_TEXT
            plain = F.when(value.rlike(text), plain)
        stamped = source.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
        finer = source == STRING or (stamped and (source.precision or 0) > (target.precision or 0))
        return _truncate(plain, target) if finer else plain
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


def _truncate(value: SparkColumn, target: SqlType) -> SparkColumn:
    """Return a timestamp without the digits that the target type does not have."""
    unit = 10 ** (6 - (target.precision or 0))
    if unit == 1:
        return value
    micros = F.unix_micros(value.try_cast(T.TimestampType()))
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(unit))).try_cast(spark_type(target))


def calculate(arithmetic: Arithmetic, left: SparkColumn, right: SparkColumn) -> SparkColumn:
    """Return the result; NULL if it is out of the range of its type, or the divisor is 0."""
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
                return _divide_whole(arithmetic.type, left, right).try_cast(target)
            value = F.try_divide(left, right)
    return value.try_cast(target)


def _divide_whole(sql_type: SqlType, left: SparkColumn, right: SparkColumn) -> SparkColumn:
    """Return the whole quotient; `div` has no try form, so it runs only if it cannot fail."""
    possible = right != F.lit(0)
    if sql_type == BIGINT:
        overflows = (left == F.lit(integer_range(BIGINT)[0])) & (right == F.lit(-1))
        possible = possible & ~overflows
    return F.when(possible, F.call_function("div", left, right))


def negate(value: SparkColumn, sql_type: SqlType) -> SparkColumn:
    """Return 0 - x, which is never -0.0; Spark's unary minus rounds a DECIMAL to 34 digits."""
    target = spark_type(sql_type)
    precision, scale = sql_type.precision or 0, sql_type.scale or 0
    if precision == DECIMAL_PRECISION_MAX and scale > DECIMAL_SCALE_KEPT:
        # The difference of such decimals has one fraction digit less, so change the sign as text.
        text = value.try_cast("string")
        turned = F.when(value < F.lit(0), F.substr(text, F.lit(2))).otherwise(
            F.concat(F.lit("-"), text)
        )
        return turned.try_cast(target)
    return F.try_subtract(F.lit(0).try_cast(target), value).try_cast(target)
