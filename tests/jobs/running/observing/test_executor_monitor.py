"""A job that its cluster gives no cores says so, and ends after a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.spark.executors import NoExecutors
from jobs.running.executor_monitor import ExecutorMonitor
from jobs.running.failure import classify
from schemas.directory.documents import read_document
from schemas.directory.reports import Waiting
from schemas.limits import EXECUTORS_MISSING_REPORTED_SECONDS, EXECUTORS_MISSING_SECONDS_MAX

SOME, NONE, STUCK = None, "the cluster gives no executor", "2 executors run no task"
STEP = 5.0


def checked(path: Path, statuses: list[str | None]) -> ExecutorMonitor:
    """Check one status every STEP seconds."""
    waiting = iter(statuses)
    monitor = ExecutorMonitor(lambda: next(waiting), path, lambda _: None)
    for number in range(len(statuses)):
        monitor.check(1_000 + number * STEP)
    return monitor


def steps(seconds: float) -> int:
    return int(seconds / STEP) + 1


@pytest.mark.parametrize("missing", [NONE, STUCK])
def test_missing_cores_are_reported_after_a_while_and_until_they_come(
    tmp_path: Path, missing: str
) -> None:
    path = tmp_path / "waiting.json"
    reported = steps(EXECUTORS_MISSING_REPORTED_SECONDS)
    checked(path, [SOME, *[missing] * (reported - 1)])
    assert read_document(path, Waiting) is None
    checked(path, [SOME, *[missing] * reported])
    waiting = read_document(path, Waiting)
    assert waiting is not None
    assert waiting.reason.startswith(missing)
    checked(path, [SOME, *[missing] * reported, SOME])
    assert read_document(path, Waiting) is None


def test_a_job_without_cores_fails_as_retryable_after_its_limit(tmp_path: Path) -> None:
    most = steps(EXECUTORS_MISSING_SECONDS_MAX)
    checked(tmp_path / "waiting.json", [NONE] * (most - 1))
    with pytest.raises(NoExecutors, match="no executor for 120 s") as failure:
        checked(tmp_path / "waiting.json", [NONE] * most)
    assert classify(failure.value) == ("no-executors", True)


def test_cores_that_come_back_start_the_time_anew(tmp_path: Path) -> None:
    most = steps(EXECUTORS_MISSING_SECONDS_MAX)
    checked(tmp_path / "waiting.json", [*[NONE] * (most - 1), SOME, *[STUCK] * (most - 1)])
