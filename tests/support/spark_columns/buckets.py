"""Buckets of groups as Spark Columns, as `jobs.core.plan.bucket` does."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from jobs.core.plan.tree import Plan, WindowBound
from schemas.types.sql_types import Kind, SqlType


def bucket_column(plan: Plan, buckets: int) -> Column:
    """Return the bucket of a group from the projected columns g0, g1, ..."""
    if not plan.group:
        return F.lit(_EMPTY_CRC % buckets).cast("int")
    parts = [
        F.lit(b"\x00")
        if plan.instants_argument is not None and isinstance(named.expression, WindowBound)
        else _encode(F.col(f"g{i}"), named.type)
        for i, named in enumerate(plan.group)
    ]
    return _hash(parts, buckets)


def _hash(parts: list[Column], buckets: int) -> Column:
    return F.pmod(F.crc32(F.concat(*parts)), F.lit(buckets)).cast("int")


_EMPTY_CRC = 0


def _encode(column: Column, sql_type: SqlType) -> Column:
    present = F.concat(F.lit(b"\x01"), _text(column, sql_type))
    return F.when(column.isNull(), F.lit(b"\x00")).otherwise(present)


def _text(column: Column, sql_type: SqlType) -> Column:
    kind = sql_type.kind
    if kind is Kind.BINARY:
        return column
    if sql_type.floating:
        # -0.0 is 0.0 here; %a writes a double as Java does, exactly.
        text = F.format_string("%a", column.cast("double") + F.lit(0.0))
    elif kind is Kind.DATE:
        text = F.unix_date(column).cast("string")
    elif kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ) and not sql_type.textual_time:
        text = F.unix_micros(column.cast("timestamp")).cast("string")
    else:
        text = column.cast("string")
    return text.cast("binary")
