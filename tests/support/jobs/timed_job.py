"""A running job whose rows have times."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from schemas.table.epoch import EpochRow
from tests.support.jobs.running_job import RunningJob

WAIT_SECONDS = 90
NOON = 1_767_268_800_000  # 2026-01-01 12:00:00
MINUTE = 60_000


def spec_of(topic: str, watermark: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "timed",
        "source": {"topic": topic},
        "columns": {"name": "STRING", "cnt": "INT"},
        "query": "SELECT name, COUNT(*) AS n FROM t GROUP BY name",
        "minibatch": {"size": 1, "latency": "200ms"},
        "watermark": watermark,
        "state": {"buckets": 2},
    }


def inserted(es: int, name: str = "a") -> bytes:
    text = '{"data":[{"name":"%s","cnt":"1"}],"type":"INSERT","isDdl":false,"es":%d,"ts":%d}'
    return (text % (name, es, es)).encode()


@contextmanager
def running(job: RunningJob) -> Iterator[subprocess.Popen[str]]:
    process = job.start(caught_up=False)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode in (0, -signal.SIGKILL), output


def await_row(
    job: RunningJob, process: subprocess.Popen[str], seen: Callable[[EpochRow], bool]
) -> EpochRow:
    """Wait for the first epoch row for which `seen` is true, and return it."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            output, _ = process.communicate()
            pytest.fail(f"the job ended: {output}")
        if (job.table / "_delta_log").exists():
            for row in job.epochs():
                if seen(row):
                    return row
        time.sleep(0.3)
    newest = job.epochs()[-1]
    pytest.fail(f"not seen; the newest epoch is {newest}")


def watermark(row: EpochRow) -> int:
    return int(row.watermarks.get("combined", -1))
