"""Restore a savepoint after retention has removed all epochs of its time, or refuse it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from jobs.changing.clone import clone
from jobs.changing.savepoint import create_savepoint
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.source import SourceChanged
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.reading import TableReader
from jobs.reading.savepoints import Savepoint
from jobs.running.maintenance import Maintenance
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand
from tests.support.jobs.windowed_views import KEYS, WINDOWS, at
from tests.support.sampling import quick

RULES: dict[str, Any] = {**WINDOWS, "emit": "changes", "allowed_lateness": "0s"}
WHOLE_BY_KEY = "SELECT k, COUNT(*) AS times FROM t GROUP BY k"
RETENTION_SECONDS = 0.2


@pytest.fixture(params=quick(["", "windows"], ["windows"]))
def view(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def job(view: str, by_hand: ByHand) -> EpochsByHand:
    keys = {**KEYS, "retention": f"{RETENTION_SECONDS * 1_000:.0f}ms"}
    others = {"whole": "SELECT COUNT(*) AS n FROM t", "keys": WHOLE_BY_KEY} if view else {}
    return by_hand.views({view: RULES, **others}, **keys)


def save_and_expire(job: EpochsByHand) -> Savepoint:
    """Return a savepoint with one late row; retention then removes its epoch and a later one."""
    place = job.place.at_view("")
    for early, late in ((1, 25), (2, 26)):
        job.epoch_of([(0, at(early)), (0, at(late))])
    saved = create_savepoint(place)
    for early, late in ((3, 27), (4, 28)):
        job.epoch_of([(0, at(early)), (0, at(late))])
    expire(job)
    assert job.epochs()[0].epoch > saved.row.epoch + 1, "retention has removed too little"
    return saved


def expire(job: EpochsByHand) -> None:
    time.sleep(RETENTION_SECONDS)
    Maintenance(job.pipeline, job.place.home).remove_expired(None)
    job.restart()


def count_late(job: EpochsByHand, view: str) -> int:
    counted = TableReader.open(job.at_view(view).place).counted_epochs
    return sum(row.counts.late_windows for row in counted)


@pytest.mark.slow
def test_a_savepoint_that_is_older_than_all_kept_epochs_is_restored_and_audited(
    job: EpochsByHand, view: str, tmp_path: Path
) -> None:
    saved = save_and_expire(job)
    place, seen = job.place.at_view(""), job.at_view(view)
    copy = JobDirectory(tmp_path, "copy")
    clone(place, copy, clone_spec(job.spec, "copy"), saved.name)
    assert TableReader.open(copy.at_view(view)).newest.counts.late_windows == 1
    assert job.audit(view, copy).verdict == "equal"

    done = job.rewind(saved.name)
    assert done.row is not None and done.row.offsets == saved.row.offsets
    assert [each["offset"] for each in seen.late()] == [2]
    assert job.audit(view).verdict == "equal"
    job.restart()
    job.epoch()
    assert [each["offset"] for each in seen.late()] == [2, 4, 6]
    assert count_late(job, view) == 3
    for each in job.spec.view_specs:
        assert job.audit(each).verdict == "equal", each

    expire(job)
    assert all(row.kind != "rewind" for row in job.epochs()), "retention has left the rewind"
    assert count_late(job, view) == 3


def test_a_savepoint_whose_later_records_are_gone_from_the_topic_is_refused(
    job: EpochsByHand, topic: str
) -> None:
    saved = save_and_expire(job)
    client = KafkaAdminClient(bootstrap_servers=[job.brokers])
    client.delete_records({TopicPartition(topic, 0): 5})
    client.close()
    before = job.epochs()
    with pytest.raises(SourceChanged, match="retention has removed everything before 5"):
        job.rewind(saved.name)
    assert job.epochs() == before
