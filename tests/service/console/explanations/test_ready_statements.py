"""The statements of the card "Query this table" give the results of the job."""

from __future__ import annotations

import ast
import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
import sqlglot

from jobs.reading.row_shape import RowShape
from schemas.types.sql_types import INT, STRING
from service.console.explanations.ready_statements import Statement, write_statements
from tests.support.tables.written_table import WrittenTable

QUERY = 'SELECT name, SUM(v) AS "order", MAX(v) AS top FROM t GROUP BY name'


def statements(table: WrittenTable) -> dict[str, Statement]:
    found = write_statements(RowShape(table.plan, safe=True), "items", str(table.place.table))
    return {each.engine: each for each in found}


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    written = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    written.epoch({("bolt",): (7, 9), ("nut",): (1,), (None,): (3,)})
    written.epoch({("bolt",): (7,), (None,): (3,)})
    return written


def test_the_statement_for_duckdb_runs_as_it_is(table: WrittenTable) -> None:
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(statements(table)["DuckDB"].text, names)
    rows = set(names["current"].fetchall())  # type: ignore[attr-defined]
    assert rows == {("bolt", 7, 7), (None, 3, 3)}


@pytest.mark.slow
@pytest.mark.spark
def test_the_statement_for_spark_runs_as_it_is(table: WrittenTable) -> None:
    program = (
        "from jobs.edge.spark.session import session\n"
        "spark = session('statement', delta=True)\n"
        f"{statements(table)['Spark'].text}"
        "print([tuple(row) for row in current.collect()])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    rows = ast.literal_eval(done.stdout.splitlines()[-1])
    assert set(rows) == {("bolt", 7, 7), (None, 3, 3)}


def test_the_statement_for_polars_runs_as_it_is(table: WrittenTable) -> None:
    pytest.importorskip("polars", reason="Polars is not installed: pip install polars")
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(statements(table)["Polars"].text, names)
    assert set(names["current"].rows()) == {("bolt", 7, 7), (None, 3, 3)}  # type: ignore[attr-defined]


def test_the_statement_for_trino_is_its_sql(table: WrittenTable) -> None:
    select = statements(table)["Trino"].text.partition(";\n\n")[2]
    (parsed,) = sqlglot.parse(select, read="trino")
    assert isinstance(parsed, sqlglot.exp.Select)
    assert [each.name for each in parsed.selects] == ["name", "order", "top"]


def test_each_engine_has_a_statement_with_all_columns_and_the_path(table: WrittenTable) -> None:
    found = statements(table)
    assert list(found) == ["DuckDB", "Spark", "Polars", "Trino"]
    for each in found.values():
        assert str(table.place.table) in each.text
        assert all(name in each.text for name in ("name", "order", "top"))
    assert "`order`" in found["Spark"].text and '"order"' in found["Trino"].text
    compile(found["Polars"].text, "polars", "exec")
    compile(found["Spark"].text, "spark", "exec")


def test_a_query_without_groups_takes_the_newest_row(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, "SELECT SUM(v) AS total FROM t", {"v": INT})
    found = statements(table)
    assert "PARTITION BY" not in found["DuckDB"].text
    assert '.sort("epoch").tail(1)' in found["Polars"].text
