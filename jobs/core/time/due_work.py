"""Agenda: what time will make due in a job's state, as its driver knows it.

    watermark ──► boundary of the event clock, or `size` rows ──┐
              ──► the state's first timer of the event clock  ──┼──► due: an epoch without data
    now       ──► the state's first timer of processing time  ──┘

The driver sees no group. Of the timers it knows the first one, because folds report those that they
see and set; of what is withheld, how many rows went into it. All of that is part of the epoch row,
and a start goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jobs.core.fold.timers import Clock
from jobs.core.fold.window_closing import Closing
from jobs.core.time.bundle_clocks import EventTimeAssigner
from schemas.limits import EXPIRY_LATE_PARTS
from schemas.spec.job import MiniBatch


class Due(NamedTuple):
    """What an epoch without data is to do; groups expire in any case whose time has come, and the
    windows that the watermark has passed are complete or closed."""

    now_ms: int
    release: bool
    watermark: int | None = None


class Agenda:
    """Asked before and after each epoch, and between them."""

    def __init__(
        self,
        minibatch: MiniBatch,
        ttl_ms: int,
        told: Mapping[str, Any] | None,
        *,
        fresh: bool,
        closing: Closing | None = None,
    ) -> None:
        """`told` is what the newest epoch row says; a fresh job has no state yet."""
        known: Mapping[str, Any] = told or {}
        self.withholds = minibatch.clock == "event"
        self.closing = closing
        self.watermark: int | None = None  # of the newest epoch row
        self._passed: int | None = known.get("passed")  # up to which windows are told
        closes = closing is not None
        self._keeps = self.withholds or ttl_ms > 0 or closes or told is not None
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
        looked = now - now % max(1, self._ttl_ms // EXPIRY_LATE_PARTS)
        expiring = self._ttl_ms > 0 and self._first_timer_is_due(Clock.PROCESSING, looked)
        passed = (
            self.closing is not None
            and self.watermark is not None
            and self._first_timer_is_due(Clock.EVENT, self.watermark)
        )
        if not (expiring or passed or self._ending):
            return None
        return Due(now, self._ending, self.watermark if self.closing else None)

    def _first_timer_is_due(self, clock: Clock, time: int) -> bool:
        if self._timers is None:
            return True
        first = self._timers.get(clock)
        return first is not None and first <= time

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
        self._passed = due.watermark
        if due.release:
            self._withheld, self._ending = 0, False
            self.released = self._assigner.given if self._assigner else None

    def heard(self, watermark: int | None) -> None:
        """How far the job's watermark has come."""
        self.watermark = watermark
        if watermark is not None and not self._first_timer_is_due(Clock.EVENT, watermark):
            self._passed = watermark
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
        if self.closing is not None:
            told["emits"] = _emits(self.closing)
            if self._passed is not None:
                told["passed"] = self._passed
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


def other_windows(told: Mapping[str, Any] | None, closing: Closing | None) -> str | None:
    """Why a job cannot go on from an epoch row's agenda: its groups wait for other things than
    the spec says."""
    before, now = (told or {}).get("emits"), _emits(closing)
    if before == now:
        return None
    return (
        f"its state was made with {_said(before)}, and the spec now says {_said(now)}; go back, or "
        "give the job a new name"
    )


def _emits(closing: Closing | None) -> str | None:
    return None if closing is None else "final" if closing.final else "changes"


def _said(emits: str | None) -> str:
    return "windows that never close" if emits is None else f"emit: {emits} and windows that close"


def _first(*timers: Mapping[str, int]) -> dict[str, int]:
    """The first timer of each clock."""
    found: dict[str, int] = {}
    for each in timers:
        for clock, time in each.items():
            found[clock] = min(time, found.get(clock, time))
    return found
