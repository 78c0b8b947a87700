"""Keep the changes of an epoch that may be committed in a file beside a bucket's state."""

from __future__ import annotations

import os
from pathlib import Path

_PREFIX = "redo-"


def store_redo(directory: Path, name: str, data: bytes) -> None:
    """Store one epoch's changes, in place of those of any other epoch."""
    for old in directory.glob(f"{_PREFIX}*"):
        old.unlink(missing_ok=True)
    path = directory / f"{_PREFIX}{name}"
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(data)
    unfinished.rename(path)


def find_redo(directory: Path, name: str) -> bytes | None:
    """Return the changes of this name; None if there are none here."""
    try:
        return (directory / f"{_PREFIX}{name}").read_bytes()
    except FileNotFoundError:
        return None
