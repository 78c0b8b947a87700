"""Savepoints: named epochs whose state files compaction and sweeping keep.

A savepoint is a small file that names an epoch and the state files of that epoch. It does not
depend on Delta's log, because Delta cleans up old log entries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from deltalake import DeltaTable

from jobs.reading.epoch_rows import sum_audited
from jobs.reading.files import LiveFile, live_files
from jobs.reading.parts import LATE, QUARANTINE, STATE
from schemas.documents import answers
from schemas.table.epoch import EpochRow
from schemas.table.view_path import split_part
from schemas.types.moments import format_instant

# The parts that a restore sets back: state, late rows and quarantine.
RESTORED = (*STATE, LATE, QUARANTINE)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


def list_restored_files(handle: DeltaTable) -> list[LiveFile]:
    """Return the files of all views that a restore of this version sets back."""
    return [file for file in live_files(handle) if split_part(file.part)[1] in RESTORED]


class Savepoint(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    row: EpochRow
    files: list[LiveFile]  # of the parts RESTORED, of all views
    # What audits need of the epochs up to this one, by view, once retention removes its row.
    sums: dict[str, dict[str, int]] | None = None

    def describe(self) -> answers.Savepoint:
        """Return what clients see of it."""
        row = self.row
        at = format_instant(row.committed_at // 1_000)
        return answers.Savepoint(self.name, row.epoch, at, row.groups, row.offsets)


def _directory(home: Path) -> Path:
    return home / "savepoints"


def write_savepoint(home: Path, savepoint: Savepoint) -> Path:
    """Write a savepoint file in one step, because the sweep reads all savepoints at any time.

    Raises ValueError for a bad name and FileExistsError if the name is taken.
    """
    if NAME.fullmatch(savepoint.name) is None:
        raise ValueError(f"{savepoint.name!r} is not a savepoint name; use letters, digits, . _ -")
    directory = _directory(home)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{savepoint.name}.json"
    fresh = _write_beside(path, savepoint)
    try:
        os.link(fresh, path)
    finally:
        fresh.unlink()
    return path


def keep_sums(home: Path, rows: Sequence[EpochRow]) -> None:
    """Write the sums of these epochs into their savepoints, before retention removes the rows.

    The start row has only the sums of all removed epochs, also of those after a savepoint.
    """
    known = {(row.epoch, row.uuid) for row in rows}
    for savepoint in savepoints(home):
        at = savepoint.row
        if savepoint.sums is not None or (at.epoch, at.uuid) not in known:
            continue
        until = [row for row in rows if row.epoch <= at.epoch]
        sums = {view: sum_audited([row.of_view(view) for row in until]) for view in at.all_shares}
        path = _directory(home) / f"{savepoint.name}.json"
        fresh = _write_beside(path, msgspec.structs.replace(savepoint, sums=sums))
        if path.exists():  # else it was deleted meanwhile
            fresh.replace(path)
        else:
            fresh.unlink()


def _write_beside(path: Path, savepoint: Savepoint) -> Path:
    fresh = path.with_name(f"{savepoint.name}.{uuid4().hex}.new")
    fresh.write_bytes(msgspec.json.encode(savepoint))
    return fresh


def delete_savepoint(home: Path, name: str) -> bool:
    """Delete a savepoint and return whether it existed.

    The next sweep removes the files that only this savepoint kept.
    """
    path = _directory(home) / f"{name}.json"
    if NAME.fullmatch(name) is None or not path.exists():
        return False
    path.unlink()
    return True


def savepoints(home: Path) -> list[Savepoint]:
    """Return all savepoints of a job, oldest epoch first."""
    directory = _directory(home)
    kept = []
    for path in directory.glob("*.json") if directory.is_dir() else ():
        with suppress(FileNotFoundError):  # deleted since
            kept.append(msgspec.json.decode(path.read_bytes(), type=Savepoint))
    return sorted(kept, key=lambda savepoint: (savepoint.row.epoch, savepoint.name))


def pinned_files(home: Path) -> set[str]:
    """Return the paths of all files that a savepoint keeps."""
    return {file.path for savepoint in savepoints(home) for file in savepoint.files}
