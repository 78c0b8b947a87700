"""Phases: measure the milliseconds of each phase of an epoch, for the epoch row's counters.

plan ─► tasks ─► check ─► (row is written) ─► commit ─► publish
                                              └ in the next row: these phases follow the row
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jobs.edge.publisher.job_publisher import Published


class Phases:
    """Measures the phases of one job's epochs.

    `take_published` returns how far the topic is; a job without a sink has None here.
    """

    def __init__(self) -> None:
        self.take_published: Callable[[], Published] | None = None
        self._ms: dict[str, float] = {}
        self._began = self._at = time.monotonic()

    def begin(self) -> None:
        """Begin the next epoch."""
        self._began = self._at = time.monotonic()

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to this phase."""
        now = time.monotonic()
        self._ms[phase] = self._ms.get(phase, 0.0) + (now - self._at) * 1_000
        self._at = now

    def end(self, phase: str) -> dict[str, Any]:
        """End the last phase before the commit, and return the epoch's counters of time.

        `commit` is the time of the previous epoch, `publish` that of the newest epoch in the topic.
        """
        self.lap(phase)
        phases, self._ms = {name: round(ms, 1) for name, ms in self._ms.items()}, {}
        counters: dict[str, Any] = {
            "compute_seconds": round(self._at - self._began, 4),
            "phases_ms": phases,
        }
        if self.take_published is None:
            return counters
        published = self.take_published()
        if published.seconds is not None:
            phases["publish"] = round(published.seconds * 1_000, 1)
        if published.latencies_ms:
            latencies = {str(epoch): ms for epoch, ms in published.latencies_ms.items()}
            counters["publish_latencies_ms"] = latencies
        return counters if published.epoch is None else counters | {"published": published.epoch}
