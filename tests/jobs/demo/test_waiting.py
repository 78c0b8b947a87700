"""How the demo waits, what it says meanwhile, and what it leaves when it gives up."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from jobs.demo.serving import find_free_port
from jobs.demo.waiting import DemoFailed, Patience, keep_logs, phase
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


def test_without_a_terminal_phases_are_lines() -> None:
    output = io.StringIO()
    console = Console(file=output, highlight=False, markup=False)
    with phase(console, "jobs", "starting Spark for each") as report:
        report("items STARTING")  # soon after the first line: not worth another
    assert output.getvalue() == "jobs      starting Spark for each\n"


def test_a_terminal_gets_a_spinner() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    with phase(console, "lag", "reading the rest") as report:
        report("1,200 messages to go")
    assert "lag: reading the rest" in output.getvalue()


def test_what_is_left_of_a_failed_demo_is_its_logs(tmp_path: Path) -> None:
    for name in (
        "service.log",
        "broker/broker.log",
        "broker/log/shop.product-0/0.log",
        "service/jobs/items/log",
        "service/jobs/items/spec.yaml",
        "jobs/items/epochs/part.parquet",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    kept = keep_logs(tmp_path)
    assert list(tmp_path.iterdir()) == [kept]
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        "service.log": "service.log",
        "broker.log": "broker/broker.log",
        "items.log": "service/jobs/items/log",
    }


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
    where = kept.removeprefix("demo: the logs of its processes are kept in ")
    assert Path(where).is_dir()
    assert Path(where).is_relative_to(tmp_path)
