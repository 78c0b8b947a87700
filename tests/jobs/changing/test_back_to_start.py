"""A job with closing windows that goes back to before its first epoch starts again from there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.changing.clone import clone
from jobs.changing.rewind import rewind
from jobs.changing.savepoint import create_savepoint
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from tests.support.jobs.epochs_by_hand import EpochsByHand, spec_of
from tests.support.jobs.running_job import create_topic
from tests.support.jobs.view_jobs import open_views
from tests.support.jobs.windowed_views import KEYS, WINDOWS, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RULES: dict[str, Any] = {**WINDOWS, "emit": "final"}


@pytest.mark.parametrize("view", ["", "windows"])
def test_a_savepoint_from_before_the_first_epoch_is_restored_and_cloned(
    view: str, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    if view:
        job = open_views(spark, broker, topic, tmp_path, {view: RULES}, **KEYS)
    else:
        spec = spec_of({"source": {"topic": topic}, **KEYS, **RULES})
        job = EpochsByHand(spark, broker.address, tmp_path, spec)
    place = job.place.at_view("")
    saved = create_savepoint(place)
    job.epoch_of([(0, at(1)), (0, at(25))])
    before = job.at_view(view).results()
    assert len(before) == 1

    clone(place, JobDirectory(tmp_path, "copy"), clone_spec(job.spec, "copy"), saved.name)
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        rewind(place, saved.name, admin)
    job.restart()
    copied = EpochsByHand(spark, broker.address, tmp_path, clone_spec(job.spec, "copy"))
    for each in (job, copied):
        assert each.at_view(view).results() == {}
        each.epoch()
        assert each.at_view(view).results() == before
