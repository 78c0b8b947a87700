"""Python workers: what they do between tasks is not the price of what they remember."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import count

import pytest

from jobs.edge.spark import python_daemon
from schemas.limits import TASKS_BETWEEN_GC_MAX


class Knot:
    """Garbage that only the cycle collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Knot]]:
    """What each task leaves behind when it ends."""
    left: list[Knot] = []

    def task(_socket: object, _authenticated: bool) -> int:
        left.clear()
        return 0

    monkeypatch.setattr(python_daemon, "_worker", task)
    monkeypatch.setattr(python_daemon, "_tasks", count(1))
    gc.collect()
    yield left
    gc.unfreeze()
    gc.collect()


def _end_task() -> None:
    """As pyspark's loop does it: the task, then a search for cycles."""
    assert python_daemon.worker(None, True) == 0  # type: ignore[arg-type]
    gc.collect()


def test_what_a_worker_remembers_is_not_searched_after_every_task(tasks: list[Knot]) -> None:
    remembered = [[number] for number in range(1_000)]
    _end_task()
    assert gc.get_freeze_count() > len(remembered)
    assert not any(each is remembered for each in gc.get_objects())


def test_cycles_that_tasks_leave_are_found_after_so_many_of_them(tasks: list[Knot]) -> None:
    tasks.append(Knot())
    left = weakref.ref(tasks[0])
    for _ in range(TASKS_BETWEEN_GC_MAX):
        _end_task()
    assert left() is None
