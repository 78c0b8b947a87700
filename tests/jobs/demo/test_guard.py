"""The guard leaves no process of a demo behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.demo.guard import guard

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="the guard reads /proc")


def sleeping(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", *arguments], start_new_session=True
    )


def test_what_the_demo_could_not_stop_is_killed_and_nothing_else(tmp_path: Path) -> None:
    mine = sleeping("jobs.cli.main", f"{tmp_path}/service/spec.yaml")
    other = sleeping("jobs.cli.main", f"{tmp_path}-other/spec.yaml")
    try:
        with guard(tmp_path):
            pass
        assert mine.wait(10) == -9
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()
