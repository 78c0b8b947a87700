"""Counts of requests by route, of SQL statements by protocol, and of PostgreSQL's clients.

    gate ──► count(route, method, status, seconds) ──► /metrics

A request counts under the template of its route, or under `other` without a route, so that clients
cannot create new series. Durations end when the response starts, because streams do not end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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


class StatementCounts:
    """SQL statements by protocol and outcome, as `RequestCounts` has requests."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.durations = {protocol: Histogram(BOUNDS) for protocol in ("http", "postgres")}

    def count(self, protocol: str, outcome: str, seconds: float) -> None:
        self.outcomes[protocol, outcome] += 1
        self.durations[protocol].observe(seconds)


@dataclass(slots=True)
class PostgresCounts:
    """Connections of PostgreSQL's clients."""

    waiting: int = 0  # to sign in
    signed_in: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # before that, by SQLSTATE
