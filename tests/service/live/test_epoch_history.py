"""The course of a job: bounded, complete where it says something, and silent where it does not
know."""

from __future__ import annotations

from schemas.limits import COURSE_EPOCHS_MAX, COURSE_SLOTS_MAX
from schemas.table.epoch import EpochRow
from service.live.epoch_history import SLOT_MS, Behind, Course

BEGAN = 1_767_225_600_000


def row(epoch: int, at_ms: int, **counters: float) -> EpochRow:
    return EpochRow(
        epoch=epoch, uuid="u", generation=1, kind="data", committed_at=at_ms * 1_000,
        plan="p", offsets={}, counters=counters,
    )  # fmt: skip


def test_epochs_of_ten_seconds_are_one_slot() -> None:
    course = Course()
    course.reached(row(1, BEGAN, read=10, changelog_rows=3, event_lag_ms=500))
    course.reached(row(2, BEGAN + 4_000, read=30, changelog_rows=5, event_lag_ms=200))
    course.behind(Behind(BEGAN + 5_000, 7, {"t/0": 7}))
    (slot,) = course.slots
    assert (slot.epochs, slot.read, slot.changes) == (2, 40, 8)
    assert slot.read_per_second == 4.0
    assert slot.delay_ms == 500
    assert slot.lag == 7


def test_what_nobody_saw_is_not_there() -> None:
    course = Course()
    course.reached(row(1, BEGAN))
    course.reached(row(2, BEGAN + 5 * SLOT_MS))
    assert [slot.at_ms for slot in course.slots] == [BEGAN, BEGAN + 5 * SLOT_MS]
    assert course.slots[0].lag is None
    assert course.slots[0].delay_ms is None


def test_an_epoch_that_is_told_twice_counts_once() -> None:
    course = Course()
    rows = [row(epoch, BEGAN + epoch * 1_000, read=1) for epoch in range(5)]
    course.begin(rows)
    course.reached(rows[-1])
    assert [point.epoch for point in course.epochs] == [0, 1, 2, 3, 4]
    assert sum(slot.read for slot in course.slots) == 5


def test_a_table_that_is_begun_anew_keeps_the_lags_and_nothing_else() -> None:
    course = Course()
    course.reached(row(9, BEGAN, read=100))
    course.behind(Behind(BEGAN, 0, {}))
    course.begin([row(0, BEGAN + SLOT_MS, read=1)])
    assert [point.epoch for point in course.epochs] == [0]
    assert [(slot.read, slot.lag) for slot in course.slots] == [(0, 0), (1, None)]


def test_an_epoch_is_told_its_commit_by_the_one_after_it() -> None:
    course = Course()
    for epoch, commit in ((1, None), (2, 40.0), (5, 99.0)):
        phases = {"plan": 20.0, "tasks": 100.0, "judge": 10.0} | (
            {"commit": commit} if commit else {}
        )
        told = row(epoch, BEGAN + epoch * 1_000, compute_seconds=0.13)
        told.counters["phases_ms"] = phases
        course.reached(told)
    assert [point.commit for point in course.epochs] == [0.04, None, None]
    assert course.epochs[0].planning == 0.03


def test_it_is_bounded_however_long_a_job_runs() -> None:
    course = Course()
    for epoch in range(2 * COURSE_SLOTS_MAX):
        course.reached(row(epoch, BEGAN + epoch * SLOT_MS))
    assert len(course.epochs) == COURSE_EPOCHS_MAX
    assert len(course.slots) == COURSE_SLOTS_MAX
    assert course.slots[-1].at_ms == BEGAN + (2 * COURSE_SLOTS_MAX - 1) * SLOT_MS
