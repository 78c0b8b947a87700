"""Spark's schema of weighted rows: columns of the source, and our own columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from jobs.core.plan.tree import Column
from jobs.edge.rows.weighted_rows import POSITION, REPORT, WEIGHT
from jobs.edge.spark.expressions import spark_type

OWN_COLUMNS = (POSITION, WEIGHT, REPORT)


def weighted_schema(columns: Sequence[Column], own_columns: Sequence[str]) -> StructType:
    """Return the schema of rows with these columns of the source, and these of our own."""
    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, spark_type(column.type))
    for name in own_columns:
        schema = schema.add(name, "long" if name in (POSITION, WEIGHT) else "binary")
    return schema
