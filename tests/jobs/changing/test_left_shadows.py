"""The shadow job of an evolve leaves nothing behind, wherever the evolve is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from jobs.changing.evolve import prepare_replay
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.process.fence import OwnedElsewhere, WriterLock
from jobs.running import shadow_job
from schemas.directory.paths import JobDirectory
from schemas.spec.file import load_spec
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.running_job import RunningJob, create_topic, produce
from tests.support.service.served import eventually

pytestmark = [pytest.mark.spark, pytest.mark.broker]

MARK = "RETALLY_TEST_MARK"  # in the environment of a process and of all that it starts
SUMS = "SELECT k, SUM(v) AS s FROM t GROUP BY k"
BY_VALUE = "SELECT v, COUNT(*) AS times FROM t WHERE v > 1 GROUP BY v"
LARGE = "SELECT k, SUM(v) AS s FROM t WHERE v > 1 GROUP BY k"


@contextmanager
def marked(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark the processes that the body starts; they have to end."""
    mark = uuid4().hex
    with patch.context() as own:
        own.setenv(MARK, mark)
        yield mark
    eventually(lambda: not find_marked(mark), 30)


def find_marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:  # it has ended
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "views",
    [pytest.param(False, id="one query", marks=pytest.mark.faults), pytest.param(True, id="views")],
)
def test_the_next_start_deletes_the_shadow_job_of_an_evolve_that_was_killed_after_its_commit(
    views: bool, broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.address, topic, 1)
    spec: dict[str, Any] = {"name": "items", "source": {"topic": topic}}
    spec["columns"] = {"k": "STRING", "v": "INT"}
    sink = {"topic": f"{topic}-changes", "partitions": 1}
    state = {"buckets": 3}
    if views:
        spec["views"] = {"sums": {"query": SUMS, "sink": sink, "state": state}}
    else:
        spec |= {"query": SUMS, "sink": sink, "state": state}
    job = RunningJob(spec, tmp_path, broker.address)
    produce(broker.address, topic, [(0, insert(row("a", 1), row("a", 5), row("b", 2)))])
    job.must_run()

    if views:
        spec["views"]["by-value"] = {"query": BY_VALUE, "state": state}
    else:
        spec["query"] = LARGE
    again = ("--replay", "--brokers", broker.address)
    with marked(monkeypatch):
        job.evolve(*again, "--beside")
    with marked(monkeypatch):
        job.evolve(*again, failpoints="after_commit=kill", code=-9)
    shadow = JobDirectory(job.data, "items").shadow
    assert shadow.has_table

    job.must_run()
    assert not shadow.data.exists()
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        topics = {name for name in admin.topics() if name.startswith(topic)}
    assert topics == {topic, f"{topic}-changes", f"{topic}-changes-progress"}
    wanted = [{"v": 2, "times": 1}, {"v": 5, "times": 1}] if views else [{"k": "a", "s": 5}]
    found = job.ask("results", "items", *(("--view", "by-value") if views else ()))
    assert [each for each in wanted if each not in found] == []
    (report,) = job.ask("audit", "items", "--brokers", broker.address)
    assert report["verdict"] == "equal"
    assert "has this query already" in job.evolve()


def test_a_start_keeps_a_shadow_job_that_may_be_continued_and_no_other(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"k": "STRING", "v": "INT"}
    job = by_hand.views({"sums": SUMS}, columns=columns)
    job.epoch_of([(0, insert(row("a", 1), row("b", 2)))])
    place, newest = job.place.at_view(""), job.pipeline.newest
    document = job.spec.document()
    document["views"]["large"] = {"query": BY_VALUE, "state": {"buckets": 4}}
    spec = load_spec(document)

    shadow_job.discard_left_shadow(place, newest)  # there is none
    shadow = prepare_replay(place, spec).shadow
    shadow_job.discard_left_shadow(place, newest)
    assert shadow.has_table, "the same command may continue it"

    monkeypatch.setattr(shadow_job, "SHADOW_UNUSED_SECONDS_MAX", -1)  # a week later
    reading = WriterLock(shadow.lock, shadow.name)
    shadow_job.discard_left_shadow(place, newest)
    assert shadow.has_table, "a process reads in it"
    with pytest.raises(OwnedElsewhere):
        prepare_replay(place, spec)
    reading.release()
    shadow_job.discard_left_shadow(place, newest)
    assert not shadow.data.exists()

    (shadow.home / "epochs.partial").mkdir(parents=True)  # killed while it created its table
    shadow_job.discard_left_shadow(place, newest)
    assert not shadow.data.exists()
