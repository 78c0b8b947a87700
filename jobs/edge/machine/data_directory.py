"""Check that a data directory can be used, before a process writes into it."""

from __future__ import annotations

import os
from pathlib import Path


class DirectoryRefused(Exception):
    """The data directory cannot be used; the message says why and what to do."""


def require_writable(data: Path) -> None:
    """Raise DirectoryRefused unless `data` is a directory that we can write to, or can create."""
    path = data.absolute()
    while not os.path.lexists(path):
        path = path.parent
    if not path.is_dir():
        raise DirectoryRefused(f"{path} is not a directory; name one with --data")
    if not os.access(path, os.W_OK | os.X_OK):
        raise DirectoryRefused(
            f"{path} cannot be written by this user; change its owner, or name another directory "
            "with --data"
        )
