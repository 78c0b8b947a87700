"""Run tests in a copy of the checkout with a mutant of the core."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.faults.mutants import Mutant
from tests.support.faults.tally import CHECKOUT

COPIED = ("jobs", "schemas", "service", "client", "tests", "pyproject.toml")
SECONDS_MAX = 240
NEEDED = "not spark and not broker and not faults and not browser"


def copy_of_the_checkout(into: Path) -> Path:
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "assets", "templates")
            shutil.copytree(source, into / name, ignore=ignored)
        else:
            shutil.copy(source, into / name)
    return into


def passes(checkout: Path, tests: Sequence[str]) -> bool:
    """Return whether these tests pass there; raise if pytest itself failed."""
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        NEEDED,
        *(f"tests/{name}" for name in tests),
    ]
    done = subprocess.run(
        command,
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(checkout),
            "PYTHONPATH": str(checkout),
            "EXAMPLES": "1",
        },
    )
    if done.returncode not in (0, 1, 2):
        raise AssertionError(f"pytest itself failed: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    return done.returncode == 0


def lives(mutant: Mutant, checkout: Path) -> bool:
    """Return whether a mutant survives its tests; restore the file afterwards."""
    path = checkout / mutant.path
    whole = path.read_text()
    found = whole.count(mutant.before)
    assert found == 1, f"{mutant.file} has {mutant.before!r} {found} times; correct mutants.py"
    path.write_text(whole.replace(mutant.before, mutant.after))
    try:
        return passes(checkout, mutant.tests)
    finally:
        path.write_text(whole)
