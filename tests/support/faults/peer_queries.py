"""The queries that both Flink and retally run, and their correct results by DuckDB.

All three run the same text, except AVG, which is a DOUBLE in DuckDB. With HAVING the changelogs may
differ, and both are correct: Flink filters each changelog row by itself, so that a group may start
with +U and end with -U.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

import duckdb
import pyarrow as pa

from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from schemas.types.sql_types import Kind, SqlType
from tests.support.faults.peer_histories import PEER_COLUMNS, CanalRow

Value = int | float | Decimal | str | None
Values = tuple[Value, ...]

_TYPES = {name: SqlType.parse(kind) for name, kind in PEER_COLUMNS.items()}
_CENTS = "CAST(SUM(price) * 100 AS HUGEINT)"
_MILLIONTHS = f"SIGN({_CENTS}) * ((2 * ABS({_CENTS}) * 10000 + COUNT(price)) // (2 * COUNT(price)))"
_AVERAGES = {
    "AVG(cnt)": "CAST(SUM(cnt) // COUNT(cnt) AS INT)",
    "AVG(price)": f"CAST({_MILLIONTHS} AS DECIMAL(30, 0)) * CAST(0.000001 AS DECIMAL(6, 6))",
}


@dataclass(frozen=True, slots=True)
class PeerQuery:
    name: str  # of the sink, of the job
    sql: str

    @property
    def plan(self) -> Plan:
        return parse_query(self.sql, _TYPES)

    @property
    def keys(self) -> int:
        """The number of key columns; they are the first columns of a result."""
        return len(self.plan.group)

    @property
    def results(self) -> dict[str, SqlType]:
        """The columns of a result with their types, in query order."""
        plan = self.plan
        types = {each.name: each.type for each in plan.group} | dict(plan.results)
        return {name: types[name] for name in plan.output}

    @property
    def reader(self) -> Callable[[Iterable[object]], Values]:
        """A function that makes the values of a row comparable, from numbers or from text."""
        readers = [_reader(kind) for kind in self.results.values()]
        return lambda row: tuple(read(each) for read, each in zip(readers, row, strict=True))

    @property
    def having(self) -> bool:
        return self.plan.having is not None


QUERIES = (
    PeerQuery(
        "counts",
        "SELECT history, name, COUNT(*) AS n, COUNT(cnt) AS of_cnt, COUNT(note) AS of_note, "
        "COUNT(sold_on) AS of_sold_on FROM product GROUP BY history, name",
    ),
    PeerQuery(
        "sums",
        "SELECT history, name, SUM(CAST(cnt AS BIGINT)) AS total, AVG(cnt) AS mean, "
        "SUM(price) AS worth, AVG(price) AS mean_price, SUM(weight) AS heavy "
        "FROM product GROUP BY history, name",
    ),
    PeerQuery(
        "extremes",
        "SELECT history, region, MIN(cnt) AS cnt_low, MAX(cnt) AS cnt_top, "
        "MIN(price) AS price_low, MAX(price) AS price_top, "
        "MIN(note) AS note_low, MAX(note) AS note_top, "
        "MIN(sold_on) AS sold_low, MAX(sold_on) AS sold_top FROM product GROUP BY history, region",
    ),
    PeerQuery(
        "distinct_values",
        "SELECT history, region, COUNT(DISTINCT note) AS notes, COUNT(DISTINCT cnt) AS cnts, "
        "SUM(DISTINCT CAST(cnt AS BIGINT)) AS of_cnts, SUM(DISTINCT price) AS of_prices, "
        "COUNT(DISTINCT sold_on) AS sold FROM product GROUP BY history, region",
    ),
    PeerQuery(
        "two_columns",
        "SELECT history, region, name, COUNT(*) AS n, MAX(cnt) AS top, AVG(weight) AS mean, "
        "MIN(note) AS low FROM product GROUP BY history, region, name",
    ),
    PeerQuery(
        "numbers_and_dates",
        "SELECT history, price, sold_on, COUNT(*) AS n, MIN(name) AS low, MAX(cnt) AS top "
        "FROM product GROUP BY history, price, sold_on",
    ),
    PeerQuery(
        "expressions",
        "SELECT history, COALESCE(region, 'nowhere') AS place, cnt > 0 AS sold, COUNT(*) AS n, "
        "SUM(CAST(cnt AS BIGINT) * 2) AS twice, MAX(UPPER(note)) AS top "
        "FROM product GROUP BY history, COALESCE(region, 'nowhere'), cnt > 0",
    ),
    PeerQuery(
        "filtered_rows",
        "SELECT history, region, COUNT(*) AS n, SUM(price) AS worth, MIN(note) AS low, "
        "COUNT(DISTINCT name) AS names FROM product "
        "WHERE cnt > 0 AND name IS NOT NULL GROUP BY history, region",
    ),
    PeerQuery(
        "filtered_values",
        "SELECT history, region, COUNT(*) FILTER (WHERE cnt > 0) AS n, "
        "SUM(price) FILTER (WHERE name = 'ant') AS ants, "
        "MAX(note) FILTER (WHERE weight IS NULL) AS top, "
        "COUNT(DISTINCT note) FILTER (WHERE cnt IS NOT NULL) AS notes, "
        "SUM(DISTINCT price) FILTER (WHERE cnt < 2) AS few, MIN(cnt) AS low "
        "FROM product GROUP BY history, region",
    ),
    PeerQuery(
        "filtered_groups",
        "SELECT history, name, COUNT(*) AS n, MAX(price) AS top FROM product "
        "GROUP BY history, name HAVING COUNT(*) > 2 OR MAX(price) > 5",
    ),
    PeerQuery(
        "whole_histories",
        "SELECT history, COUNT(*) AS n, COUNT(DISTINCT name) AS names, MIN(weight) AS light, "
        "MAX(name) AS top, AVG(cnt) AS mean FROM product GROUP BY history",
    ),
    PeerQuery(
        "no_groups",
        "SELECT COUNT(*) AS n, COUNT(DISTINCT history) AS histories, MAX(price) AS top, "
        "SUM(weight) AS heavy FROM product",
    ),
)


class Truth:
    """The correct results over the live rows at the end, by DuckDB."""

    def __init__(self, live: Iterable[CanalRow]) -> None:
        rows = list(live)
        columns = {name: [row[name] for row in rows] for name in PEER_COLUMNS}
        declared = ", ".join(
            f"{name} {'VARCHAR' if kind == 'STRING' else kind}"
            for name, kind in PEER_COLUMNS.items()
        )
        self._database = duckdb.connect()
        self._database.execute(f"CREATE TABLE product ({declared})")
        schema = pa.schema([(name, pa.string()) for name in PEER_COLUMNS])
        self._database.register("live", pa.table(columns, schema=schema))
        self._database.execute("INSERT INTO product SELECT * FROM live")

    def table(self, query: PeerQuery) -> set[Values]:
        """Return all rows of a query's result."""
        sql = query.sql
        for ours, theirs in _AVERAGES.items():
            sql = sql.replace(ours, theirs)
        return set(map(query.reader, self._database.execute(sql).fetchall()))


def _reader(kind: SqlType) -> Callable[[object], Value]:
    as_value: Callable[[str], Value] = str
    if kind.integer:
        as_value = int
    elif kind.floating:
        as_value = float
    elif kind.kind is Kind.DECIMAL:
        as_value = Decimal
    elif kind.kind is Kind.BOOLEAN:
        as_value = str.lower
    return lambda value: None if value is None else as_value(str(value))
