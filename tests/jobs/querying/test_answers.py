"""A statement says of a job what reading its results says, at each epoch."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cli.main import main
from jobs.querying.answers import Answer, AnswerForm, answer_statement, distinct_names
from jobs.querying.engine import answer
from jobs.querying.statement import StatementRefused
from jobs.querying.tables import make_column
from jobs.reading.json_columns import safe_renderer
from jobs.reading.row_shape import RowShape
from schemas import limits
from schemas.types.sql_types import SqlType, array_of
from tests.support.examples import examples
from tests.support.tables.written_table import WrittenTable, write_random_history
from tests.support.values import VALUES


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenTable:
    return write_random_history(tmp_path_factory.mktemp("data"))


def test_each_epoch_is_what_rest_shows_of_it(written: WrittenTable) -> None:
    data, reader = written.place.home.parents[1], written.reader()
    shape = RowShape(written.plan, safe=True)
    for epoch in range(len(written.history)):
        expected = [shape.row(*row) for row in reader.results(epoch).items()]
        found = answer_statement(data, f"SELECT * FROM items AT EPOCH {epoch}")
        assert found.epochs == {f"items AT EPOCH {epoch}": epoch}
        assert sorted(found.documents(), key=str) == sorted(expected, key=str)
    now = answer_statement(data, "SELECT * FROM items")
    assert now.epochs == {"items": len(written.history) - 1}
    document = json.loads(b"".join(now.write("json")))
    assert document["rows"] == list(now.documents())
    assert [json.loads(line) for line in now.write("lines")] == document["rows"]
    assert [column["type"] for column in now.columns] == ["STRING", "INT", "INT"]


def test_a_time_means_the_newest_epoch_that_was_committed_by_then(written: WrittenTable) -> None:
    data = written.place.home.parents[1]
    row = written.reader().kept_epochs[3]
    at = datetime.fromtimestamp(row.committed_at / 1_000_000, UTC).isoformat()
    first = written.reader().kept_epochs[0].committed_at / 1_000_000
    before = datetime.fromtimestamp(first - 1, UTC).isoformat()
    later = answer_statement(data, f"SELECT COUNT(*) FROM items AT TIME '{at}'")
    assert next(iter(later.epochs.values())) >= 3
    with pytest.raises(StatementRefused, match="no epoch was committed by then"):
        answer_statement(data, f"FROM items AT TIME '{before}'")
    with pytest.raises(StatementRefused, match="there is no epoch 99"):
        answer_statement(data, "FROM items AT EPOCH 99")
    with pytest.raises(StatementRefused, match="the jobs are items"):
        answer_statement(data, "FROM itemss")


def test_a_damaged_spec_refuses_only_statements_over_its_job(tmp_path: Path) -> None:
    write_random_history(tmp_path)
    (broken,) = (tmp_path / "jobs").iterdir()
    shutil.copytree(broken, tmp_path / "jobs" / "broken")
    (tmp_path / "jobs" / "broken" / "spec.yaml").write_text("{name: broken,")
    assert answer_statement(tmp_path, "SELECT COUNT(*) FROM items").rows.num_rows == 1
    with pytest.raises(StatementRefused, match="job broken cannot be read") as refused:
        answer_statement(tmp_path, "FROM broken")
    assert str(tmp_path) not in str(refused.value)


def test_the_catalog_lists_every_job_and_its_columns(written: WrittenTable, tmp_path: Path) -> None:
    shutil.copytree(written.place.home, tmp_path / "jobs" / "items")
    shutil.copytree(written.place.home, tmp_path / "jobs" / "daily-orders")

    def ask(sql: str) -> list[list[object]]:
        return [list(row.values()) for row in answer_statement(tmp_path, sql).documents()]

    columns = [["name", "VARCHAR"], ["total", "INTEGER"], ["top", "INTEGER"]]
    assert ask("SHOW TABLES") == [["daily-orders"], ["items"]]
    for sql in ("DESCRIBE items", "DESC items", "SHOW items", "DESCRIBE daily-orders"):
        assert [row[:2] for row in ask(sql)] == columns, sql
    listed = ask(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = 'daily-orders' ORDER BY ordinal_position"
    )
    assert listed == columns
    for sql in (
        "SELECT table_name FROM information_schema.tables ORDER BY 1",
        "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1",
    ):
        assert ask(sql) == [["daily-orders"], ["items"]]
    read = answer_statement(tmp_path, "SELECT COUNT(*) FROM items, information_schema.tables")
    assert list(read.epochs) == ["items"]
    assert next(read.documents()) != {"count_star()": 0}


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT nme FROM items AT EPOCH 3", "LINE 1: SELECT nme FROM items AT EPOCH 3\n{}^"),
        (
            "SELECT n.name FROM items AT EPOCH 3 AS n WHERE n.nme = 1",
            "LINE 1: SELECT n.name FROM items AT EPOCH 3 AS n WHERE n.nme = 1\n{}^",
        ),
        ("SELECT 'é', nme FROM items AT EPOCH 3", "LINE 1: SELECT 'é', nme FROM items AT EPO"),
        ("FROM items AT EPOCH 99 JOIN n", "LINE 1: FROM items AT EPOCH 99 JOIN n\n{}^"),
        ("FROM nosuch.view", "there is no view 'nosuch.view'; the jobs are items\n\nLINE 1"),
        ("SHOW itemss", "there is no job 'itemss'; the jobs are items"),
    ],
)
def test_a_mistake_is_shown_in_the_statement_as_it_was_written(
    written: WrittenTable, sql: str, shown: str
) -> None:
    with pytest.raises(StatementRefused) as refused:
        answer_statement(written.place.home.parents[1], sql)
    reason = str(refused.value)
    mistake = re.search(r"(?:n\.)?nme|items(?= AT EPOCH 99)", sql)
    at = len("LINE 1: ") + (mistake.start() if mistake else 0)
    assert shown.format(" " * at) in reason
    assert 'AS "items"' not in reason


@pytest.mark.parametrize(
    "sql", ["DESCRIBE items", "SUMMARIZE items", "TABLE items", "EXPLAIN FROM items"]
)
def test_a_table_is_found_after_every_word_that_names_one(written: WrittenTable, sql: str) -> None:
    found = answer_statement(written.place.home.parents[1], sql)
    assert list(found.epochs) == ["items"]


def run_command(data: Path, sql: str, seconds_max: float) -> subprocess.CompletedProcess[str]:
    program = (
        f"from schemas import limits; limits.SQL_SECONDS_MAX = {seconds_max}\n"
        "import sys; from jobs.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, "sql", "--data", str(data), sql]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_command_ends_inside_a_call_that_does_not_return(tmp_path: Path) -> None:
    heavy = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))"
    done = run_command(tmp_path, heavy, 0.5)
    late = "retally: the answer takes more than 0.5 s; ask for less"
    assert (done.returncode, done.stderr.strip()) == (2, late)


def test_a_value_that_cannot_be_written_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for sql in ("SELECT '290000-01-01'::TIMESTAMP AS at", "SELECT 'infinity'::DATE AS at"):
        assert main(["sql", "--data", str(tmp_path), sql]) == 2
        assert "a time outside the years 1 to 9999" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("BIGINT", 2**53 + 1, str(2**53 + 1)),
        ("BIGINT", 5, 5),
        ("DECIMAL(10, 2)", "1.50", "1.50"),
        ("TIMESTAMP(3)", "2026-01-01 00:00:00.120", "2026-01-01 00:00:00.12"),
        ("TIMESTAMP(6)", "2026-01-01 00:00:00.120001", "2026-01-01 00:00:00.120001"),
        ("TIMESTAMP_LTZ(3)", "2026-01-01 00:00:00.5Z", None),
        ("TIMESTAMP(9)", "2026-01-01 00:00:00.123456789", "2026-01-01 00:00:00.123456789"),
        ("TIMESTAMP(9)", "2026-01-01 00:00:00.120000000", "2026-01-01 00:00:00.12"),
        ("TIMESTAMP_LTZ(9)", "2026-01-01 00:00:00.120000001Z", "2026-01-01 00:00:00.120000001Z"),
        ("DATE", "2026-01-01", "2026-01-01"),
        ("BOOLEAN", "true", True),
        ("DOUBLE", "NaN", "NaN"),
        ("STRING", 'a"b,c', 'a"b,c'),
        ("BINARY", "aGk=", None),
    ],
)
def test_values_are_written_as_rest_writes_them(
    kind: str, value: object, shown: object, tmp_path: Path
) -> None:
    from jobs.core.values.json_values import converter

    sql_type = SqlType.parse(kind)
    key = converter(sql_type)(str(value) if not isinstance(value, int) else value)
    columns = {"k": sql_type, "v": SqlType.parse("INT")}
    table = WrittenTable(
        tmp_path, "SELECT k, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY k", columns
    )
    table.epoch({(key,): (7,)})
    ((key, result),) = table.reader().results().items()
    expected = RowShape(table.plan, safe=True).row(key, result)
    found = answer_statement(tmp_path, "FROM items")
    assert list(found.documents()) == [expected]
    if shown is not None:
        assert expected["k"] == shown


@pytest.mark.parametrize(
    ("names", "distinct"),
    [
        (["name", "n", "n"], ["name", "n", "n_1"]),
        (["n", "N", "n"], ["n", "N_1", "n_2"]),
        (["n", "n", "n_1"], ["n", "n_2", "n_1"]),
        (["n_1", "n", "n", "n"], ["n_1", "n", "n_2", "n_3"]),
        ([], []),
    ],
)
def test_columns_of_one_name_are_told_apart(names: list[str], distinct: list[str]) -> None:
    assert distinct_names(names) == distinct


def test_a_join_of_a_job_with_its_past_has_all_columns_of_both(written: WrittenTable) -> None:
    data = written.place.home.parents[1]
    sql = "SELECT * FROM items JOIN items AT EPOCH 3 AS old USING (name) ORDER BY name"
    found = answer_statement(data, sql)
    names = ["name", "total", "top", "total_1", "top_1"]
    assert [column["name"] for column in found.columns] == names
    past = answer_statement(data, "FROM items AT EPOCH 3")
    by_name = {row["name"]: row for row in past.documents()}
    rows = list(found.documents())
    assert rows
    for row in rows:
        assert row["total_1"] == by_name[row["name"]]["total"]
    assert found.write("csv")[0].decode() == ",".join(names) + "\r\n"
    assert pa.ipc.open_stream(found.write("arrow")[0]).schema.names == names


@pytest.mark.parametrize("form", ["lines", "json", "csv", "arrow"])
def test_an_answer_is_bounded_as_it_is_written(
    form: AnswerForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Answer({"items": 1}, answer("SELECT 'text' AS text FROM range(5000)", {}))
    whole = b"".join(found.write(form))
    monkeypatch.setattr(limits, "SQL_ANSWER_BYTES_MAX", len(whole))
    found.write(form)
    monkeypatch.setattr(limits, "SQL_ANSWER_BYTES_MAX", len(whole) - 1)
    with pytest.raises(StatementRefused, match="MiB; ask for less"):
        found.write(form)


def test_the_rows_of_several_batches_are_written_in_order() -> None:
    rows = answer("SELECT i, [i, NULL] AS l FROM range(30000) r(i)", {})
    assert rows.column(0).num_chunks > 1
    found = Answer({}, rows)
    expected = [{"i": number, "l": [number, None]} for number in range(30_000)]
    assert list(found.documents()) == expected
    assert json.loads(b"".join(found.write("json")))["rows"] == expected
    assert found.write("csv")[29_999] == b'29998,"[29998,null]"\r\n'
    empty = Answer({}, rows.slice(0, 0))
    assert json.loads(b"".join(empty.write("json")))["rows"] == []
    assert empty.write("csv") == [b"i,l\r\n"]


RESULTS = VALUES | {
    array_of(kind): st.lists(st.none() | items, max_size=3).map(tuple)
    for kind, items in VALUES.items()
}


@examples(40)
@given(data=st.data())
def test_random_results_of_all_types_are_those_of_rest(data: st.DataObject) -> None:
    """Rows through Arrow, DuckDB and back are the rows that the service shows."""
    kinds = data.draw(st.lists(st.sampled_from(list(RESULTS)), min_size=1, max_size=6))
    cells = (st.none() | RESULTS[kind] for kind in kinds)
    rows = data.draw(st.lists(st.tuples(*cells), max_size=6))
    names = [f"c{index}" for index in range(len(kinds))]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(kinds)
    arrays = [make_column(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    sql = "SELECT *, {'a': c0, 'b': {'c': c0}} AS s, [{'v': c0}, NULL] AS l, map {'k': c0} AS m"
    found = Answer({}, answer(f"{sql} FROM t", {"t": pa.table(arrays, names=names)}))
    writers = [safe_renderer(kind) for kind in kinds]
    expected = [
        {
            name: None if value is None else write(value)
            for name, write, value in zip(names, writers, row, strict=True)
        }
        for row in rows
    ]
    for row in expected:
        value = row["c0"]
        row |= {"s": {"a": value, "b": {"c": value}}, "l": [{"v": value}, None], "m": {"k": value}}
    assert repr(list(found.documents())) == repr(expected)
    rest = Answer({}, found.rows.slice(1))  # columns that begin inside of their buffers
    assert repr(list(rest.documents())) == repr(expected[1:])


@pytest.mark.parametrize(
    ("sql", "shown", "kind"),
    [
        ("{'n': 1, 'text': 'a'}", {"n": 1, "text": "a"}, "ROW<n INT, text STRING>"),
        ("NULL::STRUCT(n INT)", None, "ROW<n INT>"),
        ("[{'n': 9007199254740993}]", [{"n": "9007199254740993"}], "ARRAY<ROW<n BIGINT>>"),
        ("map {1: [true], 2: NULL}", {"1": [True], "2": None}, "MAP<INT, ARRAY<BOOLEAN>>"),
        ("[1, NULL]::INT[2]", [1, None], "ARRAY<INT>"),
        ("[[1], [], NULL]", [[1], [], None], "ARRAY<ARRAY<INT>>"),
        ("{'at': TIMESTAMP '2026-01-01 00:00:00.5'}", {"at": "2026-01-01 00:00:00.5"}, None),
        ("TIME '10:00:00'", "10:00:00", "time64[us]"),
    ],
)
def test_values_that_a_statement_builds_are_objects_and_arrays(
    sql: str, shown: object, kind: str | None
) -> None:
    found = Answer({}, answer(f"SELECT {sql} AS v", {}))
    assert list(found.documents()) == [{"v": shown}]
    assert kind in (None, found.columns[0]["type"])
    as_text = next(iter(csv.DictReader(b"".join(found.write("csv")).decode().splitlines())))["v"]
    assert isinstance(shown, str | None) or json.loads(as_text) == shown


def test_the_command_writes_rows_documents_csv_and_arrow(
    written: WrittenTable, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = str(written.place.home.parents[1])
    ask = ["sql", "--data", data, "SELECT name, total FROM items ORDER BY name NULLS LAST LIMIT 1"]
    newest = len(written.history) - 1
    assert main([*ask, "--json"]) == 0
    out, err = capfdbinary.readouterr()
    row = json.loads(out)
    assert set(row) == {"name", "total"}
    assert json.loads(err.removeprefix(b"epochs: ")) == {"items": newest}
    assert main([*ask, "--format", "document"]) == 0
    document = json.loads(capfdbinary.readouterr()[0])
    assert document == {
        "epochs": {"items": newest},
        "columns": [{"name": "name", "type": "STRING"}, {"name": "total", "type": "INT"}],
        "rows": [row],
    }
    assert main([*ask, "--format", "csv"]) == 0
    assert capfdbinary.readouterr()[0].splitlines()[0] == b"name,total"
    assert main([*ask, "--format", "arrow"]) == 0
    stream = pa.ipc.open_stream(capfdbinary.readouterr()[0])
    assert json.loads(stream.schema.metadata[b"epochs"]) == {"items": newest}
    assert stream.read_all().to_pylist() == [row]
    assert main(["sql", "--data", data, "DROP TABLE items"]) == 2
    assert b"results can only be read, with SELECT" in capfdbinary.readouterr()[1]
