"""Files of Flink SQL: each becomes the specs beside it, which are valid and give Flink's results.

NAME.sql       the file
NAME.expected  exit code, what is printed on standard error, and every file that is written
NAME.rows      messages of some specs and the results that Flink has after them
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.main import main
from jobs.offline.replay import replay
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec

VECTORS = Path(__file__).parents[2] / "vectors" / "flink_sql"
FILES = sorted(VECTORS.glob("*.sql"))
Convert = Callable[[Path], tuple[int, str]]


WITH_ROWS = [pytest.param(path, id=path.stem) for path in sorted(VECTORS.glob("*.rows"))]


@pytest.fixture
def convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Convert:
    """Return a function that converts a file into `tmp_path`: exit code, standard error."""

    def call(file: Path) -> tuple[int, str]:
        code = main(["from-flink", str(file), "--out", str(tmp_path)])
        return code, capsys.readouterr().err.replace(f"{file.parent}/", "")

    return call


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_becomes_what_is_beside_it(
    file: Path, convert: Convert, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    code, errors = convert(file)
    parts = [f"exit {code}\n", errors]
    parts += [f"--- {path.name}\n{path.read_text()}" for path in sorted(tmp_path.iterdir())]
    expected = file.with_suffix(".expected")
    if request.config.getoption("--rewrite"):
        expected.write_text("".join(parts))
    assert "".join(parts) == expected.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_spec_is_valid(
    file: Path, convert: Convert, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = convert(file)
    written = sorted(tmp_path.iterdir())
    assert written or code == 2
    for path in written:
        if path.name == "connections.yaml":
            assert load_connections(path, None, {})
        else:
            assert main(["validate", str(path)]) == 0, capsys.readouterr()
            assert all(len(line) <= 100 for line in path.read_text().splitlines() if "#" in line)


@pytest.mark.parametrize("rows", WITH_ROWS)
def test_a_spec_gives_the_results_of_flink(rows: Path, convert: Convert, tmp_path: Path) -> None:
    convert(rows.with_suffix(".sql"))
    changelogs: dict[str, list[dict[str, Any]]] = {}
    for name, case in json.loads(rows.read_text()).items():
        before = changelogs.get(case.get("after", ""))
        messages = case["messages"] if before is None else map(json.dumps, before)
        changelogs[name] = rows_of(tmp_path / name, [{"message": each} for each in messages])
        assert sorted(map(repr, results(changelogs[name]))) == sorted(map(repr, case["results"]))


def rows_of(spec: Path, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in replay(load_spec(spec).document(), steps) if "op" in each]


def results(changelog: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fold a changelog: each row that came more often than it left."""
    live: list[dict[str, Any]] = []
    for change in changelog:
        if change["op"] in ("+I", "+U"):
            live.append(change["row"])
        else:
            live.remove(change["row"])
    return live


def test_there_are_files_of_every_outcome() -> None:
    codes = [path.with_suffix(".expected").read_text().partition("\n")[0] for path in FILES]
    assert len(codes) >= 20
    assert set(codes) == {"exit 0", "exit 2", "exit 3"}
