"""Create a savepoint: keep the newest epoch of a job under a name, to restore it later.

It has the state of all views of the job.
The job may run. This only reads its table and writes one small file beside it.
"""

from __future__ import annotations

from jobs.edge.process.job_directory import JobDirectory
from jobs.reading.epoch_rows import newest_of_job
from jobs.reading.files import live_files, open_table
from jobs.reading.savepoints import (
    Savepoint,
    delete_savepoint,
    list_restored_files,
    write_savepoint,
)
from schemas.limits import SAVEPOINT_TRIES_MAX


class SavepointExists(ValueError):
    """The name is taken; a savepoint is never overwritten."""


class NothingToSave(LookupError):
    """The table has no epoch yet."""


def create_savepoint(paths: JobDirectory, name: str | None = None) -> Savepoint:
    """Name the newest epoch; without a name, return `epoch-N`, which may exist already."""
    for _ in range(SAVEPOINT_TRIES_MAX):
        handle = open_table(paths.table)
        row = newest_of_job(paths.table, live_files(handle))
        if row is None:
            raise NothingToSave(f"the table of job {paths.name!r} has no epoch yet")
        files = list_restored_files(handle)
        savepoint = Savepoint(name=name or f"epoch-{row.epoch}", row=row, files=files)
        try:
            write_savepoint(paths.home, savepoint)
        except FileExistsError:
            if name is None:
                return savepoint
            raise SavepointExists(
                f"job {paths.name!r} has a savepoint {savepoint.name!r} already; choose another "
                "name, or delete the savepoint"
            ) from None
        # Before the savepoint was written, the sweep may have deleted files that compaction had
        # replaced. Now they are pinned, so one check is enough.
        if all((paths.table / file.path).exists() for file in files):
            return savepoint
        delete_savepoint(paths.home, savepoint.name)
    raise NothingToSave(f"the files of job {paths.name!r} change too fast; try again")
