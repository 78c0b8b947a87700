"""Judge random histories by recomputing their results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from jobs.core.fold.state import Key
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row, Value
from jobs.core.values.json_values import parse
from schemas.types.sql_types import SqlType
from tests.support.histories.products import COLUMNS

TYPES = {name: SqlType.parse(text) for name, text in COLUMNS.items()}
# A query of ours, its key columns, its results and its HAVING as DuckDB says them; prices are in
# cents there.
AVERAGE_CNT = "CAST(SUM(cnt) // COUNT(cnt) AS INT)"
AVERAGE_PRICE = (
    "CAST(SIGN(SUM(price)) * ((2 * ABS(SUM(price)) * 10000 + COUNT(price)) // (2 * COUNT(price))) "
    "AS HUGEINT)"
)
SUM_CNT = "CASE WHEN SUM(cnt) BETWEEN -2147483648 AND 2147483647 THEN SUM(cnt) END"
QUERIES: list[tuple[str, ...]] = [
    (
        "SELECT name, COUNT(*) AS n, COUNT(cnt) AS some, SUM(cnt) AS s, AVG(cnt) AS mean, "
        "MIN(cnt) AS low, MAX(cnt) AS top FROM product GROUP BY name",
        "name",
        f"COUNT(*), COUNT(cnt), {SUM_CNT}, {AVERAGE_CNT}, MIN(cnt), MAX(cnt)",
    ),
    (
        "SELECT region, name, SUM(price) AS s, MAX(note) AS last_note, MAX(price) AS top, "
        "MIN(weight) AS light, SUM(weight) AS w, MIN(note) AS first_note, AVG(weight) AS wm, "
        "AVG(price) AS mean, MIN(price) AS low FROM product GROUP BY region, name",
        "region, name",
        "SUM(price), MAX(note), MAX(price), MIN(weight), SUM(weight), MIN(note), AVG(weight), "
        f"{AVERAGE_PRICE}, MIN(price)",
    ),
    (
        "SELECT COUNT(*) AS n, MAX(note) AS last_note, MIN(cnt) AS low, COUNT(weight) AS w "
        "FROM product",
        "",
        "COUNT(*), MAX(note), MIN(cnt), COUNT(weight)",
    ),
    (
        "SELECT region, COUNT(*) AS n, CAST(MAX(cnt) AS BIGINT) - MIN(cnt) AS spread, "
        "CASE WHEN COUNT(weight) > 2 THEN 'many' ELSE region END AS label FROM product "
        "GROUP BY region HAVING MAX(cnt) > MIN(cnt) OR COUNT(*) = 1",
        "region",
        "COUNT(*), CAST(MAX(cnt) AS BIGINT) - MIN(cnt), "
        "CASE WHEN COUNT(weight) > 2 THEN 'many' ELSE region END",
        "MAX(cnt) > MIN(cnt) OR COUNT(*) = 1",
    ),
]
PLANS = [parse_query(sql, TYPES) for sql, *_ in QUERIES]
ARROW = pa.schema(
    [
        ("run", pa.int32()),
        ("bundle", pa.int32()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("region", pa.string()),
        ("cnt", pa.int32()),
        ("price", pa.int64()),
        ("weight", pa.float64()),
        ("note", pa.string()),
    ]
)
Table = dict[Key, Row]


@dataclass(slots=True)
class Judge:
    """Collects the live rows of many bundles and asks DuckDB for all of their results at once."""

    query: int
    claims: dict[tuple[int, int], Table] = field(default_factory=dict)
    rows: list[tuple[Value, ...]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def begin(self, name: str) -> int:
        self.runs.append(name)
        return len(self.runs) - 1

    def claim(self, run: int, bundle: int, table: Table, live: Iterable[Row]) -> None:
        self.claims[run, bundle] = dict(table)
        self.rows += [(run, bundle, *row) for row in live]

    def decide(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Compare all results; return the number of compared bundles."""
        _, group, results, *having = QUERIES[self.query]
        key_columns = len(PLANS[self.query].group)
        columns = list(zip(*self.rows, strict=True))
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, ARROW, strict=True)]
        connection.register("live", pa.Table.from_arrays(arrays, schema=ARROW))
        by = f"run, bundle{', ' if group else ''}{group}"
        wanted: dict[tuple[int, int], Table] = {place: {} for place in self.claims}
        sql = f"SELECT {by}, {results} FROM live GROUP BY {by} HAVING {' '.join(having) or 'TRUE'}"
        for run, bundle, *values in connection.execute(sql).fetchall():
            wanted[run, bundle][tuple(values[:key_columns])] = tuple(values[key_columns:])
        for (run, bundle), table in self.claims.items():
            assert table == wanted[run, bundle], f"{self.runs[run]}, after bundle {bundle}"
        return len(self.claims)


def internal(plan: Plan, results: dict[tuple[str, ...], dict[str, Any]]) -> dict[Key, Row]:
    """Result rows as the judge says them: values as retally holds them in memory."""
    return {
        tuple(parse(row[named.name], named.type) for named in plan.group): tuple(
            parse(row[name], kind) for name, kind in plan.results
        )
        for row in results.values()
    }
