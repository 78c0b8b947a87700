"""A histogram of durations, as Prometheus has it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator


class Histogram:
    """Counts durations by bucket. Observe in one thread; read in any."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds  # in seconds; the largest of each bucket but the last
        self.counts = [0] * (len(bounds) + 1)  # the last is for durations beyond the last bound
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.seconds += seconds

    def list_buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each bound as text, and the number of durations up to it."""
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), list(self.counts), strict=True):
            total += count
            yield str(bound), total
