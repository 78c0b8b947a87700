"""Two jobs in a chain: the windows of the second close as the time of the first passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from schemas.table.epoch import END_OF_TIME
from tests.support.jobs.chain import feed, jobs_on, totals
from tests.support.jobs.timed_job import MINUTE, NOON, watermark

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]


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


@pytest.mark.faults
def test_nothing_is_late_or_lost_when_both_jobs_are_killed_and_the_second_is_rewound(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    first, second = jobs_on(broker, topic, tmp_path)
    feed(first, ("a", 1, 10), ("tick", 0, 60))
    first.must_run()
    second.must_run()
    feed(first, ("a", 2, 70), ("b", 5, 80), ("tick", 0, 130))
    first.must_die_at("epoch_sent", "kill@1")  # its results are in an open transaction
    second.must_run()
    assert watermark(second.epochs()[-1]) == NOON + MINUTE - 1
    assert totals(second) == {}
    first.must_run()
    second.must_die_at("before_commit", "kill@1")
    second.must_run()
    expected = {("a", 0): 3, ("b", 0): 5}
    assert totals(second) == expected
    rewound = next(row.epoch for row in second.epochs() if row.kind == "data")
    second.ask("rewind", "pairs", "--to", str(rewound), "--brokers", broker.address)
    assert totals(second) != expected
    second.must_run()
    assert totals(second) == expected
    assert not second.part("late")
    emitted = [watermark(row) for row in second.epochs() if row.epoch > rewound]
    assert emitted[-1] == NOON + 130_000 - 1


def test_a_first_job_that_is_rewound_takes_no_time_back(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    first, second = jobs_on(broker, topic, tmp_path)
    feed(first, ("a", 1, 10), ("tick", 0, 60))
    first.must_run()
    before = first.epochs()[-1].epoch
    feed(first, ("a", 2, 70), ("tick", 0, 130))
    first.must_run()
    second.must_run()
    assert totals(second) == {("a", 0): 3}
    first.ask("rewind", "minutes", "--to", str(before), "--brokers", broker.address)
    first.must_run()  # reads the rows again, and publishes what differs
    second.must_run()
    marks = [watermark(row) for row in second.epochs()]
    assert marks == sorted(marks)
    assert totals(second) == {("a", 0): 3}


def test_the_end_of_the_first_job_closes_the_windows_of_both(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    first, second = jobs_on(broker, topic, tmp_path)
    feed(first, ("a", 1, 10), ("tick", 0, 60))
    first.must_run()
    before = first.epochs()[-1].epoch
    feed(first, ("b", 5, 80))
    first.options = ("--drain",)
    first.must_run()
    second.must_run()
    assert totals(second) == {("a", 0): 1, ("b", 0): 5}
    assert [job.epochs()[-1].watermark for job in (first, second)] == [END_OF_TIME] * 2
    first.must_run()  # nothing is left to publish
    first.options = ()
    feed(first, ("c", 7, 100))
    code, output = first.run()
    assert (code, "was drained" in output) == (1, True), output
    first.ask("rewind", "minutes", "--to", str(before), "--brokers", broker.address)
    first.must_run()
    assert first.epochs()[-1].watermark == NOON + 100_000 - 1
    assert not first.part("late")
