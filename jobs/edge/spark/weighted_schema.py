"""Spark's schema of weighted rows: columns of the source, and our own columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from jobs.core.plan.tree import Column
from jobs.edge.rows.weighted_rows import (
    CHANGE_PARTITION,
    CHANGE_TIME,
    POSITION,
    REPORT,
    WEIGHT,
)
from jobs.edge.spark.expressions import spark_type

OWN_COLUMNS = (POSITION, WEIGHT, REPORT)
IMAGE_COLUMNS = (*OWN_COLUMNS, CHANGE_TIME, CHANGE_PARTITION)
_NUMBERS = frozenset({POSITION, WEIGHT, CHANGE_TIME, CHANGE_PARTITION})


def weighted_schema(columns: Sequence[Column], own_columns: Sequence[str]) -> StructType:
    """Return the schema of rows with these columns of the source, and these of our own."""
    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, spark_type(column.type))
    for name in own_columns:
        schema = schema.add(name, "long" if name in _NUMBERS else "binary")
    return schema
