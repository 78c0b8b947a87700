"""How the demo waits, and what it leaves when it gives up."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.demo.serving import DemoFailed, Patience, find_free_port
from tests.support.command.lab import CHECKOUT


def test_patience_lasts_as_long_as_something_moves() -> None:
    patience = Patience(seconds_max=1.0)
    for behind in (300, 200, 100):
        patience.require(behind, "the job is behind")
        time.sleep(0.5)
    with pytest.raises(DemoFailed, match="the job is behind, and nothing has moved for 1 s"):
        while True:
            patience.require(100, "the job is behind")
            time.sleep(0.1)


def test_a_taken_port_leads_to_the_next_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < find_free_port(port) <= port + 99


def test_a_demo_that_gives_up_says_why_and_names_its_logs(tmp_path: Path) -> None:
    """A java that ends at once: the broker cannot start."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'version "21"\' >&2 || exit 3\n')
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli.main", "demo"],
        cwd=CHECKOUT,
        env={"JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    why, kept = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert why.startswith("demo: ")
    assert "broker: cannot format" in why
    where = kept.removeprefix("demo: its data and the logs of its processes are kept in ")
    assert Path(where).is_dir()
    assert Path(where).is_relative_to(tmp_path)
