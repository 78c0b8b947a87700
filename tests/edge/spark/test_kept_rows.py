"""Rows that jobs keep in the memory of a Spark JVM: each job's end removes its own, also a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from schemas.limits import DRIVER_IDLE_SECONDS_MAX
from tests.support.service.served import CHECKOUT, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = textwrap.dedent(
    """
    import sys
    from pathlib import Path

    from jobs.edge.spark.driver_lease import lease_session
    from jobs.edge.spark.kept_rows import keep_rows

    with lease_session(Path(sys.argv[1]), "local[2]", 3) as spark:
        cache = spark._jsparkSession.sharedState().cacheManager()
        frame = spark.range(int(sys.argv[2]))
        with keep_rows(frame):
            print(frame.count(), flush=True)
            for _ in sys.stdin:
                print(cache.numCachedEntries(), frame.storageLevel.useMemory, flush=True)
        print(cache.numCachedEntries(), frame.storageLevel.useMemory, flush=True)
    """
)


class Job:
    """A process that keeps some rows in the memory of a JVM that it shares."""

    def __init__(self, data: Path, rows: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(data), str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        self.rows = int(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self) -> tuple[int, bool]:
        """Return how many frames the JVM keeps, and whether that of this job is one of them."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return self._parse()

    def _parse(self) -> tuple[int, bool]:
        entries, own = self._read().split()
        return int(entries), own == "True"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> tuple[int, bool]:
        """End the job in order; return the same, once it no longer needs its rows."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        found = self._parse()
        assert self._process.wait(30) == 0
        return found


def owners(data: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:  # it has ended
            continue
        if "jobs.edge.spark.shared_driver" in line and any(str(data) in word for word in line):
            found.append(process)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    eventually(lambda: not owners(tmp_path), DRIVER_IDLE_SECONDS_MAX + 20)


def test_rows_of_a_killed_job_leave_the_memory_and_those_of_others_stay(data: Path) -> None:
    jobs = [Job(data, rows) for rows in (10, 20)]
    try:
        assert [job.rows for job in jobs] == [10, 20]
        assert len(owners(data)) == 1
        killed, other = jobs
        assert other.ask() == (2, True)
        killed.kill()
        eventually(lambda: other.ask() == (1, True))
        third = Job(data, 30)
        jobs.append(third)
        assert third.ask() == (2, True)
        assert other.end() == (1, False)
        assert third.end() == (0, False)
    finally:
        for job in jobs:
            job.kill()
