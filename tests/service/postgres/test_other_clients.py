"""Clients that our packages do not bring: each is tried where a variable names it.

PGJDBC_JAR        postgresql-42.7.8.jar, of Maven Central
DUCKDB_POSTGRES   a Python with DuckDB, and after a colon its extension: PYTHON:FILE
DBT               the command dbt of an environment with dbt-postgres
GO_DRIVERS        a Go module that requires github.com/lib/pq and github.com/jackc/pgx/v5: a folder
                  with go.mod and go.sum, after `go mod tidy`. They are Grafana's, old and new
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.service.postgres import make_url, serve_items
from tests.support.service.served import Served

JAVA = """
import java.sql.*;

public class Reads {
  static void show(ResultSet rows) throws SQLException {
    int columns = Math.min(rows.getMetaData().getColumnCount(), 6);
    while (rows.next()) {
      StringBuilder line = new StringBuilder();
      for (int at = 1; at <= columns; at++) line.append(rows.getObject(at)).append('|');
      System.out.println(line);
    }
  }

  public static void main(String[] arguments) throws Exception {
    try (Connection connection = DriverManager.getConnection(arguments[0], "me", "none")) {
      DatabaseMetaData known = connection.getMetaData();
      show(known.getTables(null, null, "%", new String[] {"TABLE"}));
      show(known.getColumns(null, "public", "items", null));
      show(known.getPrimaryKeys(null, null, "items"));
      show(known.getIndexInfo(null, null, "items", false, false));
      String sql = "SELECT name, total, 1.50::DECIMAL(9, 2), DATE '2026-01-02', 2::BIGINT, [1, 2]"
          + " FROM items WHERE total > ? AND name = ?";
      try (PreparedStatement prepared = connection.prepareStatement(sql)) {
        for (int turn = 0; turn < 8; turn++) {  // from the sixth on with binary values
          prepared.setInt(1, 1);
          prepared.setString(2, "b");
          show(prepared.executeQuery());
        }
      }
      connection.setAutoCommit(false);
      try (Statement portions = connection.createStatement()) {
        portions.setFetchSize(2);
        show(portions.executeQuery("SELECT n FROM range(5) AS r(n)"));
        portions.executeUpdate("INSERT INTO items VALUES ('x', 1, 1)");
      } catch (SQLException refused) {
        System.out.println(refused.getSQLState());
      }
      connection.rollback();
    }
  }
}
"""
GO = """
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
)

