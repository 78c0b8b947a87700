"""Choose where a job's table is: in the data directory or in object storage.

    run, no table yet      --tables ──► write epochs.url ──► create the table at that URL
    clone and evolve       epochs.partial      ──► rename ──► epochs
                           epochs.url.partial  ──► rename ──► epochs.url

The pointer file epochs.url is beside the job's spec, so the data directory is enough to find the
table. One of the two renames makes the new table the job's table.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from schemas.directory.paths import JobDirectory
from schemas.table.object_path import ObjectPath, TablePath


def choose_location(paths: JobDirectory, tables: ObjectPath | None) -> None:
    """Point a job without a table to a new location below `tables`; others keep their table."""
    if tables is not None and not paths.has_table:
        partial = _write_pointer(paths, _unused_path(tables / paths.name))
        partial.rename(paths.pointer)


@dataclass(frozen=True, slots=True)
class NewTable:
    """The location of a new table, which readers do not see before `activate`."""

    table: TablePath
    _partial: Path
    _place: Path

    def activate(self) -> None:
        """Make this table the job's table."""
        self._partial.rename(self._place)


def prepare_new_table(paths: JobDirectory, beside: ObjectPath | None) -> NewTable:
    """Return a location in the data directory, or below `beside` if it is given.

    First remove the unfinished table that a killed command has left.
    """
    left = _partial_pointer(paths)
    if left.exists():
        with suppress(ValueError):  # the kill cut the pointer off, before the table existed
            ObjectPath.of(left.read_text()).remove_tree()
        left.unlink()
    if beside is None:
        partial = paths.own_table.with_name("epochs.partial")
        shutil.rmtree(partial, ignore_errors=True)
        return NewTable(partial, partial, paths.own_table)
    table = _unused_path(beside)
    return NewTable(table, _write_pointer(paths, table), paths.pointer)


def _unused_path(beside: ObjectPath) -> ObjectPath:
    """Return a path that no table has had, so that removing an old table never hits a new one."""
    return beside / f"epochs-{uuid4().hex[:12]}"


def _write_pointer(paths: JobDirectory, table: ObjectPath) -> Path:
    """Write the partial pointer and sync it; a job that lost its pointer would start again."""
    paths.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = _partial_pointer(paths)
    with partial.open("w") as file:
        file.write(str(table))
        file.flush()
        os.fsync(file.fileno())
    return partial


def _partial_pointer(paths: JobDirectory) -> Path:
    return paths.pointer.with_name("epochs.url.partial")
