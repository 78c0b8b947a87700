"""The agenda knows when time makes something due, and forgets nothing over a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.core.fold.window_closing import Closing
from jobs.core.plan.tree import Column, Window
from jobs.core.time.due_work import Agenda, Due, other_windows
from schemas.spec.job import MiniBatch
from schemas.types.sql_types import BIGINT

PROCESSING = MiniBatch()
EVENT = MiniBatch.model_validate({"clock": "event", "interval": "10ms"})
SIZED = MiniBatch.model_validate({"clock": "event", "interval": "10ms", "size": 5})
TTL_MS = 1_000


def fresh(minibatch: MiniBatch = PROCESSING, ttl_ms: int = 0) -> Agenda:
    return Agenda(minibatch, ttl_ms, None, fresh=True)


def restarted(agenda: Agenda, minibatch: MiniBatch, ttl_ms: int = 0) -> Agenda:
    """What a new process knows, from the JSON of an epoch row."""
    told: dict[str, Any] | None = json.loads(json.dumps(agenda.told()))
    return Agenda(minibatch, ttl_ms, told, fresh=False)


def test_a_job_without_ttl_and_event_clock_has_nothing_to_say() -> None:
    agenda = fresh()
    agenda.folded(7, [{}])
    agenda.heard(10**12)
    assert agenda.due(10**15) is None
    assert agenda.told() is None
    assert agenda.released is None


@pytest.mark.parametrize("again", [False, True])
def test_the_first_timer_that_any_fold_reports_is_due_at_its_time(again: bool) -> None:
    agenda = fresh(ttl_ms=TTL_MS)
    agenda.folded(3, [{"processing": 5_000}, {"processing": 4_000, "event": 7}, {}])
    agenda.folded(3, [{"processing": 6_000}])
    if again:
        agenda = restarted(agenda, PROCESSING, TTL_MS)
    assert agenda.due(3_999) is None
    due = agenda.due(4_000)
    assert due == Due(4_000, release=False)
    agenda.passed(due, [{"processing": 4_600}, {"processing": 5_000}, {}])
    assert agenda.due(4_599) is None
    assert agenda.due(4_600) is not None


def test_when_every_group_is_gone_there_is_no_timer() -> None:
    agenda = fresh(ttl_ms=TTL_MS)
    agenda.folded(1, [{"processing": 10}])
    agenda.passed(Due(20, release=False), [{}, {}])
    assert agenda.due(10**15) is None


def test_many_groups_that_expire_one_after_the_other_make_few_epochs() -> None:
    agenda = fresh(ttl_ms=100_000)
    epochs = 0
    agenda.folded(1, [{"processing": 100_000}])
    for now in range(100_000, 110_000):
        due = agenda.due(now)
        if due is not None:
            epochs += 1
            agenda.passed(due, [{"processing": now + 1}])
    assert epochs == 10, "one for each hundredth of the TTL"


def test_what_nobody_knows_is_looked_at_once() -> None:
    """A TTL that a spec has got since: the table may have groups with timers of before."""
    agenda = restarted(fresh(), PROCESSING, TTL_MS)
    due = agenda.due(5)
    assert due is not None
    agenda.passed(due, [{"processing": 2_000}])
    assert agenda.due(1_999) is None


def test_time_does_not_go_back_over_a_restart() -> None:
    agenda = fresh(ttl_ms=TTL_MS)
    assert agenda.advance(500) == 500
    assert restarted(agenda, PROCESSING, TTL_MS).advance(400) == 500


@pytest.mark.parametrize("again", [False, True])
def test_a_bundle_ends_when_the_watermark_has_reached_its_boundary(again: bool) -> None:
    agenda = fresh(EVENT)
    assert agenda.withholds
    agenda.folded(3, [{}])
    agenda.heard(None)
    agenda.heard(8)
    assert agenda.due(0) is None
    agenda.heard(12)
    if again:
        agenda = restarted(agenda, EVENT)
    due = agenda.due(0)
    assert due is not None and due.release
    assert agenda.released is None, "its results are not out yet"
    agenda.passed(due, [{}])
    assert agenda.released == 12
    assert agenda.due(0) is None
    agenda.folded(1, [])
    agenda.heard(18)
    assert agenda.due(0) is None
    agenda.heard(19)
    assert agenda.due(0) is not None


def test_a_boundary_with_nothing_withheld_makes_no_epoch() -> None:
    agenda = fresh(EVENT)
    agenda.heard(9)
    assert agenda.due(0) is None
    assert agenda.released == 9


def test_size_ends_a_bundle_too_and_the_boundary_stays_where_it_is() -> None:
    agenda = fresh(SIZED)
    agenda.heard(3)
    agenda.folded(4, [])
    assert agenda.due(0) is None
    agenda = restarted(agenda, SIZED)
    agenda.folded(1, [])
    due = agenda.due(0)
    assert due is not None and due.release
    agenda.passed(due, [])
    assert agenda.released is None
    agenda.folded(1, [])
    agenda.heard(9)
    assert agenda.due(0) is not None


def test_a_spec_that_goes_back_to_the_processing_clock_lets_go_of_what_is_withheld() -> None:
    agenda = fresh(EVENT)
    agenda.folded(3, [])
    later = restarted(agenda, PROCESSING)
    due = later.due(0)
    assert due is not None and due.release
    later.passed(due, [])
    assert later.due(0) is None
    assert not later.withholds


def windows(told: dict[str, Any] | None = None) -> Agenda:
    closing = Closing(Window("TUMBLE", Column("t", BIGINT), 10, 10), 0, True, 5)
    return Agenda(PROCESSING, 0, told, fresh=told is None, closing=closing)


def test_windows_are_due_at_their_timer_and_the_watermark_is_told_when_they_are_out() -> None:
    agenda = windows()
    assert agenda.due(1) is None
    agenda.heard(3)
    agenda.folded(2, [{"event": 9}, {"event": 19}])
    assert agenda.due(1) is None
    told = agenda.told()
    assert told is not None
    assert told["passed"] == 3
    agenda.heard(9)
    told = agenda.told()
    assert told is not None
    assert told["passed"] == 3, "the window of 0 to 9 is still to be told"
    agenda = windows(told)
    agenda.heard(9)
    due = agenda.due(2)
    assert due == Due(2, release=False, watermark=9)
    agenda.passed(due, [{"event": 14}, {"event": 19}])
    agenda.heard(11)
    told = agenda.told()
    assert told is not None
    assert told["passed"] == 11
    assert agenda.due(2) is None


def test_a_job_does_not_go_on_with_windows_that_wait_for_other_things() -> None:
    told = windows().told()
    assert other_windows(told, windows().closing) is None
    reason = other_windows(told, None)
    assert reason is not None
    assert "emit: final" in reason
    assert other_windows(None, None) is None
    assert other_windows(None, windows().closing) is not None
