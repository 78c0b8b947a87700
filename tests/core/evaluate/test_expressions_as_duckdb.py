"""Literals, casts and intervals that other engines write, over random rows as DuckDB has them."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.core.plan.tree import Column
from jobs.core.rows.projection import row_projection
from jobs.core.sql.select import parse_query
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import BOOLEAN, DATE, INT, STRING, TIME, Kind, SqlType, timestamp

COLUMNS: dict[str, SqlType] = {
    "s": STRING,
    "n": INT,
    "b": BOOLEAN,
    "d": DATE,
    "tm": TIME,
    "t": timestamp(3),
    "u": timestamp(6),
    "z": timestamp(6, local_zone=True),
}
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
POOLS: dict[Kind, list[Any]] = {
    Kind.STRING: ["", "a", "abc", "abcdef", "é\U0001f600xyz", "  a "],
    Kind.INT: [-3, 0, 1, 2, 12345],
    Kind.BOOLEAN: [True, False],
    Kind.DATE: [-1, 0, 20_483, 20_484],
    Kind.TIME: ["00:00:00", "08:29:59.9", "08:30:00", "08:30:00.5", "23:59:59"],
    Kind.TIMESTAMP: [
        0,
        20_483 * _DAY,
        20_483 * _DAY + _HOUR,
        20_483 * _DAY + 500_000,
        20_484 * _DAY,
    ],
    Kind.TIMESTAMP_LTZ: [0, 20_483 * _DAY, 20_482 * _DAY + 19 * _HOUR, 20_484 * _DAY],
}
# What both take, and where DuckDB writes it in another way, that.
EXPRESSIONS = [
    ("t > '2026-01-30 00:00:00'", ""),
    ("t >= '2026-01-30 00:00:00.5'", ""),
    ("'2026-01-30' < t", ""),
    ("u BETWEEN '2026-01-30' AND '2026-01-30 01:00:00'", ""),
    ("z = '2026-01-30 00:00:00+05:00'", ""),
    ("z <> '2026-01-30 00:00:00Z'", ""),
    (
        "z < TIMESTAMP_LTZ '2026-01-29 19:00:00.000001-00:30'",
        "z < TIMESTAMPTZ '2026-01-29 19:00:00.000001-00:30'",
    ),
    ("d > '2026-01-30'", ""),
    ("d IN ('2026-01-30', NULL)", ""),
    ("d IS DISTINCT FROM '2026-01-30'", ""),
    ("CASE d WHEN '2026-01-30' THEN n END", ""),
    ("COALESCE(d, '1969-12-31')", ""),
    ("tm > '08:30:00'", ""),
    ("tm BETWEEN '08:29:59.90' AND TIME '08:30:00.5'", ""),
    ("tm IN ('08:30:00', '23:59:59')", ""),
    ("NULLIF(tm, '08:30:00') IS NULL", ""),
    ("CASE WHEN b THEN NULL END IS NULL", ""),
    ("CASE WHEN b THEN n ELSE CASE WHEN n > 1 THEN NULL END END", ""),
    ("COALESCE(NULL, CASE WHEN b THEN NULL END, n)", ""),
    ("LEN(s)", ""),
    ("CAST(s AS VARCHAR(3))", "LEFT(s, 3)"),
    ("CAST(n AS VARCHAR(3))", "LEFT(CAST(n AS VARCHAR), 3)"),
    ("CAST(s AS CHAR(4))", "RPAD(s, 4, ' ')"),
    ("t - u > INTERVAL '1' HOUR", ""),
    ("INTERVAL '500' MILLISECOND >= u - t", ""),
    ("t - u BETWEEN INTERVAL '-1' DAY AND INTERVAL '1' DAY", ""),
    ("t + n * INTERVAL '1' DAY > u", ""),
    ("t - INTERVAL '2' HOUR * n", ""),
    ("EXTRACT(EPOCH FROM t)", "TRUNC(EXTRACT(EPOCH FROM t))"),
    ("EXTRACT(EPOCH FROM (t - u))", "TRUNC(EXTRACT(EPOCH FROM (t - u)))"),
    ("EXTRACT(EPOCH FROM d)", ""),
]


@pytest.fixture(scope="module")
def rows() -> list[tuple[Any, ...]]:
    rng = random.Random(47)
    pools = [[*POOLS[kind.kind], None] for kind in COLUMNS.values()]
    return [tuple(rng.choice(pool) for pool in pools) for _ in range(400)]


@pytest.fixture(scope="module")
def live(rows: list[tuple[Any, ...]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    arrays = [
        to_arrow(values, kind)
        for values, kind in zip(zip(*rows, strict=True), COLUMNS.values(), strict=True)
    ]
    connection.register("held", pa.Table.from_arrays(arrays, names=list(COLUMNS)))
    connection.execute(
        "CREATE TABLE live AS SELECT row_number() OVER () AS i, * REPLACE (CAST(tm AS TIME) AS tm) "
        "FROM held"
    )
    return connection


@pytest.mark.parametrize(("ours", "theirs"), EXPRESSIONS, ids=[case[0] for case in EXPRESSIONS])
def test_an_expression_has_the_values_of_duckdb(
    ours: str, theirs: str, rows: list[tuple[Any, ...]], live: duckdb.DuckDBPyConnection
) -> None:
    plan = parse_query(f"SELECT {ours} AS x FROM t GROUP BY {ours}", COLUMNS)
    project = row_projection(plan)
    assert project is not None
    places = [list(COLUMNS).index(column.name) for column in plan.used]
    projected = (project(tuple(row[place] for place in places)) for row in rows)
    found = [each[0][0] for each in projected if each is not None]
    (kind,) = [named.type for named in plan.group]
    answer = live.sql(f"SELECT {theirs or ours} AS x FROM live ORDER BY i").to_arrow_table()["x"]
    assert found == from_arrow(answer.cast(arrow_type(kind)), kind)
    assert len(set(found)) > 1 or ours.startswith("CASE WHEN b THEN NULL")


def test_the_rows_have_every_type_of_column() -> None:
    assert {kind.kind for kind in COLUMNS.values()} == set(POOLS)
    assert Column("t", COLUMNS["t"]) in parse_query("SELECT MAX(t) FROM t", COLUMNS).used
