"""An audit leaves out the rows that were too late, as many as the epochs of this state counted."""

from __future__ import annotations

import pytest

from jobs.changing.clone import clone
from jobs.core.job.cloning import clone_spec
from jobs.edge.process.job_directory import JobDirectory
from jobs.reading.version import TableVersion
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.windowed_views import KEYS, WINDOWS, at
from tests.support.sampling import quick

RULES = {**WINDOWS, "emit": "changes", "allowed_lateness": "0s"}


@pytest.mark.parametrize("view", quick(["", "windows"], ["windows"]))
def test_late_rows_are_those_that_no_rewind_has_undone_and_a_clone_has_them(
    view: str, by_hand: ByHand
) -> None:
    job = by_hand.views({view: RULES}, **KEYS)
    # Its first epoch closes a window, which takes one of time alone: 2.
    for early, late in ((1, 25), (2, 26), (3, 27)):
        job.epoch_of([(0, at(early)), (0, at(late))])
    job.rewind("3")
    job.restart()
    job.epoch_of([(0, at(4)), (0, at(28))])  # and those of epoch 4 again
    seen = job.at_view(view)
    assert [each["offset"] for each in seen.late()] == [2, 4, 6]
    assert [row.counts.late_windows for row in seen.epochs()] == [0, 0, 0, 1, 1, 0, 2]
    assert job.audit(view).verdict == "equal"

    copy = JobDirectory(by_hand.home, "copy")
    clone(job.place.at_view(""), copy, clone_spec(job.spec, "copy"), None)
    assert TableVersion(copy.at_view(view).table).newest.counts.late_windows == 3
    assert job.audit(view, copy).verdict == "equal"
