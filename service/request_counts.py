"""Request counts: requests of each route by status, and their durations.

    gate ──► count(route, method, status, seconds) ──► /metrics

A request counts under the template of its route, or under `other` without a route, so that clients
cannot create new series. Durations end when the response starts, because streams do not end.
"""

from __future__ import annotations

from service.histogram import Histogram

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"


class RequestCounts:
    """The counts since the service started. Count on the event loop; read in any thread."""

    def __init__(self) -> None:
        self.answered: dict[tuple[str, str, int], int] = {}
        self.durations: dict[tuple[str, str], Histogram] = {}

    def count(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """Count one request; status 0 if the client closed the connection first."""
        route = OTHER if route is None else route
        method = method if method in METHODS else OTHER
        answered = (route, method, status)
        self.answered[answered] = self.answered.get(answered, 0) + 1
        durations = self.durations.get((route, method))
        if durations is None:
            durations = self.durations[route, method] = Histogram(BOUNDS)
        durations.observe(seconds)
