"""GROUPING SETS, ROLLUP and CUBE over random histories, against DuckDB over the live rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from jobs.core.sql.select import parse_query
from jobs.offline.replay import replay
from schemas.types.sql_types import BIGINT, STRING
from tests.support.spark_columns.expressions import project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = {"k": "STRING", "c": "STRING", "v": "INT"}
Live = list[tuple[str | None, str | None, int | None]]

# What is selected besides the key, in words that both take.
RESULTS = "COUNT(*) AS n, COUNT(v) AS some, MAX(v) AS top, MIN(v) AS low"
QUERIES = [
    "SELECT k, c, GROUPING(k, c) AS id, {} FROM t GROUP BY ROLLUP(k, c)",
    "SELECT k, c, GROUPING(k) AS gk, GROUPING(c) AS gc, {} FROM t GROUP BY CUBE(k, c)",
    "SELECT k, c, GROUPING(k, c) AS id, {} FROM t GROUP BY GROUPING SETS ((k, c), c, ())",
    "SELECT k, UPPER(c) AS big, GROUPING(c) AS id, {} FROM t WHERE v > 1 GROUP BY k, ROLLUP(c)",
    "SELECT c, GROUPING(c) AS id, {} FROM t GROUP BY ROLLUP(c) HAVING COUNT(*) > 1",
]


def history(random: Random) -> tuple[list[dict[str, Any]], Live]:
    """Steps, and the rows that are live after them."""
    live: Live = []
    steps: list[dict[str, Any]] = []
    for _ in range(random.randint(20, 60)):
        if live and random.random() < 0.4:
            op, row = "-D", live.pop(random.randrange(len(live)))
        else:
            row = (
                random.choice(("a", "b", None)),
                random.choice(("x", None)),
                random.choice((1, 2, 3, None)),
            )
            op = "+I"
            live.append(row)
        steps.append({"op": op, "row": dict(zip(COLUMNS, map(_written, row), strict=True))})
        if random.random() < 0.2:
            steps.append({"flush": True})
    return steps, live


def _written(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def folded(outputs: Iterator[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The rows that the changelog leaves; each retraction takes back a row that is there."""
    left: Counter[tuple[Any, ...]] = Counter()
    for output in outputs:
        if "op" in output:
            row = tuple(output["row"].values())
            left[row] += 1 if output["op"] in ("+I", "+U") else -1
            assert left[row] in (0, 1)
    return +left


def test_sets_and_windows_open_a_row_in_spark_as_in_the_core(spark: SparkSession) -> None:
    columns = {"k": STRING, "t": BIGINT}
    sql = (
        "SELECT k, window_start, GROUPING(k) AS g, COUNT(*) AS n FROM s GROUP BY "
        "HOP(t, INTERVAL '1' SECOND, INTERVAL '2' SECOND), ROLLUP(k)"
    )
    plan = parse_query(sql, columns)
    assert (plan.grouping_sets, plan.copies_per_row) == (2, 4)
    known = spark.createDataFrame([("a", 1_500), ("b", 0), (None, 7)], "k string, t long")
    names = [named.name for named in plan.group]
    projected = project(known, plan).toDF(*names, "failure").collect()
    found = Counter(tuple(row[name] for name in ("k", "window_start", "g")) for row in projected)
    assert found == Counter(
        (None if without else key, start, without)
        for key, starts in (("a", (0, 1_000)), ("b", (-1_000, 0)), (None, (-1_000, 0)))
        for start in starts
        for without in (0, 1)
    )


def test_what_is_no_row_of_the_source_stays_one(spark: SparkSession) -> None:
    plan = parse_query("SELECT k, COUNT(*) AS n FROM s GROUP BY CUBE(k)", {"k": STRING})
    known = spark.createDataFrame([("a", None), (None, "report")], "k string, told string")
    kept = project(known, plan, ["told"], keep=known["told"].isNotNull())
    assert Counter(row["told"] for row in kept.collect()) == {None: 2, "report": 1}


@pytest.mark.parametrize("query", QUERIES)
def test_every_set_is_grouped_as_duckdb_groups_it(query: str, spark: object) -> None:
    sql = query.format(RESULTS)
    connection = duckdb.connect()
    for seed in range(4):
        steps, live = history(Random(seed))
        spec = {"name": "sets", "source": {"topic": "t"}, "columns": COLUMNS, "query": sql}
        got = folded(replay(spec, steps))
        columns = list(zip(*live, strict=True)) or [(), (), ()]
        types = (pa.string(), pa.string(), pa.int32())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        connection.register("t", pa.Table.from_arrays(arrays, list(COLUMNS)))
        wanted = connection.execute(sql).fetchall()
        if not live:  # the empty set of nothing: a row of COUNT 0 in SQL, none for a job
            wanted = []
        assert got == Counter(wanted), f"seed {seed}"
