"""Agenda: what time will make due in a job's state, as its driver knows it.

    watermark ──► boundary of the event clock, or `size` rows ──┐
                                                                ├──► due: an epoch without data
    now       ──► the state's first timer                     ──┘

The driver sees no group. Of the timers it knows the first one, because folds report those that they
see and set; of what is withheld, how many rows went into it. All of that is part of the epoch row,
and a start goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jobs.core.minibatch import EventTimeAssigner
from jobs.core.timers import Clock
from schemas.job import MiniBatch
from schemas.limits import EXPIRY_LATE_PARTS


class Due(NamedTuple):
    """What an epoch without data is to do; groups expire in any case whose time has come."""

    now_ms: int
    release: bool


class Agenda:
    """Asked before and after each epoch, and between them."""

    def __init__(
        self, minibatch: MiniBatch, ttl_ms: int, told: Mapping[str, Any] | None, *, fresh: bool
    ) -> None:
        """`told` is what the newest epoch row says; a fresh job has no state yet."""
        known: Mapping[str, Any] = told or {}
        self.withholds = minibatch.clock == "event"
        self._keeps = self.withholds or ttl_ms > 0 or told is not None
        self._ttl_ms = ttl_ms
        self._size = minibatch.size
        self._now = int(known.get("now", 0))
        # None: nobody knows; then one look at every bucket tells.
        self._timers: dict[str, int] | None = known.get("timers", {} if fresh else None)
        self._withheld = int(known.get("withheld", 0))
        self._ending = bool(known.get("ending", False))
        self.released: int | None = known.get("released")
        self._assigner: EventTimeAssigner | None = None
        if self.withholds:
            assert minibatch.interval_ms is not None
            self._assigner = EventTimeAssigner(minibatch.interval_ms)
            if "assigner" in known:
                self._assigner.restore(known["assigner"])
        elif self._withheld:  # by a spec of before
            self._ending = True

    def advance(self, now_ms: int) -> int:
        """Let time go on, and say what time an epoch has: a restart may find the machine's clock
        set back."""
        self._now = max(self._now, now_ms)
        return self._now

    def due(self, now_ms: int) -> Due | None:
        """What time has made due. That a group expires is looked at now and then only, so that
        many groups make few epochs."""
        now = self.advance(now_ms)
        first: int | None = 0
        if self._timers is not None:
            first = self._timers.get(Clock.PROCESSING)
        looked = now - now % max(1, self._ttl_ms // EXPIRY_LATE_PARTS)
        expiring = self._ttl_ms > 0 and first is not None and first <= looked
        return Due(now, self._ending) if expiring or self._ending else None

    def folded(self, rows: int, timers: Iterable[Mapping[str, int]]) -> None:
        """An epoch with data: its rows, and the first timers that its folds report."""
        if self._timers is not None:
            self._timers = _first(self._timers, *timers)
        if self.withholds:
            self._withheld += rows
            if self._size is not None and self._withheld >= self._size:
                self._ending = True

    def passed(self, due: Due, timers: Iterable[Mapping[str, int]]) -> None:
        """An epoch has done what was due, in all buckets."""
        self._timers = _first(*timers)
        if due.release:
            self._withheld, self._ending = 0, False
            self.released = self._assigner.given if self._assigner else None

    def heard(self, watermark: int | None) -> None:
        """How far the job's watermark has come."""
        if self._assigner is None or watermark is None:
            return
        on = self._assigner.watermark(watermark)
        if on is not None:
            if self._withheld:
                self._ending = True
            else:
                self.released = on

    def told(self) -> dict[str, Any] | None:
        """For the row of an epoch that is about to be committed; None where nothing is kept."""
        if not self._keeps:
            return None
        told: dict[str, Any] = {"now": self._now}
        if self._timers is not None:
            told["timers"] = self._timers
        if self._withheld:
            told["withheld"] = self._withheld
        if self._ending:
            told["ending"] = True
        if self.released is not None:
            told["released"] = self.released
        if self._assigner is not None:
            told["assigner"] = self._assigner.snapshot()
        return told


def _first(*timers: Mapping[str, int]) -> dict[str, int]:
    """The first timer of each clock."""
    found: dict[str, int] = {}
    for each in timers:
        for clock, time in each.items():
            found[clock] = min(time, found.get(clock, time))
    return found
