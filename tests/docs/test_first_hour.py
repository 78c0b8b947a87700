"""docs/install.md: the session from an own topic to a first right number, command by command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from jobs.edge.process.broker import free_port
from tests.docs.documents import block
from tests.support.documents import CHECKOUT
from tests.support.service.served import end_jobs

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

HOST = "127.0.0.1"
SECONDS_MAX = 180.0  # of a command, on a busy machine
FIRST, SECOND = "retally init", "retally audit"  # in the two blocks of the page


def read_session(blocks: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each command, and the lines that it prints, among others."""
    for about in blocks:
        first, *steps = block("install.md", "console", about).split("$ ")
        assert first == ""
        for text in steps:
            command, *shown = text.splitlines()
            yield command, shown


WITH_SPARK = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.costly("a job and its audit start Spark, as a newcomer's do"),
]


@pytest.mark.parametrize(
    "blocks",
    [(FIRST,), pytest.param((FIRST, SECOND), marks=WITH_SPARK)],
    ids=["to a spec", "to an audit"],
)
def test_an_own_topic_leads_to_a_first_right_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: Sequence[str]
) -> None:
    command = tmp_path / "bin" / "retally"
    command.parent.mkdir()
    script = f'#!/bin/sh\nPYTHONPATH={CHECKOUT} exec {sys.executable} -m jobs.cli.main "$@"\n'
    command.write_text(script)
    command.chmod(0o755)
    port, served = free_port(HOST), free_port(HOST)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RETALLY_BROKERS", f"{HOST}:{port}")
    monkeypatch.setenv("RETALLY_SERVICE", f"http://{HOST}:{served}")
    running: list[subprocess.Popen[str]] = []
    try:
        for number, (words, shown) in enumerate(read_session(blocks)):
            words = words.replace("retally broker", f"exec retally broker --port {port}")
            words = words.replace("retally serve", f"exec retally serve --port {served}")
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
            wanted = [
                line.replace("9092", str(port)).replace("8080", str(served)) for line in shown
            ]
            stays = words.endswith("&")
            if "Ctrl-C" in words:
                while missing(wanted[:1], log):
                    assert time.monotonic() - began < SECONDS_MAX, f"{words}:\n{log.read_text()}"
                    time.sleep(0.05)
                os.killpg(running[-1].pid, signal.SIGINT)
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
        end_jobs(tmp_path / "data")


def missing(shown: list[str], log: Path) -> list[str]:
    """Return the lines of the page that a command has not printed."""
    said = {line.strip() for line in log.read_text().splitlines()}
    return [line for line in shown if line.strip() not in said]
