"""Phases: where an epoch's time goes, in milliseconds, as its row tells it.

plan ─► tasks ─► judge ─► (row is written) ─► commit ─► publish
                                              └ told by a later row: it cannot know them yet
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Published = Callable[[], tuple[int | None, float | None]]


class Phases:
    """Of one job's epochs. `published` says the newest epoch that is in the topic, and how many
    seconds it took to get there; jobs without a topic leave it."""

    def __init__(self) -> None:
        self.published: Published | None = None
        self._ms: dict[str, float] = {}
        self._began = self._at = time.monotonic()

    def begin(self) -> None:
        """The next epoch begins now."""
        self._began = self._at = time.monotonic()

    def lap(self, phase: str) -> None:
        """What went by since the last one belongs to this phase."""
        now = time.monotonic()
        self._ms[phase] = self._ms.get(phase, 0.0) + (now - self._at) * 1_000
        self._at = now

    def told(self, phase: str) -> dict[str, Any]:
        """The end of a phase, and the counters of the epoch, which is about to be committed.
        `commit` is that of the epoch before, `publish` that of the newest one in the topic."""
        self.lap(phase)
        phases, self._ms = {name: round(ms, 1) for name, ms in self._ms.items()}, {}
        told = {"compute_seconds": round(self._at - self._began, 4), "phases_ms": phases}
        if self.published is None:
            return told
        epoch, seconds = self.published()
        if seconds is not None:
            phases["publish"] = round(seconds * 1_000, 1)
        return told if epoch is None else told | {"published": epoch}
