"""The same rows in a real PostgreSQL: psql and psycopg show both alike."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql as composing

from jobs.core.sql.select import parse_query
from jobs.edge.process.job_directory import JobDirectory
from schemas.spec.file import load_spec, spec_text
from tests.support.service.postgres import make_url
from tests.support.service.real_postgres import needs_postgres, run_postgres
from tests.support.service.served import Served, eventually
from tests.support.tables.folded_table import FoldedTable

pytestmark = needs_postgres()

TYPES = """id INT;b BOOLEAN;si SMALLINT;bi BIGINT;dc DECIMAL(20, 5);s STRING;dt DATE;
ts TIMESTAMP(6);tz TIMESTAMP_LTZ(6);bin BINARY"""
GROUP: dict[str, str] = dict(each.split(maxsplit=1) for each in TYPES.split(";"))
ARGUMENTS = {"d": "DOUBLE", "f": "FLOAT", "v": "INT", "w": "STRING"}
QUERY = (
    f"SELECT {', '.join(GROUP)}, MAX(d) AS d, MAX(f) AS f, ARRAY_AGG(v) AS vs, ARRAY_AGG(w) AS ws, "
    f"COUNT(*) AS n FROM t GROUP BY {', '.join(GROUP)}"
)
# The table as PostgreSQL would have it, column for column.
DEFINED = """\
CREATE TABLE items (id integer, b boolean, si smallint, bi bigint, dc numeric(20, 5), s text,
  dt date, ts timestamp, tz timestamptz, bin bytea, d double precision, f real, vs integer[],
  ws text[], n bigint)
