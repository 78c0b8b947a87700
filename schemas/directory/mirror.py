"""When a mirror was refreshed last, in a file beside it: its newest commit may be older.

job: a refresh ──► DIR/jobs/<name>/mirror.json ──► REST, the console
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class MirrorReport(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int  # whose results the mirror has
    refreshed_at: int  # milliseconds since 1970

    def age_ms(self, newest_epoch: int, now_ms: int) -> int:
        """Return how long the mirror lacks epochs; 0 if it has the newest."""
        return 0 if self.epoch >= newest_epoch else max(0, now_ms - self.refreshed_at)


def write_mirror_report(path: Path, report: MirrorReport) -> None:
    """Write the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(report))
    os.replace(fresh, path)


def read_mirror_report(path: Path) -> MirrorReport | None:
    """Return the last refresh of a mirror; None if there is no mirror."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=MirrorReport)
    except (OSError, ValueError):
        return None
