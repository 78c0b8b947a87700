"""Mini-batch assigners: which watermarks a bundle hears of, and so where bundles end.

    processing time   now ──► now - now % interval, where that is higher than the last
    event time        input watermarks ──► every one that has reached the next boundary
                                           (interval 5: 4, 9, 14, ...; lower ones are swallowed)

Both let the maximal watermark, the end of the input, pass once. Results come first, and the
watermark that ended their bundle after them; that is the order of who calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WATERMARK_MAX = 2**63 - 1  # the watermark at the end of an input


class ProcessingTimeAssigner:
    """Marks of a clock. Whoever has a row asks first, so that the row that crosses a boundary
    opens the next bundle; a timer asks as well, so that a bundle ends without rows too."""

    __slots__ = ("_interval", "current", "next_timer")

    def __init__(self, interval: int, now: int = 0) -> None:
        self._interval = interval
        self.current = 0
        self.next_timer = now + interval

    def pass_time(self, now: int) -> int | None:
        """The mark that is due, if any: before a row is taken, and when a timer rings."""
        mark = now - now % self._interval
        if now >= self.next_timer:
            self.next_timer = mark + self._interval
        if mark <= self.current:
            return None
        self.current = mark
        return mark

    def watermark(self, time: int) -> int | None:
        """Input watermarks mean nothing here; only the maximal one goes on."""
        if time != WATERMARK_MAX or self.current == WATERMARK_MAX:
            return None
        self.current = time
        return time

    def snapshot(self) -> dict[str, Any]:
        return {"current": self.current, "next_timer": self.next_timer}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.current, self.next_timer = state["current"], state["next_timer"]


class EventTimeAssigner:
    """Input watermarks, thinned: one goes on as it is when it has reached the next boundary.

    Boundaries begin with the one of the interval that starts at 0, as in Flink; times before 1970
    wait for it.
    """

    __slots__ = ("_interval", "current", "given", "next")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self.current: int | None = None  # the highest that came in
        self.given: int | None = None  # the last that went on
        self.next = interval - 1

    def watermark(self, time: int) -> int | None:
        """What goes on of an input watermark."""
        if self.given == WATERMARK_MAX:
            return None
        self.current = time if self.current is None else max(self.current, time)
        if time < self.next:
            return None
        self.given = time
        end = time - time % self._interval + self._interval - 1
        self.next = end if end > time else end + self._interval
        return time

    def finish(self) -> int | None:
        """The end of the input: the watermark that was still held back."""
        if self.current is None or (self.given is not None and self.current <= self.given):
            return None
        self.given = self.current
        return self.current

    def snapshot(self) -> dict[str, Any]:
        return {"current": self.current, "given": self.given, "next": self.next}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.current, self.given, self.next = state["current"], state["given"], state["next"]
