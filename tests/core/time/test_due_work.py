"""DueWork knows when time makes work due, and forgets nothing over a restart."""

from __future__ import annotations

import msgspec
import pytest

from jobs.core.fold.window_closing import Closing
from jobs.core.plan.tree import Column, Window
from jobs.core.time.due_work import DueWork, Work, refuse_other_windows
from schemas.spec.job import MiniBatch
from schemas.table.epoch import DueWorkSnapshot
from schemas.types.sql_types import BIGINT

PROCESSING = MiniBatch()
PROMPT = MiniBatch.model_validate({"latency": "1ms"})
EVENT = MiniBatch.model_validate({"clock": "event", "interval": "10ms"})
SIZED = MiniBatch.model_validate({"clock": "event", "interval": "10ms", "size": 5})
TTL_MS = 1_000


def fresh(minibatch: MiniBatch = PROCESSING, ttl_ms: int = 0) -> DueWork:
    return DueWork(minibatch, ttl_ms, None, fresh=True)


def restarted(due_work: DueWork, minibatch: MiniBatch, ttl_ms: int = 0) -> DueWork:
    """What a new process knows, from the JSON of an epoch row."""
    text = msgspec.json.encode(due_work.snapshot())
    snapshot = msgspec.json.decode(text, type=DueWorkSnapshot | None)
    return DueWork(minibatch, ttl_ms, snapshot, fresh=False)


def test_a_job_without_ttl_and_event_clock_has_nothing_to_say() -> None:
    due_work = fresh()
    due_work.observe_fold(7, [{}])
    due_work.observe_watermark(10**12)
    assert due_work.due(10**15) is None
    assert due_work.snapshot() is None
    assert due_work.released is None


def test_a_job_opens_groups_once_before_anything_else() -> None:
    due_work = DueWork(EVENT, 0, None, fresh=True, opens=True)
    due = due_work.due(5)
    assert due == Work(5, release=False, opens=True)
    due_work.complete(due, [{}])
    assert due_work.due(10**15) is None


@pytest.mark.parametrize("again", [False, True])
def test_the_first_timer_that_any_fold_reports_is_due_at_its_time(again: bool) -> None:
    due_work = fresh(ttl_ms=TTL_MS)
    due_work.observe_fold(3, [{"processing": 5_000}, {"processing": 4_000, "event": 7}, {}])
    due_work.observe_fold(3, [{"processing": 6_000}])
    if again:
        due_work = restarted(due_work, PROCESSING, TTL_MS)
    assert due_work.due(3_999) is None
    due = due_work.due(4_000)
    assert due == Work(4_000, release=False)
    due_work.complete(due, [{"processing": 4_600}, {"processing": 5_000}, {}])
    assert due_work.due(4_599) is None
    assert due_work.due(4_600) is not None


def test_when_every_group_is_gone_there_is_no_timer() -> None:
    due_work = fresh(ttl_ms=TTL_MS)
    due_work.observe_fold(1, [{"processing": 10}])
    due_work.complete(Work(20, release=False), [{}, {}])
    assert due_work.due(10**15) is None


def test_many_groups_that_expire_one_after_the_other_make_few_epochs() -> None:
    due_work = fresh(ttl_ms=100_000)
    epochs = 0
    due_work.observe_fold(1, [{"processing": 100_000}])
    for now in range(100_000, 110_000):
        due = due_work.due(now)
        if due is not None:
            epochs += 1
            due_work.complete(due, [{"processing": now + 1}])
    assert epochs == 10, "one for each hundredth of the TTL"


def test_what_nobody_knows_is_looked_at_once() -> None:
    """A TTL that a spec has got since: the table may have groups with timers of before."""
    due_work = restarted(fresh(), PROCESSING, TTL_MS)
    due = due_work.due(5)
    assert due is not None
    due_work.complete(due, [{"processing": 2_000}])
    assert due_work.due(1_999) is None


def test_time_does_not_go_back_over_a_restart() -> None:
    due_work = fresh(ttl_ms=TTL_MS)
    assert due_work.advance(500) == 500
    assert restarted(due_work, PROCESSING, TTL_MS).advance(400) == 500


@pytest.mark.parametrize("again", [False, True])
def test_a_bundle_ends_when_the_watermark_has_reached_its_boundary(again: bool) -> None:
    due_work = fresh(EVENT)
    assert due_work.withholds
    due_work.observe_fold(3, [{}])
    due_work.observe_watermark(None)
    due_work.observe_watermark(8)
    assert due_work.due(0) is None
    due_work.observe_watermark(12)
    if again:
        due_work = restarted(due_work, EVENT)
    due = due_work.due(0)
    assert due is not None and due.release
    assert due_work.released is None, "its results are not out yet"
    due_work.complete(due, [{}])
    assert due_work.released == 12
    assert due_work.due(0) is None
    due_work.observe_fold(1, [])
    due_work.observe_watermark(18)
    assert due_work.due(0) is None
    due_work.observe_watermark(19)
    assert due_work.due(0) is not None


def test_a_boundary_with_nothing_withheld_makes_no_epoch() -> None:
    due_work = fresh(EVENT)
    due_work.observe_watermark(9)
    assert due_work.due(0) is None
    assert due_work.released == 9


