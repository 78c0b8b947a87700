"""Timers: one entry each, in the order of their times, also while others fire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.core.fold.timers import Timer, TimerQueue
from tests.support.examples import examples


def fired(queue: TimerQueue, time: int) -> list[Timer]:
    return list(queue.pop_due(time))


def test_what_is_due_fires_in_the_order_of_time() -> None:
    queue = TimerQueue()
    for time in (30, 10, 20, 40):
        queue.register(time, "k")
    assert fired(queue, 30) == [Timer(10, "k"), Timer(20, "k"), Timer(30, "k")]
    assert fired(queue, 30) == []
    assert queue.next == 40


def test_there_is_one_a_time_key_and_namespace() -> None:
    queue = TimerQueue()
    assert queue.register(10, "a", "w1")
    assert not queue.register(10, "a", "w1")
    assert queue.register(10, "a", "w2")
    assert queue.register(10, "b", "w1")
    assert queue.register(11, "a", "w1")
    assert len(fired(queue, 99)) == 4


def test_a_timer_registered_while_others_fire_fires_in_its_place() -> None:
    queue = TimerQueue()
    queue.register(10, "first")
    queue.register(30, "last")
    seen = []
    for timer in queue.pop_due(30):
        seen.append(timer)
        if timer.key == "first":
            queue.register(20, "between")
            queue.register(5, "late")
            queue.register(31, "not yet")
    assert [timer.key for timer in seen] == ["first", "late", "between", "last"]
    assert fired(queue, 31) == [Timer(31, "not yet")]


def test_a_timer_for_a_time_that_has_passed_waits_until_the_clock_moves() -> None:
    queue = TimerQueue()
    assert fired(queue, 100) == []
    queue.register(50, "k")
    assert len(queue) == 1
    assert fired(queue, 101) == [Timer(50, "k")]


def test_a_deleted_timer_does_not_fire_and_may_come_back() -> None:
    queue = TimerQueue()
    queue.register(10, "a")
    queue.register(10, "b")
    assert queue.delete(10, "a")
    assert not queue.delete(10, "a")
    assert Timer(10, "a") not in queue
    queue.register(10, "a")
    assert fired(queue, 10) == [Timer(10, "b"), Timer(10, "a")]


def test_a_timer_deleted_while_others_fire_does_not_fire() -> None:
    queue = TimerQueue()
    queue.register(10, "a")
    queue.register(20, "b")
    seen = []
    for timer in queue.pop_due(20):
        seen.append(timer.key)
        queue.delete(20, "b")
    assert seen == ["a"]
    assert queue.next is None


@examples(100)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 3)), max_size=40),
    st.integers(0, 9),
)
def test_a_snapshot_fires_as_the_queue_would(
    history: list[tuple[bool, int, int]], until: int
) -> None:
    queue = TimerQueue()
    for registers, time, key in history:
        (queue.register if registers else queue.delete)(time, key)
    restored = TimerQueue.restore(queue.snapshot(), queue.time)
    first, second = fired(queue, until), fired(restored, until)
    assert first == second
    assert [timer.time for timer in first] == sorted(timer.time for timer in first)
    assert fired(queue, 99) == fired(restored, 99)
