"""The Arrow type of each SQL type, in Spark, Parquet, Delta and HTTP answers."""

from __future__ import annotations

import pyarrow as pa

from schemas.types.sql_types import Kind, SqlType

_PLAIN = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.string(),
    Kind.BINARY: pa.binary(),
}


def arrow_type(sql_type: SqlType) -> pa.DataType:
    if sql_type.kind is Kind.ARRAY:
        return pa.list_(pa.field("element", arrow_type(sql_type.items[0])))
    if sql_type.kind is Kind.ROW:
        items = zip(sql_type.item_names, map(arrow_type, sql_type.items), strict=True)
        return pa.struct(list(items))
    if sql_type.kind in _PLAIN:
        return _PLAIN[sql_type.kind]
    if sql_type.kind is Kind.DECIMAL:
        return pa.decimal128(sql_type.precision, sql_type.scale)
    if sql_type.textual_time:
        return pa.string()
    return pa.timestamp("us", "UTC" if sql_type.kind is Kind.TIMESTAMP_LTZ else None)