def test_size_ends_a_bundle_too_and_the_boundary_stays_where_it_is() -> None:
    due_work = fresh(SIZED)
    due_work.observe_watermark(3)
    due_work.observe_fold(4, [])
    assert due_work.due(0) is None
    due_work = restarted(due_work, SIZED)
    due_work.observe_fold(1, [])
    due = due_work.due(0)
    assert due is not None and due.release
    due_work.complete(due, [])
    assert due_work.released is None
    due_work.observe_fold(1, [])
    due_work.observe_watermark(9)
    assert due_work.due(0) is not None


def test_a_spec_that_goes_back_to_the_processing_clock_lets_go_of_what_is_withheld() -> None:
    due_work = fresh(EVENT)
    due_work.observe_fold(3, [])
    later = restarted(due_work, PROCESSING)
    due = later.due(0)
    assert due is not None and due.release
    later.complete(due, [])
    assert later.due(0) is None
    assert not later.withholds


def windows(snapshot: DueWorkSnapshot | None = None) -> DueWork:
    closing = Closing(Window("TUMBLE", Column("t", BIGINT), 10, 10), 0, True, 5)
    return DueWork(PROCESSING, 0, snapshot, fresh=snapshot is None, closing=closing)


def test_windows_are_due_at_their_timer_and_the_watermark_follows_when_they_are_out() -> None:
    due_work = windows()
    assert due_work.due(1) is None
    due_work.observe_watermark(3)
    due_work.observe_fold(2, [{"event": 9}, {"event": 19}])
    assert due_work.due(1) is None
    snapshot = due_work.snapshot()
    assert snapshot is not None
    assert snapshot.passed == 3
    due_work.observe_watermark(9)
    snapshot = due_work.snapshot()
    assert snapshot is not None
    assert snapshot.passed == 3, "the window of 0 to 9 is still to be emitted"
    due_work = windows(snapshot)
    due_work.observe_watermark(9)
    due = due_work.due(2)
    assert due == Work(2, release=False, watermark=9)
    due_work.complete(due, [{"event": 14}, {"event": 19}])
    due_work.observe_watermark(11)
    snapshot = due_work.snapshot()
    assert snapshot is not None
    assert snapshot.passed == 11
    assert due_work.due(2) is None


def test_a_job_does_not_go_on_with_windows_that_wait_for_other_things() -> None:
    snapshot = windows().snapshot()
    assert refuse_other_windows(snapshot, windows().closing) is None
    reason = refuse_other_windows(snapshot, None)
    assert reason is not None
    assert "emit: final" in reason
    assert refuse_other_windows(None, None) is None
    assert refuse_other_windows(None, windows().closing) is not None


@pytest.mark.parametrize("again", [False, True])
def test_a_timer_of_a_class_is_due_when_the_watermark_has_reached_it(again: bool) -> None:
    due_work = DueWork(PROCESSING, 0, None, fresh=True, timers="event")
    due_work.observe_fold(1, [{"event": 100}])
    due_work.observe_watermark(99)
    assert due_work.due(5) is None
    due_work.observe_watermark(150)
    snapshot = due_work.snapshot()
    assert snapshot is not None
    assert snapshot.passed == 99, "its results are not out"
    if again:
        due_work = DueWork(PROCESSING, 0, snapshot, fresh=False, timers="event")
        due_work.observe_watermark(150)
    due = due_work.due(5)
    assert due == Work(5, release=False, watermark=150)
    due_work.complete(due, [{"event": 200}])
    assert due_work.due(6) is None
    snapshot = due_work.snapshot()
    assert snapshot is not None
    assert snapshot.passed == 150


@pytest.mark.parametrize("again", [False, True])
def test_the_time_of_an_epoch_with_data_stays_behind_timers_that_are_due(again: bool) -> None:
    due_work = DueWork(PROMPT, 0, None, fresh=True, timers="processing")
    assert due_work.advance(90) == 90
    due_work.observe_fold(1, [{"processing": 100}])
    assert due_work.advance(99) == 99
    assert due_work.advance(100) == 99, "another group has not fired the timer of 100 yet"
    snapshot = due_work.snapshot()
    assert snapshot is not None
    assert snapshot.now == 99
    if again:
        due_work = DueWork(PROMPT, 0, snapshot, fresh=False, timers="processing")
    due = due_work.due(120)
    assert due == Work(120, release=False)
    assert due_work.advance(130) == 99
    due_work.complete(due, [{"processing": 125}])
    assert due_work.advance(124) == 124
    assert due_work.due(124) is None
    assert due_work.due(125) == Work(125, release=False)
    assert due_work.advance(200) == 124


@pytest.mark.parametrize(
    ("ttl_ms", "latency", "seconds"),
    [
        (0, "1s", 1.0),
        (0, "2s", 2.0),
        (100_000_000, "1s", 1.0),
        (10_000, "1s", 0.1),
        (20, "1s", 0.001),
    ],
)
def test_timers_of_classes_make_one_epoch_a_latency_and_do_not_delay_expiry(
    ttl_ms: int, latency: str, seconds: float
) -> None:
    minibatch = MiniBatch.model_validate({"latency": latency})
    due_work = DueWork(minibatch, ttl_ms, None, fresh=True, timers="processing")
    due_work.observe_fold(1, [{"processing": 100_001}])
    times = []
    for now in range(100_000, 104_001):
        if (due := due_work.due(now)) is not None:
            times.append(now)
            due_work.complete(due, [{"processing": now + 1}])
    step = round(seconds * 1_000)
    assert times == list(range(100_000 + step, 104_001, step))
