"""What a command prints: CSV that other readers take, and a pipe that its reader closes."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from jobs.cli.errors import CommandFailed
from jobs.cli.output import Columns, print_answer
from schemas.types.sql_types import BIGINT, STRING
from tests.support.command.lab import CHECKOUT, Retally
from tests.support.tables.written_table import WrittenTable

HOSTILE = ["a,b", 'say "x"', "", None, "two\r\nlines", " spaces ", "=1+1", "\x1b[31m", "ü"]


def test_csv_is_what_python_and_duckdb_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    documents = [{"text": text, "n": n, "list": [n, text]} for n, text in enumerate(HOSTILE)]
    columns: Columns = {"text": "text", "a number": lambda each: each["n"], "list": "list"}
    print_answer("csv", documents, columns)
    out = capsys.readouterr().out
    head, *rows = csv.reader(io.StringIO(out, newline=""), strict=True)
    assert head == ["text", "a number", "list"]
    assert [row[:2] for row in rows] == [[text or "", str(n)] for n, text in enumerate(HOSTILE)]
    file = tmp_path / "answer.csv"
    file.write_bytes(out.encode())
    read = """SELECT text, "a number", list::JSON ->> '$[1]'
        FROM read_csv(?, allow_quoted_nulls=false)"""
    found = duckdb.execute(read, [str(file)]).fetchall()
    assert found == [(text, n, text) for n, text in enumerate(HOSTILE)], "NULL is not an empty text"


def test_fields_of_documents_are_columns(capsys: pytest.CaptureFixture[str]) -> None:
    documents = [{"key": {"k": 1}, "before": None}, {"key": {"k": 2}, "before": {"k": 2, "x": [3]}}]
    print_answer("csv", documents)
    assert capsys.readouterr().out == "key.k,before.k,before.x\r\n1,,\r\n2,2,[3]\r\n"


def test_an_object_that_is_empty_in_one_row_is_valid_csv(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_answer("csv", [{"job": "a", "lag": {}}, {"job": "b", "lag": {"records": 1}}])
    assert capsys.readouterr().out == "job,lag.records\r\na,\r\nb,1\r\n"


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"a": 1, "b": None, "c": 2}, r"new row\.c"),
        ({"a": 1}, r"no row\.b"),
        ({"a": 1, "c": 2}, r"new row\.c, no row\.b"),
    ],
)
def test_a_stream_whose_columns_change_ends_with_how_to_read_on(
    row: dict[str, Any], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, changed = {"epoch": 6, "row": {"a": 1, "b": 2}}, {"epoch": 7, "row": row}
    with pytest.raises(CommandFailed, match=rf"at epoch 7 \({what}\): .* --since 6 continues"):
        print_answer("csv", iter([first, changed]))
    assert capsys.readouterr().out == "epoch,row.a,row.b\r\n6,1,2\r\n"
    print_answer("csv", iter([changed]))
    assert capsys.readouterr().out.startswith("epoch,row.a")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose results do not fit into a pipe."""
    data = tmp_path_factory.mktemp("many")
    query = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
    table = WrittenTable(data, query, {"name": STRING, "v": BIGINT})
    table.epoch({(f"{n:05} {'x' * 100}",): (n,) for n in range(2_000)})
    return data


@pytest.mark.parametrize(
    "words",
    [
        "results items -o table",
        "results items -o csv",
        "changes items -o table",
        "changes items -o json",
        "sql -o csv 'SELECT * FROM items'",
    ],
)
def test_a_reader_that_closes_the_pipe_ends_the_command_without_a_word(
    words: str, many: Path
) -> None:
    command = f"{sys.executable} -m jobs.cli.main {words} --data {many}"
    shell = f"{command} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, cwd=CHECKOUT, check=True
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert "roken" not in done.stderr
    assert "Traceback" not in done.stderr


def test_every_form_of_a_command_has_the_same_rows(many: Path, retally: Retally) -> None:
    few = ("results", "items", "--data", str(many), "--limit", "2", "--order=-total")
    table, lines, fields = (retally(*few, "-o", form) for form in ("table", "json", "csv"))
    assert retally(*few) == table
    assert retally(*few, "--json") == lines
    total = [line.split()[-1] for line in table[1].splitlines() if "xx" in line]
    assert total == ["1999", "1998"]
    assert [line[-5:-1] for line in lines[1].splitlines()] == total
    assert [line[-4:] for line in fields[1].splitlines()] == [",top", *total]
    code, _, err = retally(*few, "-o", "xml")
    assert (code, "there is no choice 'xml'" in err) == (2, True)