"""
NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 500_000)
UTC = dt.UTC
ROWS: list[list[Any]] = [
    [1, True, -(2**15), 2**63 - 1, Decimal("12345.67890"), "plain", dt.date(1999, 12, 31), NOON,
     NOON.replace(tzinfo=UTC), b"\x00\xff", 1.0, 0.5, [1, 2], ["a", "b"], 2],
    [2, False, 0, -1, Decimal("-0.00001"), "", dt.date(1, 1, 1), dt.datetime(1, 1, 1),
     dt.datetime(1970, 1, 1, tzinfo=UTC), b"", 1e15, 1e6, [7], ['x y"\\'], 1],
    [3, None, None, None, None, None, None, None, None, None, None, None, [None], [None], 1],
    [4, True, 1, 10**15, Decimal("99999999999999.99999"), "ü {a,b}\n\ttab", dt.date(9999, 12, 31),
     dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 7, 1, 0, 0, 0, 1, UTC),
     b"'\\", -1.5e-7, 1.1, [-1, 0, 5, 6, 7], ["", "NULL", "c,d", "null", "{}"], 5],
    [5, False, 2**15 - 1, 0, Decimal("100.00000"), "NULL", dt.date(2024, 2, 29),
     dt.datetime(2024, 2, 29, 1, 2, 3, 100), dt.datetime(1, 1, 1, tzinfo=UTC), b"abc",
     123456789.125, 16777216.0, [3], ["é"], 1],
]  # fmt: skip
STATEMENTS = [
    "SELECT * FROM items ORDER BY id",
    "SELECT id, n FROM public.items WHERE b AND dc > 1 ORDER BY id",
    "SELECT s, length(s)::int AS n, upper(s) AS u FROM items WHERE s IS NOT NULL ORDER BY id",
    "SELECT count(*) AS n, count(s) AS s, max(ts) AS t, min(dt) AS d, max(bi) AS b FROM items",
    "SELECT max(d) AS d, min(f) AS f, sum(d) AS s FROM items WHERE id < 3",
    "SELECT id FROM items WHERE ts BETWEEN '2024-01-01' AND '2026-12-31T00:00:00Z' ORDER BY ts",
    "SELECT id, CASE WHEN b THEN 'yes' ELSE 'no' END AS c FROM items ORDER BY dc",
    "SELECT extract(year FROM dt)::int AS y, date_trunc('day', ts) AS d FROM items ORDER BY id",
    "SELECT a.id, b.s FROM items a JOIN items b ON b.id = a.id + 1 ORDER BY a.id",
    "SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM items WHERE vs[1] > 0 ORDER BY 1",
    "SELECT dc::text AS dc, bi::text AS bi, b::text AS b, ts::text AS ts FROM items ORDER BY id",
    "SELECT true AS a, 1 AS b, 'x'::text AS c, 1.50::numeric(5, 2) AS d, DATE '2026-01-01' AS e",
    "SELECT TIMESTAMP '2026-01-01 00:00:00.120' AS a, TIME '01:02:03.040' AS b",
    "SELECT INTERVAL '1 year 2 months 3 days 04:05:06.7' AS a, INTERVAL '-1 day' AS b",
    "SELECT 'Infinity'::float8 AS a, 'NaN'::float8 AS b, '-Infinity'::real AS c, -0.0::float8 AS d",
    "SELECT coalesce(s, 'none') AS s, nullif(id, 2) AS i FROM items ORDER BY id",
    "SELECT string_agg(s, ',' ORDER BY id) AS s, array_agg(id ORDER BY id) AS a FROM items",
    "WITH w AS (SELECT id FROM items) SELECT * FROM w UNION ALL SELECT 9 ORDER BY 1 LIMIT 3",
]
# docs/clients.md lists these: DuckDB's dialect has another result or another type.
OTHERWISE = {
    "SELECT 7 / 2 AS q": ("3", "3.5"),
    "SELECT id FROM items ORDER BY s DESC LIMIT 1": ("3", "4"),
    "SELECT sum(id) AS s FROM items": ("15", "15"),
    "SELECT round(avg(id), 1) AS a FROM items": ("3.0", "3"),
}


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    with run_postgres() as address:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(DEFINED)
            insert = f"INSERT INTO items VALUES ({', '.join(['%s'] * len(ROWS[0]))})"
            connection.cursor().executemany(insert, ROWS)
        yield address


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("served")
    document = {"name": "items", "source": {"topic": "t"}, "query": QUERY}
    spec = load_spec({**document, "columns": {**GROUP, **ARGUMENTS}})
    place = JobDirectory(data, "items")
    place.home.mkdir(parents=True)
    place.spec.write_text(spec_text(spec))
    plan = parse_query(spec.query, spec.columns)
    FoldedTable(place.own_table, plan).epoch(make_rows())
    with Served.start(data, "--pg-port", "0") as served:
        with served.client() as client:
            assert client.put("/v1/jobs/items", json=spec.document()).status_code == 201
        eventually(lambda: served.job("items")["epoch"] == 1)
        yield make_url(served)


def make_rows() -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], int]]:
    """Yield rows whose groups and results are ROWS: one for each item of their arrays."""
    names = [*GROUP, "d", "f", "vs", "ws", "n"]
    for row in ROWS:
        found = dict(zip(names, row, strict=True))
        key = tuple(map(to_stored, (found[name] for name in GROUP)))
        for number in range(found["n"]):
            given = (found["d"], found["f"], (found["vs"][number],), (found["ws"][number],))
            yield key, given, 1


def to_stored(value: Any) -> Any:
    """Return a value as retally has it inside."""
    epoch = dt.datetime(1970, 1, 1)
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - epoch) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - epoch.date()).days
    return int(value.scaleb(5)) if isinstance(value, Decimal) else value


def show(address: str, *commands: str) -> str:
    words = [word for command in commands for word in ("-c", command)]
    command = ["psql", "-X", "-A", address, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def read(address: str, statement: str, binary: bool) -> tuple[list[Any], list[Any]]:
    with psycopg.connect(address) as connection:
        cursor = connection.execute(composing.SQL(statement), binary=binary)
        columns = [
            (each.name, each.type_code, each.internal_size, each.precision, each.scale)
            for each in cursor.description or ()
        ]
        return columns, cursor.fetchall()


def test_psql_shows_the_same(ours: str, real: str) -> None:
    assert show(ours, "\\d items") == show(real, "\\d items")
    assert show(ours, *STATEMENTS) == show(real, *STATEMENTS)
    described = (f"{statement} \\gdesc" for statement in STATEMENTS)
    text = "\n".join(described)
    assert describe(ours, text) == describe(real, text)


def describe(address: str, text: str) -> str:
    command = ["psql", "-X", "-A", address]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_psycopg_reads_the_same(ours: str, real: str, statement: str, binary: bool) -> None:
    found, expected = read(ours, statement, binary), read(real, statement, binary)
    assert repr(found) == repr(expected)  # NaN and -0.0, too


@pytest.mark.parametrize("statement", OTHERWISE)
def test_what_the_dialect_does_otherwise(ours: str, real: str, statement: str) -> None:
    shown = (show(address, statement).splitlines()[1] for address in (real, ours))
    assert tuple(shown) == OTHERWISE[statement]


NUMBERS = st.floats(allow_nan=False) | st.floats(1e4, 1e18) | st.floats(-1e18, -1e13)
SPANS = st.tuples(
    st.integers(-30, 30), st.integers(-40, 40), st.integers(-(10**11), 10**11) | st.just(0)
)


@settings(max_examples=20, deadline=None)
@given(numbers=st.lists(NUMBERS, min_size=30), spans=st.lists(SPANS, min_size=20))
def test_numbers_and_intervals_have_the_same_text(
    ours: str, real: str, numbers: list[float], spans: list[tuple[int, int, int]]
) -> None:
    pieces = [f"'{number!r}'::float8" for number in numbers]
    pieces += [f"'{number!r}'::float4" for number in numbers if 1e-30 < abs(number) < 1e30]
    for months, days, micros in spans:
        pieces.append(f"INTERVAL '{months} months {days} days {micros} microseconds'")
    statement = f"SELECT {', '.join(pieces)}"

    def texts(address: str) -> list[bytes | None]:
        with psycopg.connect(address) as connection:
            result = connection.execute(statement).pgresult
            assert result is not None
            return [result.get_value(0, column) for column in range(result.nfields)]

    for found, expected in zip(texts(ours), texts(real), strict=True):
        assert found == expected or is_as_short(found or b"", expected or b"")


def is_as_short(found: bytes, expected: bytes) -> bool:
    """Return whether both are one number that has no digits after its point.

    PostgreSQL does not take the shortest text there if it is halfway to the next number.
    """
    return float(found) == float(expected) and abs(float(found)) > 2**53 and b"e+" in found
