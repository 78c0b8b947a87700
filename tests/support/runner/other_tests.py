"""Runs tests that a test has written, with what all tests of the project stand on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]


def run_tests(folder: Path, *options: str, **environment: str) -> str:
    """Run the tests in a folder; return what is printed."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    where = ["-c", str(CHECKOUT / "pyproject.toml"), "--basetemp", str(folder / "base")]
    done = subprocess.run(
        [*command, *where, *options, str(folder)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    return done.stdout
