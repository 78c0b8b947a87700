"""What time makes due in a running job's state: groups expire, withheld results come out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import RunningJob, create_topic, produce
from tests.support.jobs.timed_job import MINUTE, NOON, inserted, spec_of

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]


def changelog(job: RunningJob) -> list[tuple[str, str, int]]:
    rows = sorted(job.part("changelog"), key=lambda row: (row["epoch"], row["seq"]))
    return [(row["op"], row["name"], row["n"]) for row in rows]


def results(job: RunningJob) -> dict[str, int]:
    return {row["name"]: row["n"] for row in job.ask("results", job.spec["name"])}


def event_clock(topic: str) -> dict[str, Any]:
    spec = spec_of(topic, {"time": "es"})
    return {**spec, "minibatch": {"clock": "event", "interval": "1m"}}


def test_withheld_results_come_out_once_after_a_crash_and_without_the_cache(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    job = RunningJob(event_clock(topic), tmp_path, broker.address)

    def lose_the_cache() -> None:
        shutil.rmtree(job.data / "cache")

    produce(broker.address, topic, [(0, inserted(NOON, "a")), (0, inserted(NOON + 5, "b"))])
    job.must_die_at("after_commit", "kill@2")  # the start's is the first
    output = job.epochs()[-1]
    assert (output.kind, output.watermarks["agenda"]["ending"]) == ("data", True)
    assert output.time.published_watermark is None, "results first"
    assert changelog(job) == []
    assert results(job) == {}
    lose_the_cache()
    job.must_run()
    assert sorted(changelog(job)) == [("+I", "a", 1), ("+I", "b", 1)]
    assert job.epochs()[-1].time.published_watermark == NOON + 4

    produce(broker.address, topic, [(0, inserted(NOON + MINUTE // 2, "a"))])
    job.must_run()
    assert results(job) == {"a": 1, "b": 1}, "a caught up job is not at the end of its input"
    assert job.epochs()[-1].watermarks["agenda"]["withheld"] == 1
    (report,) = job.ask("audit", "timed", "--brokers", broker.address)
    assert (report["verdict"], report["groups"]) == ("equal", 2), "held to what is shown"
    lose_the_cache()
    late, boundary = inserted(NOON, "c"), inserted(NOON + MINUTE, "b")
    produce(broker.address, topic, [(0, late), (0, boundary)])
    job.must_run()
    assert sorted(changelog(job)[2:]) == [
        ("+I", "c", 1),
        ("+U", "a", 2),
        ("+U", "b", 2),
        ("-U", "a", 1),
        ("-U", "b", 1),
    ]
    assert results(job) == {"a": 2, "b": 2, "c": 1}
    released = job.epochs()[-1]
    assert released.kind == "time"
    assert released.time.published_watermark == NOON + MINUTE - 1
