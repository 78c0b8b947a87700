"""What a running job reports, each in a file of its directory, and the service shows.

    start.json     lock ─► topics ─► table ─► spark ─► state ─► ready: an epoch can be committed
                   between the last two, at a first start: snapshot, with its progress
    waiting.json   why it waits (no executor for a while); the file is there meanwhile
    mirror.json    the last refresh of its mirror, whose newest commit may be older

The service reports a job as running from the phase `ready`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from schemas.directory.documents import write_document

PHASES = ("topics", "table", "spark", "state", "ready")
READY = PHASES[-1]
SNAPSHOT = "snapshot"  # of a source that has one, in epochs of its own


class StartPhase(msgspec.Struct, frozen=True):
    name: str  # of PHASES, or SNAPSHOT
    began_at: int  # milliseconds since 1970
    progress: str | None = None  # of a snapshot


class StartProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The phases that a process has begun, in their order."""

    pid: int
    phases: tuple[StartPhase, ...] = ()

    @property
    def ready(self) -> bool:
        return bool(self.phases) and self.phases[-1].name == READY


class StartReport:
    """Writes the phases. They are for displays only: a full disk does not stop the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._phases: tuple[StartPhase, ...] = ()
        self._write()

    def begin(self, phase: str, now_ms: int, progress: str | None = None) -> None:
        """Report that a phase begins, or the progress of the last one."""
        before = self._phases
        if before and before[-1].name == phase:
            before, now_ms = before[:-1], before[-1].began_at
        self._phases = (*before, StartPhase(phase, now_ms, progress))
        self._write()

    def _write(self) -> None:
        with suppress(OSError):
            write_document(self._path, StartProgress(pid=os.getpid(), phases=self._phases))


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    pid: int
    since: int  # milliseconds since 1970


class MirrorReport(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int  # whose results the mirror has
    refreshed_at: int  # milliseconds since 1970

    def age_ms(self, newest_epoch: int, now_ms: int) -> int:
        """Return how long the mirror lacks epochs; 0 if it has the newest."""
        return 0 if self.epoch >= newest_epoch else max(0, now_ms - self.refreshed_at)
