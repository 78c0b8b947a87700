"""The unit for systemd: what systemd says of it, and that it starts a command that there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.cli.main import build_parser

CHECKOUT = Path(__file__).parents[3]
UNIT = CHECKOUT / "deploy/systemd/retally.service"
COMMAND = "/opt/retally/bin/retally"  # in the environment that docs/operations.md makes

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here"
)


def read_settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


@needs_systemd
def test_systemd_takes_every_line(tmp_path: Path) -> None:
    program = tmp_path / "retally"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(COMMAND, str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


@needs_systemd
def test_the_service_has_little_to_attack() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=40", UNIT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("more", ["", "--standby", "--pg-port 5433 --read-only"])
def test_the_command_and_what_an_operator_adds_are_taken(more: str) -> None:
    (line,) = read_settings("ExecStart")
    program, *words = line.replace("$RETALLY_ARGUMENTS", more).split()
    assert program == COMMAND
    taken = build_parser().parse_args(words)
    assert taken.command == "serve"
    assert str(taken.data) == f"/var/lib/{read_settings('StateDirectory')[0]}"
    assert f"RETALLY_CACHE=/var/cache/{read_settings('CacheDirectory')[0]}" in read_settings(
        "Environment"
    )


def test_jobs_outlive_the_service() -> None:
    assert read_settings("KillMode") == ["process"]
    assert read_settings("PrivateTmp") == []
