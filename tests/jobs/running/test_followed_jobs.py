"""Two jobs in a chain: the windows of the second close as the time of the first passes.

rows ──► job 1: windows of a minute ──► changelog, progress ──► job 2: windows of two minutes
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import RunningJob, create_topic, produce
from tests.support.jobs.timed_job import MINUTE, NOON, watermark

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]


def jobs_on(broker: Broker, topic: str, home: Path) -> tuple[RunningJob, RunningJob]:
    create_topic(broker.address, topic, 1)
    first: dict[str, Any] = {
        "name": "minutes",
        "source": {"topic": topic},
        "columns": {"name": "STRING", "cnt": "INT", "at": "BIGINT"},
        "query": "SELECT name, window_start AS minute, SUM(cnt) AS n FROM t "
        "WHERE name <> 'tick' GROUP BY name, TUMBLE(at, INTERVAL '1' MINUTE)",
        "emit": "final",
        "watermark": {"time": {"column": "at"}},
        "minibatch": {"size": 1, "latency": "100ms"},
        "sink": {"topic": f"{topic}-minutes", "partitions": 3},
        "state": {"buckets": 2},
    }
    second: dict[str, Any] = {
        "name": "pairs",
        "source": {"topic": f"{topic}-minutes", "format": "changelog-json"},
        "columns": {"name": "STRING", "minute": "BIGINT", "n": "INT"},
        "query": "SELECT name, window_start, SUM(n) AS total FROM minutes "
        "GROUP BY name, TUMBLE(minute, INTERVAL '2' MINUTE)",
        "emit": "final",
        "watermark": {"from": "progress"},
        "minibatch": {"size": 1, "latency": "100ms"},
        "state": {"buckets": 2},
    }
    return (
        RunningJob(first, home / "minutes", broker.address),
        RunningJob(second, home / "pairs", broker.address),
    )


def feed(job: RunningJob, *rows: tuple[str, int, int]) -> None:
    """Produce rows: their names, counts and seconds after noon."""
    text = '{"type":"INSERT","data":[{"name":"%s","cnt":"%d","at":"%d"}]}'
    values = [(text % (name, cnt, NOON + 1_000 * at)).encode() for name, cnt, at in rows]
    produce(job.brokers, job.spec["source"]["topic"], [(0, value) for value in values])


def totals(job: RunningJob) -> dict[tuple[str, int], int]:
    """Return the results of the second job, by name and by the minute after noon."""
    return {
        (row["name"], (row["window_start"] - NOON) // MINUTE): row["total"]
        for row in job.ask("results", "pairs")
    }


def test_windows_over_a_changelog_close_as_the_time_of_the_first_job_passes(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    first, second = jobs_on(broker, topic, tmp_path)
    feed(first, ("a", 1, 10), ("a", 2, 70), ("b", 5, 80), ("tick", 0, 120))
    first.must_run()
    second.must_run()
    assert watermark(second.epochs()[-1]) == NOON + 2 * MINUTE - 1
    assert totals(second) == {("a", 0): 3, ("b", 0): 5}
    feed(first, ("a", 7, 130), ("tick", 0, 180))
    first.must_run()
    second.must_run()
    assert totals(second) == {("a", 0): 3, ("b", 0): 5}, "minute 3 may still come"
    assert watermark(second.epochs()[-1]) == NOON + 3 * MINUTE - 1
    feed(first, ("tick", 0, 600))  # no result of the first job, only time
    first.must_run()
    second.must_run()
    assert totals(second) == {("a", 0): 3, ("b", 0): 5, ("a", 2): 7}
    held = second.epochs()[-1].time.held_by
    assert held[0].endswith("follows the progress of the job that writes it")
    assert not second.part("late")
