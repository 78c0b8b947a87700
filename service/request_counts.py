"""Request counts: how often each route was asked, how it answered, and how long that took.

    gate ──► note(route, method, status, seconds) ──► /metrics

A route is counted under its template, and what no route takes under `other`, so that no client can
make new series. The time is that until the answer begins: a stream of changes has no end.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"


@dataclass(slots=True)
class Durations:
    """A histogram; `counts` has one more for what is beyond the last bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0


class RequestCounts:
    """Written on the event loop, by one request after the other; read by anybody."""

    def __init__(self) -> None:
        self.answered: dict[tuple[str, str, int], int] = {}
        self.durations: dict[tuple[str, str], Durations] = {}

    def note(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """`status` 0 is a request whose client was gone before it was answered."""
        route = OTHER if route is None else route
        method = method if method in METHODS else OTHER
        answered = (route, method, status)
        self.answered[answered] = self.answered.get(answered, 0) + 1
        durations = self.durations.get((route, method))
        if durations is None:
            durations = self.durations[route, method] = Durations()
        durations.counts[bisect_left(BOUNDS, seconds)] += 1
        durations.seconds += seconds
