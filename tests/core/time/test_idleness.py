"""Idleness: silence is measured between probes, and only while somebody listens."""

from __future__ import annotations

import pytest

from jobs.core.time.idleness import IdlenessTimer
from schemas.table.epoch import PartitionSnapshot


def test_a_timeout_is_greater_than_0() -> None:
    for after in (0, -5):
        with pytest.raises(ValueError, match="greater than 0"):
            IdlenessTimer(after)


def test_a_new_partition_is_not_idle_until_it_was_silent_for_longer_than_the_timeout() -> None:
    timer = IdlenessTimer(10)
    assert [timer.probe(now) for now in (0, 9, 10, 11, 500)] == [False, False, False, True, True]


def test_activity_ends_idleness_and_silence_begins_with_the_second_probe_after_it() -> None:
    timer = IdlenessTimer(10)
    assert (timer.probe(0), timer.probe(11)) == (False, True)
    timer.record_activity()
    assert not timer.probe(100)  # heard
    assert not timer.probe(200)  # the first silent probe
    assert [timer.probe(now) for now in (210, 211)] == [False, True]


def test_time_in_a_pause_does_not_count() -> None:
    timer = IdlenessTimer(10)
    timer.probe(0)
    timer.pause(6)
    timer.pause(50)  # it is paused already
    assert not timer.probe(1_000)
    timer.resume(1_000)
    timer.resume(2_000)
    assert [timer.probe(now) for now in (1_004, 1_005)] == [False, True]


def test_a_silence_that_begins_in_a_pause_begins_at_its_end() -> None:
    timer = IdlenessTimer(10)
    timer.pause(0)
    assert not timer.probe(300)
    timer.resume(500)
    assert [timer.probe(now) for now in (510, 511)] == [False, True]


def test_it_says_how_long_it_takes_yet() -> None:
    timer = IdlenessTimer(10)
    assert timer.time_to_idle(0) == 11
    timer.probe(0)
    assert timer.time_to_idle(4) == 7
    assert timer.time_to_idle(40) == 0
    timer.record_activity()
    assert timer.time_to_idle(40) == 11


def test_a_snapshot_takes_the_silence_along_and_not_the_time_until_the_restart() -> None:
    timer = IdlenessTimer(10)
    timer.probe(0)
    later = IdlenessTimer(10)
    later.restore(timer.snapshot(8, PartitionSnapshot()), now=1_000_000)
    assert [later.probe(1_000_000 + ms) for ms in (2, 3)] == [False, True]
    timer.record_activity()
    later.restore(timer.snapshot(9, PartitionSnapshot()), now=0)
    assert (later.probe(0), later.probe(1), later.probe(11)) == (False, False, False)
