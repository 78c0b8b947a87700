"""docs/install.md: the session from an own topic to a first right number, command by command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge.process.broker import free_port
from tests.docs.documents import block
from tests.support.documents import CHECKOUT

pytestmark = pytest.mark.broker

HOST = "127.0.0.1"
SECONDS_MAX = 60.0  # of a command, on a busy machine


def read_session() -> Iterator[tuple[str, list[str]]]:
    """Yield each command, and the lines that it prints, among others."""
    first, *steps = block("install.md", "console", "retally init").split("$ ")
    assert first == ""
    for text in steps:
        command, *shown = text.splitlines()
        yield command, shown


def test_an_own_topic_leads_to_a_first_right_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "bin" / "retally"
    command.parent.mkdir()
    script = f'#!/bin/sh\nPYTHONPATH={CHECKOUT} exec {sys.executable} -m jobs.cli.main "$@"\n'
    command.write_text(script)
    command.chmod(0o755)
    port = free_port(HOST)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RETALLY_BROKERS", f"{HOST}:{port}")
    running: list[subprocess.Popen[str]] = []
    try:
        for number, (words, shown) in enumerate(read_session()):
            words = words.replace("retally broker", f"exec retally broker --port {port}")
            log, began = tmp_path / f"{number}.log", time.monotonic()
            with log.open("w") as out:
                running.append(
                    subprocess.Popen(
                        ["bash", "-c", words.removesuffix("&")],
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        cwd=tmp_path,
                        text=True,
                        start_new_session=True,
                    )
                )
            wanted = [line.replace("9092", str(port)) for line in shown]
            stays = words.endswith("&")
            while missing(wanted, log) if stays else running[-1].poll() is None:
                assert time.monotonic() - began < SECONDS_MAX, f"{words}:\n{log.read_text()}"
                time.sleep(0.05)
            assert missing(wanted, log) == [], f"{words}:\n{log.read_text()}"
            assert stays or running[-1].returncode == 0, words
            print(f"{time.monotonic() - began:6.1f} s  {words}")
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(30)


def missing(shown: list[str], log: Path) -> list[str]:
    """Return the lines of the page that a command has not printed."""
    said = {line.strip() for line in log.read_text().splitlines()}
    return [line for line in shown if line.strip() not in said]
