"""The command line over HTTP: jobs are started, stopped and waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli.commands.jobs import find_new
from jobs.cli.main import main
from tests.support.service.served import CHECKOUT, NO_BROKER, SPEC, Served, eventually


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.slow
def test_a_job_is_started_and_stopped_and_waited_for(
    served: Served,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RETALLY_SERVICE", served.address)
    (tmp_path / "told.yaml").write_text(f"name: told\n{SPEC}")
    assert said(capsys, "jobs", "put", str(tmp_path / "told.yaml"))[0] == 0
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_all_commands(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli.main", "completion", shell],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "quarantine" in done.stdout
    assert "until-caught-up" in done.stdout


@pytest.mark.parametrize("repeated", [0, 5])
def test_a_followed_log_has_each_line_once(repeated: int) -> None:
    log = [f"line {n}" for n in range(300)] + ["the same"] * repeated + ["then another"]
    for first in (0, 1, 99, 301 + repeated):
        for window in (250, 1_000):
            seen, printed = log[:first][-window:], log[:first]
            for end in range(first, len(log) + 1, 50):
                found = log[:end][-window:]
                printed += find_new(seen, found)
                seen = found
            assert printed == log[: len(printed)]
            assert len(log) - len(printed) < 50
    assert find_new(log, ["rotated"]) == ["rotated"]
