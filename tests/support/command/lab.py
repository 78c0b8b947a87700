"""Helpers of the command's tests: the command as a process, and a job's data directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.command.shop import Result

JOB = "items"
RUN_SECONDS_MAX = 200
CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Command:
    """Calls `retally` as its users do: as a process."""

    brokers: str

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "jobs.cli.main", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env={**os.environ, "RETALLY_BROKERS": self.brokers},
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=RUN_SECONDS_MAX)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@dataclass(frozen=True, slots=True)
class Lab:
    """The data directory and topics of a job that has run twice, with the truth after each run."""

    command: Command
    data: Path
    spec: Path
    topic: str
    rejected: int
    kept: Result  # at savepoint `first`
    truth: Result  # now


Answer = tuple[int, str, str]  # exit code, output, errors
Retally = Callable[..., Answer]


def lines(text: str) -> Result:
    """Return the documents of a command's JSON lines."""
    return [json.loads(line) for line in text.splitlines()]