func must(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func read(driver, url string) {
	db, err := sql.Open(driver, url)
	must(err)
	defer db.Close()
	must(db.Ping())
	query := "SELECT name, total, 1.50::DECIMAL(9, 2) AS d," +
		" TIMESTAMPTZ '2026-01-02 03:04:05+00' AS t FROM items WHERE total > "
	statements := []func() (*sql.Rows, error){
		func() (*sql.Rows, error) { return db.Query(query + "1 ORDER BY total") },
		func() (*sql.Rows, error) { return db.Query(query+"$1::int AND name = $2", 1, "b") },
	}
	for _, run := range statements {
		rows, err := run()
		must(err)
		types, err := rows.ColumnTypes()
		must(err)
		for _, each := range types {
			fmt.Print(each.Name(), " ", each.DatabaseTypeName(), " ")
		}
		fmt.Println()
		for rows.Next() {
			var name, d sql.NullString
			var total sql.NullInt64
			var t sql.NullTime
			must(rows.Scan(&name, &total, &d, &t))
			fmt.Println(name.String, total.Int64, d.String, t.Time.UTC())
		}
		must(rows.Err())
	}
	_, err = db.Query("SELECT nope FROM items")
	fmt.Println(err != nil)
}

func main() {
	read("postgres", os.Args[1])
	read("pgx", os.Args[1])
	connection, err := pgx.Connect(context.Background(), os.Args[1])
	must(err)
	must(connection.Ping(context.Background()))
	results, err := connection.PgConn().Exec(context.Background(), "SELECT 1; SELECT 'a'").ReadAll()
	must(err)
	fmt.Println(len(results), string(results[1].Rows[0][0]))
}
"""
SOURCES = """\
sources:
  - name: results
    schema: public
    tables: [{name: items, columns: [{name: total, data_tests: [not_null]}]}]
"""
PROFILE = "p: {{target: d, outputs: {{d: {{type: postgres, host: {0.hostname}, port: {0.port}, \
user: me, password: none, dbname: retally, schema: public, threads: 1}}}}}}"


def find(variable: str) -> str:
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"${variable} names none (see the head of this file)")
    return found


def run(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve_items(tmp_path_factory.mktemp("served")) as served:
        yield served


def test_pgjdbc(served: Served, tmp_path: Path) -> None:
    jar = find("PGJDBC_JAR")
    source = tmp_path / "Reads.java"
    source.write_text(JAVA)
    java = shutil.which("java") or "java"
    found = run(java, "-cp", jar, source, f"jdbc:{served.postgres}/retally").splitlines()
    assert found[0].startswith("retally|public|items|TABLE|")
    assert [line.split("|")[3:6:2] for line in found[1:4]] == [
        ["name", "text"],
        ["total", "int4"],
        ["top", "int4"],
    ]
    read = [line.replace('"', "") for line in found[4:12]]  # its binary arrays have quotes
    assert read == ["b|2|1.50|2026-01-02|2|{1,2}|"] * 8
    assert found[12:] == ["0|", "1|", "2|", "3|", "4|", "25006"]


def test_asyncpg(served: Served) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def read() -> None:
        connection = await asyncpg.connect(make_url(served))
        found = await connection.fetch("SELECT name, [1, 2] FROM items WHERE total = $1::int", 2)
        assert [tuple(row) for row in found] == [("b", [1, 2])]
        async with connection.transaction():
            numbers = connection.cursor("SELECT n FROM range(5) AS r(n)", prefetch=2)
            assert [row["n"] async for row in numbers] == [0, 1, 2, 3, 4]
        await connection.reset()
        await connection.close()

    asyncio.run(read())


def test_duckdb(served: Served) -> None:
    python, _, extension = find("DUCKDB_POSTGRES").partition(":")
    program = f"""
import duckdb
connection = duckdb.connect(config={{"allow_unsigned_extensions": "true"}})
connection.execute("LOAD '{extension}'")
connection.execute("SET pg_use_text_protocol = true")
connection.execute("ATTACH '{make_url(served)}' AS r (TYPE postgres, READ_ONLY)")
print(connection.execute("SELECT name, total FROM r.items WHERE total > 1 ORDER BY 1").fetchall())
"""
    assert run(python, "-c", program) == "[('b', 2), (None, 4)]\n"


def test_drivers_of_go(served: Served, tmp_path: Path) -> None:
    module = find("GO_DRIVERS")
    go = shutil.which("go") or pytest.skip("there is no go in PATH")
    for name in ("go.mod", "go.sum"):
        shutil.copy(Path(module) / name, tmp_path)
    (tmp_path / "main.go").write_text(GO)
    words = [go, "run", "-C", str(tmp_path), ".", f"{make_url(served)}?sslmode=disable"]
    found = run(*words).splitlines()
    row = "b 2 1.50 2026-01-02 03:04:05 +0000 UTC"
    of_driver = ["name TEXT total INT4 d NUMERIC t TIMESTAMPTZ ", row, row.replace("b 2", " 4")]
    of_driver += [of_driver[0], row, "true"]
    assert found == [*of_driver, *of_driver, "2 a"]


def test_dbt(served: Served, tmp_path: Path) -> None:
    dbt = find("DBT")
    (tmp_path / "models").mkdir()
    (tmp_path / "dbt_project.yml").write_text("{name: p, version: 1.0.0, profile: p}")
    (tmp_path / "profiles.yml").write_text(PROFILE.format(urlsplit(served.postgres)))
    (tmp_path / "models" / "sources.yml").write_text(SOURCES)
    (tmp_path / "models" / "seen.sql").write_text("SELECT * FROM {{ source('results', 'items') }}")
    where = ("--project-dir", tmp_path, "--profiles-dir", tmp_path)
    assert "PASS=1 WARN=0 ERROR=0" in run(dbt, "test", *where)
    assert "CREATE is not possible; results can only be read" in run(dbt, "run", *where)
