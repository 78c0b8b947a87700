"""Timers: the times of one clock at which an operator has work.

    register(time, key, namespace) ──► one entry a (time, key, namespace)
    pop_due(now)                   ──► all with time <= now, in the order of their times

An operator has two queues, one for each `Clock`. All due timers fire before the operator emits the
watermark.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Clock(StrEnum):
    """The clock of a timer: processing time, or watermarks."""

    PROCESSING = "processing"
    EVENT = "event"


class Timer(NamedTuple):
    time: int
    key: Hashable
    namespace: Hashable = None


class TimerQueue:
    """Timers in the order of their times, then of their registration.

    A deleted timer stays in the heap until its time comes, and is skipped then.
    """

    __slots__ = ("_heap", "_live", "_registered", "time")

    def __init__(self) -> None:
        self.time: int | None = None  # the present time of this clock
        self._heap: list[tuple[int, int, Timer]] = []
        self._live: dict[Timer, int] = {}  # the number of its registration
        self._registered = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, timer: object) -> bool:
        return timer in self._live

    @property
    def next(self) -> int | None:
        """The time of the first timer; None without any."""
        self._drop_deleted()
        return self._heap[0][0] if self._heap else None

    def register(self, time: int, key: Hashable, namespace: Hashable = None) -> bool:
        """Register a timer; return False if it is registered already.

        A time in the past is due when the clock next advances, or now if timers are firing.
        """
        timer = Timer(time, key, namespace)
        if timer in self._live:
            return False
        self._live[timer] = self._registered
        heappush(self._heap, (time, self._registered, timer))
        self._registered += 1
        return True

    def delete(self, time: int, key: Hashable, namespace: Hashable = None) -> bool:
        return self._live.pop(Timer(time, key, namespace), None) is not None

    def pop_due(self, time: int) -> Iterator[Timer]:
        """Advance the clock to `time`, and remove and yield the due timers.

        A timer that the caller registers meanwhile fires in the same pass, in its order, if due.
        """
        self.time = time if self.time is None else max(self.time, time)
        while (first := self.next) is not None and first <= self.time:
            timer = heappop(self._heap)[2]
            del self._live[timer]
            yield timer

    def list_due(self, time: int) -> list[Timer]:
        """Return the timers that are due at `time`, without removing them."""
        first = self.next
        if first is None or first > time:
            return []
        return [timer for timer in self.snapshot() if timer.time <= time]

    def snapshot(self) -> list[Timer]:
        """Return all timers, in the order in which they fire."""
        return [timer for _, _, timer in sorted(self._entries(), key=lambda entry: entry[:2])]

    @classmethod
    def restore(cls, timers: Iterable[Timer], time: int | None = None) -> TimerQueue:
        """Return a queue at `time` with the timers of a snapshot."""
        queue = cls()
        queue.time = time
        queue._live = {timer: number for number, timer in enumerate(timers)}
        queue._registered = len(queue._live)
        queue._heap = list(queue._entries())
        heapify(queue._heap)
        return queue

    def _entries(self) -> Iterator[tuple[int, int, Timer]]:
        return ((timer.time, number, timer) for timer, number in self._live.items())

    def _drop_deleted(self) -> None:
        """Drop the entries of deleted timers; registering one again gives it a new number."""
        while self._heap and self._live.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)
