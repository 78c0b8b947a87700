"""Spark and the core put a group into the same bucket; else its state is looked for elsewhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from jobs.core.plan.bucket import bucket_of
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Value
from jobs.edge.rows.columns import to_arrow
from jobs.edge.spark.bucket_column import bucket_column
from jobs.edge.spark.expressions import project, spark_type
from schemas.types.sql_types import SqlType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = 4_096
VALUES: dict[str, list[Value]] = {
    "STRING": ["a", "", "é\u0000b", None],
    "BOOLEAN": [True, False, None, True],
    "TINYINT": [-128, 127, 0, None],
    "BIGINT": [-(2**63), 2**63 - 1, 0, None],
    "DECIMAL(10, 2)": [150, -5, 0, None],
    "DECIMAL(38, 20)": [10**38 - 1, -1, 0, None],
    "DECIMAL(38, 0)": [-(10**38) + 1, 10, 0, None],
    "FLOAT": [0.10000000149011612, math.nan, -math.inf, 2.0**-149],
    "DOUBLE": [0.1, 5e-324, 0.0, -1.7976931348623157e308],
    "DATE": [18_395, -719_162, 0, None],
    "TIME": ["12:38:35", "00:00:00", None, "23:59:59"],
    "TIMESTAMP(3)": [1_589_373_515_477_000, -1_000, 0, None],
    "TIMESTAMP_LTZ(6)": [1_589_373_515_477_001, -1, 0, None],
    "TIMESTAMP(9)": ["2020-05-13 12:38:35.123456789", None, None, None],
    "BINARY": [b"\x00\xff", b"", b"\x01", None],
}


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
