"""The Spark types of SQL types."""

from __future__ import annotations

from pyspark.sql import types as T

from schemas.types.sql_types import Kind, SqlType

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


def spark_type(sql_type: SqlType) -> T.DataType:
    if sql_type.kind is Kind.ROW:
        fields = zip(sql_type.item_names, sql_type.items, strict=True)
        return T.StructType([T.StructField(name, spark_type(item)) for name, item in fields])
    if sql_type.kind is Kind.DECIMAL:
        return T.DecimalType(sql_type.precision or 10, sql_type.scale or 0)
    return T.StringType() if sql_type.textual_time else _SPARK_TYPES[sql_type.kind]
