"""The phases of a job's start, in a file of its directory.

    lock ─► topics ─► table ─► spark ─► state ─► ready: an epoch can be committed

The service shows them while a job starts, and reports it as running from the last one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

PHASES = ("topics", "table", "spark", "state", "ready")
READY = PHASES[-1]


class StartPhase(msgspec.Struct, frozen=True):
    name: str  # of PHASES
    began_at: int  # milliseconds since 1970


class StartProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The phases that a process has begun, in their order."""

    pid: int
    phases: tuple[StartPhase, ...] = ()

    @property
    def ready(self) -> bool:
        return bool(self.phases) and self.phases[-1].name == READY


class StartReport:
    """Writes the file. It is for displays only: a full disk does not stop the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._progress = StartProgress(pid=os.getpid())
        self._write()

    def begin(self, phase: str, now_ms: int) -> None:
        """Report that a phase begins."""
        known = self._progress.phases
        self._progress = StartProgress(
            pid=self._progress.pid, phases=(*known, StartPhase(phase, now_ms))
        )
        self._write()

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        with suppress(OSError):
            fresh.write_bytes(msgspec.json.encode(self._progress))
            fresh.replace(self._path)


def read_start(path: Path) -> StartProgress | None:
    """Return the phases of the last start; None if it reported none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StartProgress)
    except (OSError, ValueError):
        return None
