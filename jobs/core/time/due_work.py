"""DueWork: what the driver knows of the work in a job's state that time makes due.

    watermark ──► boundary of the event clock, or `size` rows ──┐
              ──► the state's first timer of the event clock  ──┼──► due: an epoch without data
    now       ──► the state's first timer of processing time  ──┘

With classes whose timers fire in processing time, the time of an epoch with data stays behind the
timers that are due. So all groups of an epoch have the results of one time, that of its row.

The driver sees no group. It knows the first timer, because folds report the timers that they see
and set, and how many rows went into withheld results. The epoch row has a snapshot of all that, and
a start goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jobs.core.fold.state import Clock
from jobs.core.fold.window_closing import Closing
from jobs.core.time.bundle_clocks import EventTimeAssigner
from schemas.limits import EXPIRY_LATE_PARTS
from schemas.spec.job import MiniBatch
from schemas.table.epoch import DueWorkSnapshot


class Work(NamedTuple):
    """The work of an epoch without data, in addition to groups that expire by `now_ms`.

    `release` says whether to release withheld results; windows up to `watermark` complete or close.
    """

    now_ms: int
    release: bool
    watermark: int | None = None
    opens: bool = False  # whether to emit, instead, the rows that groups have without input


class DueWork:
    """Tracks the due work of a job. The driver checks it before, after and between epochs."""

    def __init__(
        self,
        minibatch: MiniBatch,
        ttl_ms: int,
        snapshot: DueWorkSnapshot | None,
        *,
        fresh: bool,
        closing: Closing | None = None,
        opens: bool = False,
        timers: str | None = None,
    ) -> None:
        """Continue from the `snapshot` of the newest epoch row; a `fresh` job has no state yet.

        `opens`: a group that has a row without input is not in the state. `timers`: the clock
        of the timers that classes of the query have."""
        known = snapshot or DueWorkSnapshot()
        self.withholds = minibatch.clock == "event"
        self.closing = closing
        self._opens = opens
        self.watermark: int | None = None  # of the newest epoch row
        self._emitted_to = known.passed  # the watermark up to which windows are emitted
        self._by_watermark = timers == Clock.EVENT or closing is not None
        self._by_clock = timers == Clock.PROCESSING
        timed = ttl_ms > 0 or self._by_watermark or self._by_clock
        self._keeps = self.withholds or timed or snapshot is not None
        # How late timers are seen, so that many share one epoch; 0 without timers of this clock.
        self._step = max(1, ttl_ms // EXPIRY_LATE_PARTS) if ttl_ms else 0
        if self._by_clock:
            self._step = min(self._step or minibatch.latency_ms, minibatch.latency_ms)
        self._size = minibatch.size
        self._now = known.now
        # None: unknown; an epoch without data visits every bucket and reports them.
        self._timers: dict[str, int] | None = known.timers
        if known.timers is None and fresh:
            self._timers = {}
        self._withheld = known.withheld
        self._ending = known.ending
        self.released = known.released
        self._assigner: EventTimeAssigner | None = None
        if self.withholds:
            assert minibatch.interval_ms is not None
            self._assigner = EventTimeAssigner(minibatch.interval_ms)
            if known.assigner is not None:
                self._assigner.restore(known.assigner)
        elif self._withheld:  # by an earlier spec
            self._ending = True

    def advance(self, now_ms: int) -> int:
        """Advance processing time and return it; it never goes back, even if the clock does.

        It stays behind the timers of classes that are due.
        """
        now = max(self._now, now_ms)
        if not (self._by_clock and self._first_timer_is_due(Clock.PROCESSING, now)):
            self._now = now
        return self._now

    def due(self, now_ms: int) -> Work | None:
        """Return the work that is due at `now_ms`, or None.

        Expiry is checked once per TTL/100, so that groups that expire close together share one
        epoch. If classes have timers too, both are checked at least once per `minibatch.latency`.
        """
        now = max(self.advance(now_ms), now_ms)
        if self._opens:
            return Work(now, False, opens=True)
        fires = self._step > 0 and self._first_timer_is_due(
            Clock.PROCESSING, now - now % self._step
        )
        passed = (
            self._by_watermark
            and self.watermark is not None
            and self._first_timer_is_due(Clock.EVENT, self.watermark)
        )
        if not (fires or passed or self._ending):
            return None
        return Work(now, self._ending, self.watermark if self._by_watermark else None)

    def _first_timer_is_due(self, clock: Clock, time: int) -> bool:
        if self._timers is None:
            return True
        first = self._timers.get(clock)
        return first is not None and first <= time

    def observe_fold(self, rows: int, timers: Iterable[Mapping[str, int]]) -> None:
        """Observe an epoch with data: its rows, and the first timers that its folds report."""
        if self._timers is not None:
            self._timers = _first(self._timers, *timers)
        if self.withholds:
            self._withheld += rows
            if self._size is not None and self._withheld >= self._size:
                self._ending = True

    def complete(self, work: Work, timers: Iterable[Mapping[str, int]]) -> None:
        """Observe an epoch that has done the work in all buckets, and the timers left there."""
        if work.opens:
            self._opens = False
            return
        self._timers = _first(*timers)
        self._now = max(self._now, work.now_ms)
        self._emitted_to = work.watermark
        if work.release:
            self._withheld, self._ending = 0, False
            self.released = self._assigner.emitted if self._assigner else None

    def observe_watermark(self, watermark: int | None) -> None:
        """Observe how far the job's watermark has advanced."""
        self.watermark = watermark
        if watermark is not None and not self._first_timer_is_due(Clock.EVENT, watermark):
            self._emitted_to = watermark
        if self._assigner is None or watermark is None:
            return
        boundary = self._assigner.pass_watermark(watermark)
        if boundary is not None:
            if self._withheld:
                self._ending = True
            else:
                self.released = boundary

    def snapshot(self) -> DueWorkSnapshot | None:
        """Return the snapshot for the next epoch row; None if the job has nothing to keep."""
        if not self._keeps:
            return None
        return DueWorkSnapshot(
            now=self._now,
            emits=_emits(self.closing),
            passed=self._emitted_to if self._by_watermark else None,
            timers=self._timers,
            withheld=self._withheld,
            ending=self._ending,
            released=self.released,
            assigner=None if self._assigner is None else self._assigner.snapshot(),
        )


def refuse_other_windows(snapshot: DueWorkSnapshot | None, closing: Closing | None) -> str | None:
    """Return why a job cannot continue from a snapshot: the spec emits windows differently."""
    before, now = None if snapshot is None else snapshot.emits, _emits(closing)
    if before == now:
        return None
    return (
        f"its state was made with {_sentence(before)}, and the spec now has {_sentence(now)}; "
        "restore the old spec, or give the job a new name"
    )


def _emits(closing: Closing | None) -> str | None:
    return None if closing is None else "final" if closing.final else "changes"


def _sentence(emits: str | None) -> str:
    return "windows that never close" if emits is None else f"emit: {emits} and windows that close"


def _first(*timers: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in timers:
        for clock, time in each.items():
            found[clock] = min(time, found.get(clock, time))
    return found
