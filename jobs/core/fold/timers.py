"""Timers: what an operator wants to be woken for, by one clock.

    register(time, key, namespace) ──► one entry a (time, key, namespace)
    due(now)                       ──► all with time <= now, in the order of their times

An operator has two queues, one for each `Clock`. All that is due fires before the watermark goes
on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Clock(StrEnum):
    """What moves timers: processing time, or watermarks."""

    PROCESSING = "processing"
    EVENT = "event"


class Timer(NamedTuple):
    time: int
    key: Hashable
    namespace: Hashable = None


class TimerQueue:
    """Timers in the order of their times; those of one time in the order they were registered.

    A deleted timer stays in the heap until its time comes and is passed over then.
    """

    __slots__ = ("_heap", "_live", "_registered", "time")

    def __init__(self) -> None:
        self.time: int | None = None  # how far this clock has come
        self._heap: list[tuple[int, int, Timer]] = []
        self._live: dict[Timer, int] = {}  # the number of its registration
        self._registered = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, timer: object) -> bool:
        return timer in self._live

    @property
    def next(self) -> int | None:
        """The time of the first timer."""
        self._drop_deleted()
        return self._heap[0][0] if self._heap else None

    def register(self, time: int, key: Hashable, namespace: Hashable = None) -> bool:
        """Want to be woken; False where that was registered already. A time that has passed is
        due when the clock next moves, or now, if timers are just firing."""
        timer = Timer(time, key, namespace)
        if timer in self._live:
            return False
        self._live[timer] = self._registered
        heappush(self._heap, (time, self._registered, timer))
        self._registered += 1
        return True

    def delete(self, time: int, key: Hashable, namespace: Hashable = None) -> bool:
        return self._live.pop(Timer(time, key, namespace), None) is not None

    def due(self, time: int) -> Iterator[Timer]:
        """Let the clock come to `time`, and take out what is due. What is registered while the
        caller handles a timer comes in the same pass if it is due, and in its place."""
        self.time = time if self.time is None else max(self.time, time)
        while (first := self.next) is not None and first <= self.time:
            timer = heappop(self._heap)[2]
            del self._live[timer]
            yield timer

    def upto(self, time: int) -> list[Timer]:
        """What would be due at a time; nothing is taken out."""
        first = self.next
        if first is None or first > time:
            return []
        return [timer for timer in self.snapshot() if timer.time <= time]

    def snapshot(self) -> list[Timer]:
        """All timers, in the order in which they would fire."""
        return [timer for _, _, timer in sorted(self._entries(), key=lambda entry: entry[:2])]

    @classmethod
    def restored(cls, timers: Iterable[Timer], time: int | None = None) -> TimerQueue:
        """A queue at `time` with the timers of a snapshot."""
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
        """A timer registered again after it was deleted has an entry of a new number."""
        while self._heap and self._live.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)
