"""Savepoints: named epochs whose state files are kept, whatever compaction and sweeping do.

A savepoint is a small file that names an epoch and the state files of that moment. It does not
depend on Delta's log, which is cleaned up.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from uuid import uuid4

import msgspec

from jobs.edge.table.delta_epochs import LiveFile
from jobs.edge.table.epoch_files import LATE, QUARANTINE, STATE
from schemas.table.epoch import EpochRow

# The parts that going back to a savepoint sets back: state, and what was not taken into it.
RESTORED = (*STATE, LATE, QUARANTINE)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class Savepoint(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    row: EpochRow
    files: list[LiveFile]  # of the parts RESTORED


def _directory(home: Path) -> Path:
    return home / "savepoints"


def write_savepoint(home: Path, savepoint: Savepoint) -> Path:
    """Keep it; a name is given once. In one step, for the sweep reads all of them at any time."""
    if NAME.fullmatch(savepoint.name) is None:
        raise ValueError(f"{savepoint.name!r} is not a savepoint name; use letters, digits, . _ -")
    directory = _directory(home)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{savepoint.name}.json"
    fresh = directory / f"{savepoint.name}.{uuid4().hex}.new"
    fresh.write_bytes(msgspec.json.encode(savepoint))
    try:
        os.link(fresh, path)
    finally:
        fresh.unlink()
    return path


def delete_savepoint(home: Path, name: str) -> bool:
    """Let go of it; the next sweep takes the files that only it has kept."""
    path = _directory(home) / f"{name}.json"
    if NAME.fullmatch(name) is None or not path.exists():
        return False
    path.unlink()
    return True


def savepoints(home: Path) -> list[Savepoint]:
    directory = _directory(home)
    found = sorted(directory.glob("*.json")) if directory.is_dir() else []
    kept = [msgspec.json.decode(path.read_bytes(), type=Savepoint) for path in found]
    return sorted(kept, key=lambda savepoint: savepoint.row.epoch)


def pinned_files(home: Path) -> set[str]:
    return {file.path for savepoint in savepoints(home) for file in savepoint.files}
