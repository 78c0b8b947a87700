"""Spark and the core put a group into the same bucket; else its state is looked for elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from jobs.core.plan.bucket import bucket_of
from jobs.core.sql.select import parse_query
from jobs.edge.rows.columns import to_arrow
from jobs.edge.spark.column_types import spark_type
from schemas.types.sql_types import SqlType
from tests.support.bucket_values import BUCKETS, VALUES
from tests.support.spark_columns.buckets import bucket_column
from tests.support.spark_columns.expressions import project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_computes_the_same_bucket_for_every_type(spark: SparkSession) -> None:
    kinds = [SqlType.parse(name) for name in VALUES]
    columns = {f"c{i}": kind for i, kind in enumerate(kinds)}
    arrays = [to_arrow(values, kind) for values, kind in zip(VALUES.values(), kinds, strict=True)]
    table = pa.Table.from_arrays(arrays, list(columns))
    schema = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in columns.items()])
    frame = spark.createDataFrame(table, schema)
    groups: list[Any] = [list(columns), *([name] for name in columns)]
    for names in groups:
        plan = parse_query(
            f"SELECT {', '.join(names)}, COUNT(*) AS n FROM t GROUP BY {', '.join(names)}", columns
        )
        types = [columns[name] for name in names]
        projected = project(frame, plan)
        found = [row[0] for row in projected.select(bucket_column(plan, BUCKETS)).collect()]
        places = [list(columns).index(name) for name in names]
        rows = list(zip(*VALUES.values(), strict=True))
        wanted = [bucket_of(tuple(row[p] for p in places), types, BUCKETS) for row in rows]
        assert found == wanted, names
