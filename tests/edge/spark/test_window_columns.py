"""Spark puts a row into the windows that the core says, and what it carries goes along."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.plan.bucket import bucket_of_group
from jobs.core.plan.tree import Plan
from jobs.core.plan.walk import plan_can_fail
from jobs.core.rows.windows import WINDOWS_FROM_MS, WINDOWS_TO_MS, window_expander
from jobs.core.sql.select import parse_query
from jobs.core.values.json_values import renderer
from jobs.edge.rows.columns import to_arrow
from jobs.edge.spark.column_types import spark_type
from schemas.types.arrow_values import from_arrow
from schemas.types.sql_types import BIGINT, INT, SqlType, timestamp
from tests.support.spark_columns.buckets import bucket_column
from tests.support.spark_columns.expressions import project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMES: dict[str, tuple[SqlType, int]] = {  # and what a millisecond is in their values
    "second": (timestamp(0), 1_000),
    "milli": (timestamp(3), 1_000),
    "micro": (timestamp(6), 1_000),
    "zoned": (timestamp(6, local_zone=True), 1_000),
    "number": (BIGINT, 1),
}
WINDOWS = (
    "TUMBLE({}, INTERVAL '1' MINUTE)",
    "TUMBLE({}, INTERVAL '0.007' SECOND)",
    "TUMBLE({}, INTERVAL '7' DAY)",
    "HOP({}, INTERVAL '30' SECOND, INTERVAL '2' MINUTE)",
    "HOP({}, INTERVAL '10' DAY, INTERVAL '360' DAY)",
    "HOP({}, INTERVAL '1' HOUR, INTERVAL '1' HOUR)",
    "SESSION({}, INTERVAL '7.001' SECOND)",
)


def times() -> list[int | None]:
    """Epoch milliseconds around 1970, today, and where the calendar ends; and none."""
    random = Random(1970)
    edges = [0, 1_700_000_000_000, WINDOWS_FROM_MS, WINDOWS_TO_MS]
    near = [edge + step for edge in edges for step in (-60_000, -1, 0, 1, 59_999, 60_000)]
    within = [each for each in near if WINDOWS_FROM_MS <= each <= WINDOWS_TO_MS]
    return [*within, *(random.randint(-(10**13), 10**13) for _ in range(40)), None]


def rows_of(spark: SparkSession, plan: Plan, columns: dict[str, list[Any]]) -> DataFrame:
    arrays = [to_arrow(columns[column.name], column.type) for column in plan.used]
    schema = T.StructType([T.StructField(c.name, spark_type(c.type)) for c in plan.used])
    return spark.createDataFrame(pa.Table.from_arrays(arrays, [c.name for c in plan.used]), schema)


@pytest.mark.parametrize("name", TIMES)
def test_spark_assigns_the_windows_of_the_core(spark: SparkSession, name: str) -> None:
    kind, unit = TIMES[name]
    values = [each if each is None else each * unit for each in times()]
    if name in ("micro", "zoned"):
        values += [-1, -999, -1_001, 1_700_000_000_000_999]
    if name == "second":
        values = [each if each is None else each // 1_000_000 * 1_000_000 for each in values]
    if name == "number":
        values += [2**63 - 1, -(2**63), WINDOWS_TO_MS + 1, WINDOWS_FROM_MS - 1]
    for text in WINDOWS:
        window = text.format(name)
        sql = f"SELECT MAX(v) AS m, COUNT(*) AS n FROM s GROUP BY {window}"
        plan = parse_query(sql, {name: kind, "v": INT})
        assert plan.window is not None
        opened = window_expander(plan, plan.window)
        assert plan_can_fail(plan)
        numbers = list(range(len(values)))
        made = project(rows_of(spark, plan, {name: values, "v": numbers}), plan)
        assert made.columns[:3] == ["g0", "g1", "a0"]
        made = made.select("g0", "g1", "a0", "failure")
        table = made.toArrow()
        bounds = [from_arrow(table[f"g{i}"], plan.group[i].type) for i in range(2)]
        for values_of, named in zip(bounds, plan.group, strict=True):
            assert len(list(map(renderer(named.type), values_of))) == table.num_rows  # none raises
        found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in numbers}
        failures: dict[int, str] = {}
        reasons = table["failure"].to_pylist()
        for number, *bound, why in zip(table["a0"].to_pylist(), *bounds, reasons, strict=True):
            found[number].append(tuple(bound))
            if why is not None:
                failures[number] = why
        for number, value in enumerate(values):
            wanted = [row[2:] for row in opened((value, number))]
            assert sorted(found[number], key=str) == sorted(wanted or [(None, None)], key=str), (
                window,
                value,
            )
            assert (number in failures) == (not wanted), (window, value)
            if not wanted:
                told = "is NULL" if value is None else "not within the years"
                assert told in failures[number]


def test_what_a_row_carries_goes_into_each_of_its_windows(spark: SparkSession) -> None:
    sql = (
        "SELECT v, SUM(v) AS s, MAX(window_start) AS x FROM s WHERE v > 1 "
        "GROUP BY v, HOP(number, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
    )
    plan = parse_query(sql, {"number": BIGINT, "v": INT})
    columns: dict[str, list[Any]] = {"number": [7_000, 7_000, None, None], "v": [2, 1, 3, 1]}
    frame = rows_of(spark, plan, columns).withColumns(
        {"position": F.col("v") * 10, "weight": F.lit(-1)}
    )
    made = project(frame, plan, ("position", "weight"))
    assert [tuple(row) for row in made.collect()] == [
        (20, -1, 2, 0, 10_000, 2, 0, None),
        (20, -1, 2, 5_000, 15_000, 2, 5_000, None),
        (
            30,
            -1,
            3,
            None,
            None,
            3,
            None,
            "HOP(number, INTERVAL '5' SECOND, INTERVAL '10' SECOND): the time is NULL",
        ),
    ]


def test_a_row_that_is_kept_is_one_row_still(spark: SparkSession) -> None:
    """What a task reports travels as a row without values, and may not multiply."""
    sql = (
        "SELECT COUNT(*) AS n FROM s GROUP BY HOP(number, INTERVAL '1' SECOND, INTERVAL '9' SECOND)"
    )
    plan = parse_query(sql, {"number": BIGINT})
    frame = rows_of(spark, plan, {"number": [None, 5]}).withColumn(
        "report", F.when(F.col("number").isNull(), F.lit("all is well"))
    )
    made = project(frame, plan, ("report",), keep=F.col("report").isNotNull())
    assert [row[0] for row in made.collect()] == ["all is well"] + [None] * 9


@pytest.mark.parametrize("window", ["TUMBLE", "SESSION"])
def test_buckets_are_those_of_the_windows(spark: SparkSession, window: str) -> None:
    sql = f"SELECT v, COUNT(*) AS n FROM s GROUP BY v, {window}(milli, INTERVAL '1' MINUTE)"
    plan = parse_query(sql, {"milli": timestamp(3), "v": INT})
    values = [-1_000, 0, 1_700_000_000_000_000]
    made = project(rows_of(spark, plan, {"milli": values, "v": [1, 2, 3]}), plan)
    assert plan.window is not None
    opened = window_expander(plan, plan.window)
    keys = [(v, *opened((t, v))[0][2:]) for t, v in zip(values, (1, 2, 3), strict=True)]
    found = [row[0] for row in made.select(bucket_column(plan, 4_096)).collect()]
    assert found == [bucket_of_group(plan, key, 4_096) for key in keys]
    buckets = {bucket_of_group(plan, (1, start, start + 7), 4_096) for start in range(50)}
    assert (len(buckets) == 1) is (window == "SESSION")
