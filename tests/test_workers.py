"""A worker that dies costs the test that it died in, and no other; the run comes to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runner.other_tests import run_tests

pytestmark = pytest.mark.slow

ONE = "def test_first(): pass\n"
TWO = ONE + "def test_second(): pass\n"
DIES = "def test_dies(): __import__('os')._exit(3)\n"
LIMITS = """
import resource
def test_limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
"""


@pytest.mark.parametrize(
    ("workers", "file"),
    [(1, DIES), (2, DIES + TWO), (1, ONE + DIES)],
    ids=["only", "first", "last"],
)
def test_the_tests_that_a_dead_worker_left_are_run(tmp_path: Path, workers: int, file: str) -> None:
    for number in range(2):
        (tmp_path / f"test_a{number}.py").write_text(TWO)
    (tmp_path / "test_b.py").write_text(file)
    (tmp_path / "test_c.py").write_text(ONE)
    printed = run_tests(
        tmp_path, "-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"
    )
    others = 5 + file.count("pass")
    assert f"1 failed, {others} passed" in printed, printed
    assert "crashed while running" in printed
    assert "test_b.py::test_dies" in printed


def test_a_test_that_leaves_limits_to_its_worker_fails(tmp_path: Path) -> None:
    (tmp_path / "test_limits.py").write_text(LIMITS)
    printed = run_tests(tmp_path, "-p", "no:xdist")
    assert "changes limits of the process" in printed, printed


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_failure_has_a_line_before_the_run_ends(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_first.py").write_text(
        "def test_fails():\n    assert 1 == 2, 'no sum'\n" + ONE
    )
    printed = run_tests(tmp_path, "-n", workers)
    line = next(line for line in printed.splitlines() if line.startswith("failed in call: "))
    assert "test_first.py::test_fails: AssertionError: no sum" in line
    assert printed.index(line) < printed.index("FAILURES")
