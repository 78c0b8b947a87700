"""Savepoint: the newest epoch of a job, named, so that it can be gone back to.

Works while the job runs: it only reads the table and writes one small file beside it.
"""

from __future__ import annotations

from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import live_files, newest_epoch, opened
from jobs.edge.table.savepoints import RESTORED, Savepoint, delete_savepoint, write_savepoint
from schemas.table.epoch import EpochRow

_LOOKS_MAX = 5


class SavepointExists(ValueError):
    """The name is taken; a savepoint is never overwritten."""


class NothingToKeep(LookupError):
    """The table has no epoch yet."""


def keep_newest(place: JobDirectory, name: str | None = None) -> Savepoint:
    """Name the newest epoch; `epoch-N` without a name, and that again is the same savepoint."""
    for _ in range(_LOOKS_MAX):
        handle = opened(place.table)
        row = newest_epoch(place.table, handle)
        if row is None:
            raise NothingToKeep(f"the table of job {place.name!r} has no epoch yet")
        files = [file for file in live_files(handle) if file.part in RESTORED]
        savepoint = Savepoint(name=name or default_name(row), row=row, files=files)
        try:
            write_savepoint(place.home, savepoint)
        except FileExistsError:
            if name is None:
                return savepoint
            raise SavepointExists(
                f"job {place.name!r} has a savepoint {savepoint.name!r} already; choose another "
                "name, or delete that one"
            ) from None
        # The sweep may have taken files that were compacted away between the two looks; from now
        # on they are pinned, so one check is enough.
        if all((place.table / file.path).exists() for file in files):
            return savepoint
        delete_savepoint(place.home, savepoint.name)
    raise NothingToKeep(f"the files of job {place.name!r} change faster than they can be named")


def default_name(row: EpochRow) -> str:
    return f"epoch-{row.epoch}"
