"""GROUPING SETS, ROLLUP and CUBE over random histories, against DuckDB over the live rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.offline.replay import replay

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
    "SELECT c, k, GROUPING(c) AS g, {} FROM t WHERE v > 2 GROUP BY GROUPING SETS ((c, k), ()) "
    "HAVING COUNT(*) < 4",
    "SELECT {}, AVG(v) AS mean, STDDEV_POP(v) AS p, BOOL_OR(v > 1) AS b FROM t WHERE v > 2",
    "SELECT {}, COUNT(*) + 1 AS more, COALESCE(SUM(v), -1) AS s FROM t WHERE v > 2",
]
# Equal sets give equal rows.
EQUAL = [
    "SELECT k, {} FROM t GROUP BY GROUPING SETS ((k), (k), ())",
    "SELECT k, c, GROUPING(k, c) AS id, {} FROM t GROUP BY ROLLUP(k, c), ROLLUP(k)",
    "SELECT {} FROM t WHERE v > 2 GROUP BY GROUPING SETS ((), ())",
]
EMPTY = [each for each in QUERIES if "GROUP BY k, ROLLUP" not in each]


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


def folded(outputs: Iterator[dict[str, Any]], equal: int = 1) -> Counter[tuple[Any, ...]]:
    """The rows that the changelog leaves; each retraction takes back a row that is there."""
    left: Counter[tuple[Any, ...]] = Counter()
    for output in outputs:
        if "op" in output:
            row = tuple(output["row"].values())
            left[row] += 1 if output["op"] in ("+I", "+U") else -1
            assert 0 <= left[row] <= equal
    return +left


@pytest.mark.parametrize(
    ("query", "empty"), [*product(QUERIES + EQUAL, ["none"]), *product(EMPTY + EQUAL, ["row"])]
)
def test_every_set_is_grouped_as_duckdb_groups_it(query: str, empty: str) -> None:
    sql = query.format(RESULTS)
    connection = duckdb.connect()
    for seed in range(4):
        steps, live = history(Random(seed))
        spec = {"name": "sets", "source": {"topic": "t"}, "columns": COLUMNS, "query": sql}
        got = folded(replay({**spec, "empty": empty}, steps), 6 if query in EQUAL else 1)
        columns = list(zip(*live, strict=True)) or [(), (), ()]
        types = (pa.string(), pa.string(), pa.int32())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        connection.register("t", pa.Table.from_arrays(arrays, list(COLUMNS)))
        result = connection.execute(sql)
        count = [name for name, *_ in result.description].index("n")
        wanted = result.fetchall()
        if empty == "none":  # in SQL a group of no rows has a row, of COUNT 0
            wanted = [each for each in wanted if each[count]]
        assert got == Counter(wanted), f"seed {seed}"
