"""The guard leaves no process of a demo behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.demo.guard import Guard, measure_cpu_seconds

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="the guard reads /proc")


def sleeping(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", *arguments], start_new_session=True
    )


def test_what_the_demo_could_not_stop_is_killed_and_nothing_else(tmp_path: Path) -> None:
    mine = sleeping("jobs.cli.main", f"{tmp_path}/service/spec.yaml")
    other = sleeping("jobs.cli.main", f"{tmp_path}-other/spec.yaml")
    try:
        Guard.start(tmp_path).stop()
        assert mine.wait(10) == -9
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_the_work_of_a_demos_processes_is_seen(tmp_path: Path) -> None:
    loop = "while True: pass"
    busy = subprocess.Popen(
        [sys.executable, "-c", loop, "jobs.cli.main", f"{tmp_path}/spec.yaml"],
        start_new_session=True,
    )
    other = sleeping("jobs.cli.main", f"{tmp_path}-other/spec.yaml")
    try:
        deadline = time.monotonic() + 30
        while measure_cpu_seconds(str(tmp_path)) < 0.2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert measure_cpu_seconds(f"{tmp_path}-other") < 0.2
    finally:
        for process in (busy, other):
            process.kill()
            process.wait()
