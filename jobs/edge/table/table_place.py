"""Where a job's table is to be: in the data directory, or in object storage.

    run, no table yet     --tables ──► epochs.url written ──► the table made where it says
    a table made beside   epochs.partial      ──► rename ──► epochs
                          epochs.url.partial  ──► rename ──► epochs.url

The pointer lies beside the job's spec, so that whoever has the data directory finds the table
without being told where it is, and one of the two renames is what makes the job.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from schemas.table.object_path import ObjectPath, TablePath
from schemas.table.places import JobDirectory


def settle(place: JobDirectory, tables: ObjectPath | None) -> None:
    """A job that has no table yet is to have it below `tables`; any other one keeps its own."""
    if tables is not None and not place.begun:
        partial = _noted(place, _unused(tables / place.name))
        partial.rename(place.pointer)


@dataclass(frozen=True, slots=True)
class BuildingSite:
    """Where a table is made that nobody sees before it is done."""

    table: TablePath
    _partial: Path
    _place: Path

    def moves_in(self) -> None:
        """From now on it is the job's."""
        self._partial.rename(self._place)


def building_site(place: JobDirectory, beside: ObjectPath | None) -> BuildingSite:
    """For a table in the data directory, or below `beside`. What a kill has left is removed."""
    left = _partial_pointer(place)
    if left.exists():
        with suppress(ValueError):  # cut off by the kill, before anything was made
            ObjectPath.of(left.read_text()).remove_tree()
        left.unlink()
    if beside is None:
        partial = place.own_table.with_name("epochs.partial")
        shutil.rmtree(partial, ignore_errors=True)
        return BuildingSite(partial, partial, place.own_table)
    table = _unused(beside)
    return BuildingSite(table, _noted(place, table), place.pointer)


def _unused(beside: ObjectPath) -> ObjectPath:
    """A place that was never another table's: one that is still to be removed is not this one."""
    return beside / f"epochs-{uuid4().hex[:12]}"


def _noted(place: JobDirectory, table: ObjectPath) -> Path:
    """The pointer to be, on the disk; a job would begin anew without it."""
    place.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = _partial_pointer(place)
    with partial.open("w") as file:
        file.write(str(table))
        file.flush()
        os.fsync(file.fileno())
    return partial


def _partial_pointer(place: JobDirectory) -> Path:
    return place.pointer.with_name("epochs.url.partial")
