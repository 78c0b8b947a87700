"""A statement reads the given tables, and reaches nothing else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.querying.engine import answer, collect_answer
from jobs.querying.statement import StatementRefused
from schemas import limits
from tests.support.faults.hostile_statements import REACHING

ITEMS = {"items": pa.table({"name": ["a", "b"], "n": [1, 2]})}
FOREVER = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t"


def test_a_select_is_answered() -> None:
    found = answer("SELECT name, n * 2 AS twice FROM items ORDER BY name DESC", ITEMS)
    assert found.to_pylist() == [{"name": "b", "twice": 4}, {"name": "a", "twice": 2}]


@pytest.mark.parametrize("sql", REACHING)
def test_nothing_else_is_reached(sql: str, tmp_path: Path) -> None:
    file, made = tmp_path / "secret", tmp_path / "made"
    file.write_text("name\nsecret\n")
    items_of_python = ITEMS["items"]  # a variable that DuckDB could take for a table
    with pytest.raises(StatementRefused):
        answer(sql.format(file=file, folder=tmp_path, made=made), ITEMS)
    assert os.listdir(tmp_path) == ["secret"]
    assert items_of_python.num_rows == 2


@pytest.mark.parametrize("sql", [FOREVER, "SELECT SUM(i * i) FROM range(1000000000000) r(i)"])
def test_an_endless_answer_ends(sql: str) -> None:
    began = time.monotonic()
    with pytest.raises(StatementRefused, match=r"takes more than 0\.5 s"):
        answer(sql, ITEMS, seconds_max=0.5)
    assert time.monotonic() - began < 10


def test_what_no_interrupt_stops_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SQL_GRACE_SECONDS", 0.1)
    abandoned = threading.Event()
    heavy = "SELECT levenshtein(repeat('a', 20000), repeat('b', 20000))"
    with pytest.raises(StatementRefused):
        answer(heavy, {}, seconds_max=0.1, abandon=abandoned.set)
    assert abandoned.is_set()


@pytest.mark.parametrize("options", ["", "ANALYZE ", "(FORMAT json) ", "ANALYZE (FORMAT json) "])
def test_a_select_can_be_explained(options: str) -> None:
    assert answer(f"EXPLAIN {options}SELECT * FROM items", ITEMS).num_rows == 1
    assert answer(f"EXPLAIN {options}(SELECT * FROM items)", ITEMS).num_rows == 1


@pytest.mark.parametrize(
    "value",
    [
        "340282366920938463463374607431768211455::UHUGEINT",
        "'101'::BIT",
        "[1::BIGNUM]",
        "{'a': TIMETZ '10:00:00+05'}",
    ],
)
def test_a_value_that_arrow_would_change_is_refused_until_it_is_cast(value: str) -> None:
    with pytest.raises(StatementRefused, match=r"column 'v' is .*CAST it to VARCHAR"):
        answer(f"SELECT {value} AS v", {})
    (row,) = answer(f"SELECT CAST({value} AS VARCHAR) AS v", {}).to_pylist()
    assert row["v"]


def test_a_pivot_needs_its_values() -> None:
    items = {"items": pa.table({"name": ["a"], "n": [3]})}
    with pytest.raises(StatementRefused, match="PIVOT needs its values"):
        answer("PIVOT items ON name USING SUM(n)", items)
    assert answer("PIVOT items ON name IN ('a') USING SUM(n)", items).to_pylist() == [{"a": 3}]


def test_no_answer_shows_the_machine() -> None:
    settings = answer("SELECT name, value FROM duckdb_settings()", {}).to_pylist()
    shown = {each["name"]: each["value"] for each in settings}
    assert [name for name, value in shown.items() if (value or "").startswith("/")] == []
    assert str(Path.home()) not in str(shown)
    assert shown["TimeZone"] == "UTC"
    for sql in ("FROM duckdb_secrets()", "FROM duckdb_extensions()"):
        with pytest.raises(StatementRefused) as refused:
            answer(sql, {})
        assert '"/' not in str(refused.value)


def test_an_answer_is_refused_before_all_of_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict({"text": ["x" * 1_000] * 10})
    made: list[int] = []

    def make_batches() -> Iterator[pa.RecordBatch]:
        for number in range(9):
            made.append(number)
            yield batch

    reader = pa.RecordBatchReader.from_batches(batch.schema, make_batches())
    monkeypatch.setattr(limits, "SQL_ANSWER_BYTES_MAX", 2 * batch.nbytes)
    with pytest.raises(StatementRefused, match="MiB; ask for less"):
        collect_answer(reader)
    assert made == [0, 1, 2]
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 2)
    assert collect_answer(reader).num_rows == 20


def test_memory_rows_and_depth_are_bounded() -> None:
    with pytest.raises(StatementRefused, match="MiB of memory; ask for less"):
        answer("SELECT LIST(i) FROM range(10000000000) r(i)", ITEMS)
    with pytest.raises(StatementRefused, match=f"more than {limits.SQL_ROWS_MAX} rows"):
        answer("SELECT * FROM range(1000000)", ITEMS)
    with pytest.raises(StatementRefused, match="depth"):
        answer("SELECT " + "(" * 5_000 + "1" + ")" * 5_000, ITEMS)
