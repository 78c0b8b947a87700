"""Timers of the state in memory: one entry each, in the order of their times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.core.fold.state import Clock, GroupTimer, TimerQueue
from tests.support.examples import examples


def timer(time: int, key: object = "k", namespace: str = "ttl") -> GroupTimer:
    return GroupTimer(Clock.EVENT, time, namespace, (key,))  # type: ignore[arg-type]


def test_timers_are_due_at_their_time_in_its_order() -> None:
    queue = TimerQueue()
    for time in (30, 10, 20, 40):
        queue.register(timer(time))
    assert queue.list_due(9) == []
    assert queue.list_due(30) == [timer(10), timer(20), timer(30)]
    assert [queue.next_time(after) for after in (None, 10, 30, 40)] == [10, 20, 40, None]


def test_there_is_one_a_time_key_and_namespace() -> None:
    queue = TimerQueue()
    apart = [timer(10, "a", "w1"), timer(10, "a", "w2"), timer(10, "b", "w1"), timer(11, "a", "w1")]
    for each in (*apart, apart[0]):
        queue.register(each)
    assert queue.list_due(99) == apart


def test_a_deleted_timer_may_come_back_and_is_then_the_last_of_its_time() -> None:
    queue = TimerQueue()
    queue.register(timer(10, "a"))
    queue.register(timer(10, "b"))
    queue.delete(timer(10, "a"))
    queue.delete(timer(10, "a"))
    assert queue.list_due(10) == [timer(10, "b")]
    queue.register(timer(10, "a"))
    assert queue.list_due(10) == [timer(10, "b"), timer(10, "a")]


@examples(100)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 3)), max_size=40))
def test_a_queue_has_the_timers_that_a_history_leaves(history: list[tuple[bool, int, int]]) -> None:
    queue, left = TimerQueue(), dict[GroupTimer, None]()
    for registers, time, key in history:
        if registers:
            queue.register(timer(time, key))
            left.setdefault(timer(time, key))
        else:
            queue.delete(timer(time, key))
            left.pop(timer(time, key), None)
    for time in range(-1, 10):
        due = [each for each in left if each.time <= time]
        assert queue.list_due(time) == sorted(due, key=lambda each: each.time)
