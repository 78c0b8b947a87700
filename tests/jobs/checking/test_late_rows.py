"""An audit leaves out the rows that were too late, as many as the epochs of this state counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.changing.clone import clone
from jobs.changing.rewind import rewind
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from jobs.table.version import TableVersion
from tests.support.jobs.epochs_by_hand import EpochsByHand, spec_of
from tests.support.jobs.running_job import create_topic
from tests.support.jobs.view_jobs import open_views
from tests.support.jobs.windowed_views import KEYS, WINDOWS, at, audited
from tests.support.sampling import quick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = {**WINDOWS, "emit": "changes", "allowed_lateness": "0s"}


@pytest.mark.parametrize("view", quick(["", "windows"], ["windows"]))
def test_late_rows_are_those_that_no_rewind_has_undone_and_a_clone_has_them(
    view: str, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    if view:
        job = open_views(spark, broker, topic, tmp_path, {view: RULES}, **KEYS)
    else:
        spec = spec_of({"source": {"topic": topic}, **KEYS, **RULES})
        job = EpochsByHand(spark, broker.address, tmp_path, spec)
    # Its first epoch closes a window, which takes one of time alone: 2.
    for early, late in ((1, 25), (2, 26), (3, 27)):
        job.epoch_of([(0, at(early)), (0, at(late))])
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        rewind(job.place.at_view(""), "3", admin)
    job.restart()
    job.epoch_of([(0, at(4)), (0, at(28))])  # and those of epoch 4 again
    seen = job.at_view(view)
    assert [each["offset"] for each in seen.late()] == [2, 4, 6]
    assert [row.counts.late_windows for row in seen.epochs()] == [0, 0, 0, 1, 1, 0, 2]
    assert audited(job, view).verdict == "equal"

    copy = JobDirectory(tmp_path, "copy")
    clone(job.place.at_view(""), copy, clone_spec(job.spec, "copy"), None)
    assert TableVersion(copy.at_view(view).table).newest.counts.late_windows == 3
    assert audited(job, view, copy).verdict == "equal"
