"""The share of a job's processor time that its mirrors take, and whether they must rest.

    rest ──► the job's own rate ─┐
    refresh ──► all that the job spent ─ its own rate ──► the cost ──► the next rest

The driver, its JVM and the Python workers do both at once, so the cost of a refresh is what the job
spends meanwhile beyond the rate of the rest before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from schemas.limits import MIRROR_CORE_SHARE, MIRROR_SHARE_MAX, MIRROR_TIME_SHARE_MAX


class MirrorShare:
    """Measures refreshes; `read_spent` returns the processor seconds of the job so far."""

    def __init__(
        self,
        read_spent: Callable[[], float],
        read_clock: Callable[[], float] = time.monotonic,
        *,
        jobs: int = 1,  # that may share the JVM, of which only the whole time is known
    ) -> None:
        self._read_spent, self._read_clock = read_spent, read_clock
        self._share_max = MIRROR_SHARE_MAX / jobs
        self._ended, self._spent = read_clock(), read_spent()  # at the end of the last refresh
        self.cost = 0.0  # of it, in processor seconds
        self.seconds = 0.0  # that it took

    @contextmanager
    def measure(self, *, counts: bool) -> Iterator[None]:
        """Measure a refresh; one that only loads classes and makes the table does not count."""
        began, before = self._read_clock(), self._read_spent()
        rate = (before - self._spent) / max(began - self._ended, 0.001)
        try:
            yield
        finally:
            self._ended, self._spent = self._read_clock(), self._read_spent()
            self.seconds = self._ended - began if counts else 0.0
            own = self._spent - before - rate * (self._ended - began)
            self.cost = max(own, 0.0) if counts else 0.0

    def allows(self) -> bool:
        """Return whether another refresh keeps the shares."""
        rested = self._read_clock() - self._ended
        if self.seconds > _share_beside(rested, MIRROR_TIME_SHARE_MAX):
            return False
        of_job = _share_beside(self._read_spent() - self._spent, self._share_max)
        return self.cost <= max(of_job, rested * MIRROR_CORE_SHARE)


def _share_beside(others: float, share: float) -> float:
    """Return what is this share of itself and `others` together."""
    return others * share / (1 - share)
