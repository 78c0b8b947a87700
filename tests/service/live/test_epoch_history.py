"""The history of a job: bounded, complete where it says something, and silent where it does not
know."""

from __future__ import annotations

from pathlib import Path

from schemas.limits import HISTORY_DAY_SLOTS_MAX, HISTORY_EPOCHS_MAX, HISTORY_SLOTS_MAX
from schemas.table.epoch import EpochRow
from service.live.epoch_history import DAY_SLOT_MS, HOUR_MS, SLOT_MS, EpochHistory, LagPoint
from tests.support.epoch_rows import epoch_row

BEGAN = 1_767_225_600_000


def row(epoch: int, at_ms: int, **counters: float) -> EpochRow:
    return epoch_row(epoch, committed_at=at_ms * 1_000, counters=counters)


def test_epochs_of_ten_seconds_are_one_slot() -> None:
    history = EpochHistory()
    history.add_epoch(row(1, BEGAN, read=10, changelog_rows=3, event_lag_ms=500))
    history.add_epoch(row(2, BEGAN + 4_000, read=30, changelog_rows=5, event_lag_ms=200))
    history.record_lag(LagPoint(BEGAN + 5_000, 7, {"t/0": 7}))
    (slot,) = history.slots_of()
    assert (slot.read, slot.changes) == (40, 8)
    assert slot.read_per_second == 4.0
    assert slot.delay_ms == 500
    assert slot.lag == 7


def test_what_nobody_saw_is_not_there() -> None:
    history = EpochHistory()
    history.add_epoch(row(1, BEGAN))
    history.add_epoch(row(2, BEGAN + 5 * SLOT_MS))
    assert [slot.at_ms for slot in history.slots_of()] == [BEGAN, BEGAN + 5 * SLOT_MS]
    assert history.slots_of()[0].lag is None
    assert history.slots_of()[0].delay_ms is None


def test_an_epoch_that_is_told_twice_counts_once() -> None:
    history = EpochHistory()
    rows = [row(epoch, BEGAN + epoch * 1_000, read=1) for epoch in range(5)]
    history.reset(rows)
    history.add_epoch(rows[-1])
    assert [point.epoch for point in history.epochs] == [0, 1, 2, 3, 4]
    assert sum(slot.read for slot in history.slots_of()) == 5


def test_a_table_that_is_begun_anew_keeps_the_lags_and_nothing_else() -> None:
    history = EpochHistory()
    history.add_epoch(row(9, BEGAN, read=100))
    history.record_lag(LagPoint(BEGAN, 0, {}))
    history.reset([row(0, BEGAN + SLOT_MS, read=1)])
    assert [point.epoch for point in history.epochs] == [0]
    assert [(slot.read, slot.lag) for slot in history.slots_of()] == [(0, 0), (1, None)]


def test_an_epoch_is_told_its_commit_by_the_one_after_it() -> None:
    history = EpochHistory()
    for epoch, commit in ((1, None), (2, 40.0), (5, 99.0)):
        phases = {"plan": 20.0, "tasks": 100.0, "check": 10.0} | (
            {"commit": commit} if commit else {}
        )
        newest = row(epoch, BEGAN + epoch * 1_000, compute_seconds=0.13)
        newest.counters["phases_ms"] = phases
        history.add_epoch(newest)
    assert [point.commit for point in history.epochs] == [0.04, None, None]
    assert history.epochs[0].planning == 0.03


def test_it_is_bounded_however_long_a_job_runs() -> None:
    history = EpochHistory()
    for epoch in range(2 * HISTORY_SLOTS_MAX):
        history.add_epoch(row(epoch, BEGAN + epoch * SLOT_MS))
    assert len(history.epochs) == HISTORY_EPOCHS_MAX
    assert len(history.slots_of()) == HISTORY_SLOTS_MAX
    assert history.slots_of()[-1].at_ms == BEGAN + (2 * HISTORY_SLOTS_MAX - 1) * SLOT_MS


def test_the_history_survives_the_service(tmp_path: Path) -> None:
    path = tmp_path / "items" / "history.json"
    history = EpochHistory(path)
    for epoch in range(1, 8):
        history.add_epoch(row(epoch, BEGAN + epoch * DAY_SLOT_MS, read=3))
    history.record_lag(LagPoint(BEGAN + DAY_SLOT_MS, 12, {}))
    history.save()
    again = EpochHistory(path)
    assert again.slots_of() == history.slots_of()
    day = again.slots_of(24 * HOUR_MS)
    assert [(slot.seconds, slot.read, slot.lag) for slot in day][:2] == [
        (120, 3, 12),
        (120, 3, None),
    ]
    # The next service reads the newest epochs of the table: they count once.
    again.reset([row(epoch, BEGAN + epoch * DAY_SLOT_MS, read=3) for epoch in (6, 7)])
    assert [slot.read for slot in again.slots_of(24 * HOUR_MS)] == [3] * 7
    path.write_text("{")
    assert EpochHistory(path).slots_of() == []


def test_a_day_is_bounded_too() -> None:
    history = EpochHistory()
    for epoch in range(HISTORY_DAY_SLOTS_MAX + 9):
        history.add_epoch(row(epoch, BEGAN + epoch * DAY_SLOT_MS))
    assert len(history.slots_of(24 * HOUR_MS)) == HISTORY_DAY_SLOTS_MAX
