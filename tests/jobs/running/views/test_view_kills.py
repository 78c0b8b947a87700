"""Kills of a job with three views: after each, every view and every topic is exact.

random history, in parts ──► retally run, killed at a failpoint ──► run again ──► for each view
        its results == DuckDB's, its topic == its changelog, all topics with the same progress
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from tests.support.faults.tally import FaultTally
from tests.support.histories.products import history
from tests.support.jobs.running_job import RunningJob, consumed, produce
from tests.support.jobs.shop_views import make_shop_views, views_must_be_exact

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(2_400)]

# A failpoint, and at which passing it kills: the second one of the fold is between two views.
POINTS = (
    "start_checked",
    "publisher_fenced",
    "decode_task",
    "fold_task",
    "fold_task@2",
    "hot_state_written",
    "hot_state_half_built",
    "after_tasks",
    "before_commit",
    "after_commit",
    "epoch_sent",
    "publish_begun",
    "publish_produced",
    "publish_committed",
)
DEDUPE: dict[str, Any] = {"primary_key": ["id"], "dedupe": "pk"}
LOSES_CACHE = frozenset({"hot_state_half_built"})
ROUNDS = 2
MESSAGES_BETWEEN_KILLS = 40


@pytest.mark.parametrize("keys", [{}, DEDUPE], ids=["plain", "dedupe"])
def test_a_job_with_three_views_that_is_killed_loses_and_repeats_nothing_in_any_view(
    keys: dict[str, Any], broker: Broker, tmp_path: Path
) -> None:
    job = make_shop_views(broker.address, f"views-{uuid.uuid4().hex[:8]}", tmp_path, **keys)
    tally = FaultTally("kills of a job with three views" + (", dedupe" if keys else ""))
    kills = (*POINTS, *(["dedupe_task"] if keys else [])) * ROUNDS
    made = history(61, (len(kills) + 1) * MESSAGES_BETWEEN_KILLS).messages
    starts = range(0, len(made), MESSAGES_BETWEEN_KILLS)
    first, *parts = [made[at : at + MESSAGES_BETWEEN_KILLS] for at in starts]
    produce(broker.address, job.spec["source"]["topic"], ((m.partition, m.value) for m in first))
    job.must_run()
    sent = list(first)
    for point, part in zip(kills, parts, strict=False):
        produce(broker.address, job.spec["source"]["topic"], ((m.partition, m.value) for m in part))
        sent += part
        die(job, point, tally)
        job.must_run()
        views_must_be_exact(job, sent)
    (audited,) = job.ask("audit", "items", "--brokers", broker.address)
    assert audited["verdict"] == "equal"
    tally.inputs = len(sent)
    topics = [view["sink"]["topic"] for view in job.spec["views"].values()]
    tally.outputs = sum(len(consumed(broker.address, topic)) for topic in topics)
    tally.close()


def die(job: RunningJob, point: str, tally: FaultTally) -> None:
    """Run the job until the failpoint ends it: the driver, a worker or the publisher is killed."""
    tally.plan(point)
    for mark in job.marks.iterdir():
        mark.unlink()
    if point in LOSES_CACHE:
        shutil.rmtree(JobDirectory(job.data, str(job.spec["name"])).cache)
    name, _, passing = point.partition("@")
    code, output = job.run(f"{name}=kill@{passing or 1}")
    assert code != 0, f"{point}: {output}"
    assert job.fired(name), f"{point}: {output}"
    tally.fire(point)
