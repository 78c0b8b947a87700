"""Drivers and libraries read results: psycopg, SQLAlchemy's reflection, pandas."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import psycopg
import pytest
import sqlalchemy as sa

from tests.support.service.postgres import make_url, serve_items
from tests.support.service.served import Served

VALUES: list[Any] = [
    1, 2**40, -1.5, float("inf"), "ü'\"\\", True, None, Decimal("12345.678900"),
    Decimal("-0.00001"), Decimal("100000000"), dt.date(1999, 12, 31),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.time(1, 2, 3), dt.timedelta(days=1, seconds=3),
    b"\x00\xff", [1, 2, None], [Decimal("1.5")], [True, False],
]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve_items(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def connection(served: Served) -> Iterator[psycopg.Connection]:
    with psycopg.connect(make_url(served)) as connection:
        yield connection


@pytest.fixture(scope="module")
def engine(served: Served) -> Iterator[sa.Engine]:
    engine = sa.create_engine(make_url(served, "postgresql+psycopg"))
    yield engine
    engine.dispose()


def read(connection: psycopg.Connection, sql: str, given: Any = None) -> list[Any]:
    return connection.execute(sql, given).fetchall()


@pytest.mark.parametrize("binary", [False, True])
def test_values_come_back_as_they_were_sent(connection: psycopg.Connection, binary: bool) -> None:
    for value in VALUES:
        (found,) = connection.execute("SELECT %s", (value,), binary=binary).fetchone() or ()
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("binary", [False, True])
def test_values_of_duckdb_are_those_of_postgresql(
    connection: psycopg.Connection, binary: bool
) -> None:
    for sql, value in (
        ("1::TINYINT", 1),
        ("1.1::FLOAT", pytest.approx(1.1)),
        ("18446744073709551615::UBIGINT", Decimal(2**64 - 1)),
        ("-0.05::DECIMAL(10, 3)", Decimal("-0.050")),
        ("INTERVAL '2 days 3.5 seconds'", dt.timedelta(days=2, seconds=3.5)),
        ("['a b', NULL, 'NULL', 'c\"\\', '']", ["a b", None, "NULL", 'c"\\', ""]),
        ("[1.5, NULL]", [Decimal("1.5"), None]),
        ("[]::INTEGER[]", []),
        ("{'a': [1], 'b': DATE '2026-01-01'}", {"a": [1], "b": "2026-01-01"}),
        ("MAP {'a': 1}", {"a": 1}),
        ("[[1], [2, 3]]", [[1], [2, 3]]),
        ("TIMESTAMP_NS '2026-01-01 00:00:00.123456'", dt.datetime(2026, 1, 1, 0, 0, 0, 123456)),
        ("TIMESTAMPTZ '2026-01-01 00:00:00+02'", dt.datetime(2025, 12, 31, 22, tzinfo=dt.UTC)),
    ):
        cursor = connection.execute(f"SELECT {sql}", binary=binary)
        assert cursor.fetchone() == (value,), sql


def test_parameters_meet_columns(connection: psycopg.Connection) -> None:
    for _ in range(7):  # from the sixth time on the statement is prepared
        assert read(connection, "SELECT total FROM items WHERE name = %s", ("b",)) == [(2,)]
    sql = "SELECT name FROM items WHERE name = ANY(%s) ORDER BY name"
    assert read(connection, sql, (["a", "b"],)) == [("a",), ("b",)]
    assert read(connection, "SELECT name FROM items WHERE top = ANY(%s)", ([1, 9],)) == [("a",)]
    assert read(connection, "SELECT top FROM items WHERE name IS NULL AND top > %s", ("3",)) == [
        (4,)
    ]
    assert read(connection, "SELECT %s AS a, '%%s -- $9' AS b", ("x",)) == [("x", "%s -- $9")]


def test_mistakes_have_their_sqlstate(connection: psycopg.Connection) -> None:
    connection.autocommit = True
    for sql, kind in (
        ("SELECT nope FROM items", psycopg.errors.UndefinedColumn),
        ("SELECT * FROM nope", psycopg.errors.UndefinedTable),
        ("SELEC 1", psycopg.errors.SyntaxError),
        ("SELECT nope(1)", psycopg.errors.UndefinedFunction),
        ("SELECT 'x'::INT", psycopg.errors.InvalidTextRepresentation),
        ("DELETE FROM items", psycopg.errors.ReadOnlySqlTransaction),
        ("SELECT * FROM range(200000)", psycopg.errors.ProgramLimitExceeded),
        ("COPY items TO STDOUT", psycopg.errors.ReadOnlySqlTransaction),
    ):
        with pytest.raises(kind):
            connection.execute(sql)
    with pytest.raises(psycopg.errors.UndefinedTable, match="the jobs are items"):
        connection.execute("SELECT * FROM itmes")


def test_a_cursor_reads_in_portions(connection: psycopg.Connection) -> None:
    with connection.cursor(name="mine") as cursor:
        cursor.itersize = 2
        cursor.execute("SELECT n FROM range(5) AS r(n) WHERE n >= %s", (1,))
        assert [row[0] for row in cursor] == [1, 2, 3, 4]
    assert [row[0] for row in connection.cursor().stream("SELECT n FROM range(3) AS r(n)")] == [
        0,
        1,
        2,
    ]


def test_statements_are_sent_in_one_go(connection: psycopg.Connection) -> None:
    with connection.pipeline():
        first, second = connection.execute("SELECT 1"), connection.execute("SELECT 2")
    assert (first.fetchone(), second.fetchone()) == ((1,), (2,))


def test_a_large_answer_arrives_whole(connection: psycopg.Connection) -> None:
    rows = read(connection, "SELECT n, repeat('x', 100) FROM range(50000) AS r(n) ORDER BY n")
    assert len(rows) == 50_000 and rows[-1] == (49_999, "x" * 100)


def test_reflection_finds_jobs_and_columns(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["items"] == inspector.get_table_names(schema="public")
    assert inspector.get_view_names() == []
    assert inspector.has_table("items") and not inspector.has_table("nope")
    columns = {each["name"]: type(each["type"]) for each in inspector.get_columns("items")}
    assert columns == {"name": sa.TEXT, "total": sa.INTEGER, "top": sa.INTEGER}
    assert inspector.get_pk_constraint("items")["constrained_columns"] == []
    metadata = sa.MetaData()
    metadata.reflect(engine)
    items = metadata.tables["items"]
    with engine.connect() as connection:
        found = connection.execute(sa.select(items.c.name, items.c.total).where(items.c.total > 1))
        assert sorted(found.all(), key=str) == [("b", 2), (None, 4)]


def test_pandas_reads_tables_and_statements(engine: sa.Engine) -> None:
    frame = pd.read_sql("SELECT * FROM items ORDER BY name", engine)
    assert frame["total"].tolist() == [1, 2, 4] and str(frame["total"].dtype) == "int64"
    assert len(pd.read_sql_table("items", engine, schema="public")) == 3
    with engine.connect().execution_options(stream_results=True) as connection:
        portions = pd.read_sql("SELECT * FROM range(10)", connection, chunksize=4)
        assert [len(each) for each in portions] == [4, 4, 2]
