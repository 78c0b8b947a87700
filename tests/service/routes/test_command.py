"""The command line: what it says of a job is the same whether it asks a service or the tables."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from jobs.cli.main import main
from tests.support.service.served import CHECKOUT, NO_BROKER, SPEC, Served, eventually
from tests.support.service.tables import WatchedTable


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "{b": (2,)}, {"a": (1,), None: (4,), "{b": (2,)})
    watched.seen()
    return watched


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize(
    "words",
    [
        "results items --json",
        "results items",
        "results items --epoch 1 --json",
        "results items --key a --json",
        'results items --key {"name":null} --json',
        "results items --key nobody",
        "changes items --json",
        "changes items",
        "changes items --since 1 --json",
        "explain items a --json",
        "explain items a",
        "quarantine items --json",
        "savepoint items --list",
    ],
)
def test_the_service_says_what_the_tables_say(
    words: str, watched: WatchedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    by_tables = said(capsys, *words.split(), "--data", str(watched.served.data))
    by_service = said(capsys, *words.split(), "--service", watched.served.address)
    assert by_service[0] == by_tables[0] == 0
    if "--json" in words:
        rows = [[json.loads(line) for line in out.splitlines()] for _, out, _ in
                (by_tables, by_service)]  # fmt: skip
        assert rows[0] == rows[1]
    else:
        assert by_service[1:] == by_tables[1:]


def test_a_savepoint_is_made_listed_and_let_go(
    watched: WatchedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--service", watched.served.address]
    assert said(capsys, "savepoint", "items", "--name", "first", *at)[0] == 0
    assert "first" in said(capsys, "savepoint", "items", "--list", *at)[1]
    assert said(capsys, "savepoint", "items", "--delete", "first", *at)[0] == 0
    assert "first" not in said(capsys, "savepoint", "items", "--list", *at)[1]


@pytest.mark.slow
def test_a_job_is_started_and_stopped_and_waited_for(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_SERVICE", served.address)
    with served.client() as client:
        assert client.put("/v1/jobs/told", content=SPEC).status_code == 201
    code, _, errors = said(capsys, "start", "told", "--wait", "1")  # there is no broker
    assert code == 1
    assert "told" in errors
    eventually(lambda: served.job("told")["actual"] in ("STARTING", "RUNNING", "FAILED"))
    assert said(capsys, "stop", "told", "--wait", "60", "--json")[0] == 0
    assert served.job("told")["actual"] == "STOPPED"
    assert "revision 1 starts" in said(capsys, "logs", "told")[1]


def test_without_a_service_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = said(capsys, "results", "items", "--service", f"http://{NO_BROKER}")
    assert code == 1
    assert "does retally serve run?" in errors
    assert "--data" in errors


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_is_told_all_commands(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli.main", "completion", shell],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "quarantine" in done.stdout
    assert "--until-caught-up" in done.stdout
