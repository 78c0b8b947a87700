"""A job with closing windows that goes back to before its first epoch starts again from there."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.changing.clone import clone
from jobs.changing.rewind import rewind
from jobs.changing.savepoint import create_savepoint
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.job_directory import JobDirectory
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.windowed_views import KEYS, WINDOWS, at

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RULES: dict[str, Any] = {**WINDOWS, "emit": "final"}


@pytest.mark.parametrize("view", ["", "windows"])
def test_a_savepoint_from_before_the_first_epoch_is_restored_and_cloned(
    view: str, by_hand: ByHand
) -> None:
    job = by_hand.views({view: RULES}, **KEYS)
    place = job.place.at_view("")
    saved = create_savepoint(place)
    job.epoch_of([(0, at(1)), (0, at(25))])
    before = job.at_view(view).results()
    assert len(before) == 1

    clone(place, JobDirectory(by_hand.home, "copy"), clone_spec(job.spec, "copy"), saved.name)
    with KafkaAdmin({"bootstrap_servers": [by_hand.brokers]}) as admin:
        rewind(place, saved.name, admin)
    job.restart()
    copied = by_hand.reopen(clone_spec(job.spec, "copy"))
    for each in (job, copied):
        assert each.at_view(view).results() == {}
        each.epoch()
        assert each.at_view(view).results() == before
