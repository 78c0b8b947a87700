"""Two jobs in a chain: the windows of the second close as the time of the first passes.

rows ──► job 1: windows of a minute ──► changelog, progress ──► job 2: windows of two minutes
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import RunningJob, create_topic, produce
from tests.support.jobs.timed_job import MINUTE, NOON


def jobs_on(
    broker: Broker, topic: str, home: Path, partitions: int = 1
) -> tuple[RunningJob, RunningJob]:
    """Create the topic; return both jobs, which have not run."""
    create_topic(broker.address, topic, partitions)
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
        "sink": {"topic": f"{topic}-pairs", "partitions": 2},
        "state": {"buckets": 2},
    }
    return (
        RunningJob(first, home / "minutes", broker.address),
        RunningJob(second, home / "pairs", broker.address),
    )


def message(name: str, cnt: int, seconds: float, kind: str = "INSERT") -> bytes:
    """Return a change of a row whose time is so long after noon."""
    at = NOON + int(1_000 * seconds)
    row = f'{{"name":"{name}","cnt":"{cnt}","at":"{at}"}}'
    return f'{{"type":"{kind}","data":[{row}]}}'.encode()


def feed(job: RunningJob, *rows: tuple[str, int, int]) -> None:
    """Produce rows: their names, counts and seconds after noon."""
    produce(job.brokers, job.spec["source"]["topic"], [(0, message(*row)) for row in rows])


def totals(job: RunningJob) -> dict[tuple[str, int], int]:
    """Return the results of the second job, by name and by the minute after noon."""
    return {
        (row["name"], (row["window_start"] - NOON) // MINUTE): row["total"]
        for row in job.ask("results", "pairs")
    }
