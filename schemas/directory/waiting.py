"""What a running job waits for, in a file of its directory; the file is there meanwhile.

job: no executor for a while ──► DIR/jobs/<name>/waiting.json ──► the service reports the reason
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    pid: int
    since: int  # milliseconds since 1970


def write_waiting(path: Path, waiting: Waiting) -> None:
    """Write the file atomically."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(waiting))
    os.replace(fresh, path)


def read_waiting(path: Path) -> Waiting | None:
    """Return what the job waits for; None if it waits for nothing."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Waiting)
    except (OSError, ValueError):
        return None


def forget_waiting(path: Path) -> None:
    """Delete the file, if there is one."""
    with suppress(FileNotFoundError):
        path.unlink()
