"""Mini-batch assigners: they choose the watermarks that end bundles.

    processing time   now ──► now - now % interval, where that is higher than the last
    event time        input watermarks ──► each watermark that has reached the next boundary
                                           (interval 5: 4, 9, 14, ...; lower ones are dropped),
                                           or the end of time

The caller emits the results of a bundle first and then the watermark that ended it. Of an event
clock this is also the maximal watermark, the end of the input, once.
"""

from __future__ import annotations

from schemas.table.epoch import END_OF_TIME, AssignerSnapshot

WATERMARK_MAX = 2**63 - 1  # the watermark at the end of an input


class ProcessingTimeAssigner:
    """Emits multiples of the interval as processing time passes them.

    Call `pass_time` before each row, so that a row behind a boundary opens the next bundle. Call it
    at `next_timer` too, so that a bundle ends without rows.
    """

    __slots__ = ("_interval", "current", "next_timer")

    def __init__(self, interval: int, now: int = 0) -> None:
        self._interval = interval
        self.current = 0
        self.next_timer = now + interval

    def pass_time(self, now: int) -> int | None:
        """Return the boundary that `now` has passed since the last call, or None."""
        mark = now - now % self._interval
        if now >= self.next_timer:
            self.next_timer = mark + self._interval
        if mark <= self.current:
            return None
        self.current = mark
        return mark


class EventTimeAssigner:
    """Emits an input watermark unchanged if it has reached the next boundary.

    The first boundary is the end of the interval that starts at 0, as in Flink. Times before 1970
    wait for it.
    """

    __slots__ = ("_interval", "current", "emitted", "next")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self.current: int | None = None  # the highest input watermark
        self.emitted: int | None = None  # the last watermark that was emitted
        self.next = interval - 1

    def pass_watermark(self, time: int) -> int | None:
        """Return an input watermark if it has reached the next boundary, else None."""
        if self.emitted == WATERMARK_MAX:
            return None
        self.current = time if self.current is None else max(self.current, time)
        if time < min(self.next, END_OF_TIME):
            return None
        self.emitted = time
        end = time - time % self._interval + self._interval - 1
        self.next = end if end > time else end + self._interval
        return time

    def finish(self) -> int | None:
        """Return the watermark that is still held back at the end of the input, or None."""
        if self.current is None or (self.emitted is not None and self.current <= self.emitted):
            return None
        self.emitted = self.current
        return self.current

    def snapshot(self) -> AssignerSnapshot:
        return AssignerSnapshot(current=self.current, given=self.emitted, next=self.next)

    def restore(self, state: AssignerSnapshot) -> None:
        self.current, self.emitted, self.next = state.current, state.given, state.next
