"""Open a job's table at a version and list the live files of that version.

    _delta_log ──► open_table ──► handle of a version ──► live_files

Every reader and the writer open a table here, so that all of them refuse the same formats. From the
root of a view, only the files of this view and those of all views are visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from schemas.failures.catalogue import CodedError
from schemas.table.epoch import FORMAT_VERSION, OLDEST_FORMAT
from schemas.table.object_path import TablePath, storage_options
from schemas.table.parquet_file import TableDamaged
from schemas.table.view_path import (
    is_seen,
    name_from,
    place_name,
    place_part,
    split_part,
    split_root,
)

VERSION_PROPERTY = "retally.formatVersion"
_FORMAT_WITHOUT_PROPERTY = 1  # format 1 did not write the property
_MERGED_WRITER = re.compile(r"-c(\d)(?:-\d+)?\.parquet$")
_CHECKPOINT_DAMAGED = re.compile(r"Invalid Checkpoint|Parquet error")


class NoTable(FileNotFoundError):
    """The job has not started yet: it has no table, or the table has no epoch."""


class FormatUnknown(CodedError):
    """This retally cannot read the table's format."""


class FormatTooNew(FormatUnknown, code="format-too-new"):
    """A newer retally wrote the table."""


class FormatTooOld(FormatUnknown, code="format-too-old"):
    """A retally from before the first release wrote the table."""


# A table is there, but cannot be read. NoTable is an OSError too, so catch it before.
UNREADABLE = (FormatUnknown, TableDamaged, DeltaError, OSError)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of the table's current version, with the range of its epochs."""

    path: str
    part: str
    size: int
    rows: int
    epoch_min: int
    epoch_max: int

    @property
    def is_shared(self) -> bool:
        """Whether a view sees the file together with the other views of its job."""
        return self.path.startswith("../")

    @property
    def tier(self) -> int:
        """The tier that compaction merged the file into; 0 for a file of one epoch."""
        match = _MERGED_WRITER.search(self.path)
        return int(match[1]) if match else 0


def writer_of_tier(tier: int, number: int) -> str:
    """Return the writer in the name of a merged file, from which its tier is read."""
    return f"c{tier}-{number}"


class TableHandle(DeltaTable):
    """A table at a version, as seen from the root of one view; "" sees all files."""

    view: str = ""


def open_table(root: TablePath, version: int | None = None) -> TableHandle:
    """Open the table of a job for reading; refuse a format that this retally does not know.

    Format 3 is the oldest that retally reads (1 had no timers, 2 no late rows). Format 4 added row
    images for jobs with dedupe; a table of format 3 has none and needs none. A retally that changes
    the format upgrades older tables here, or raises an error that says what to do.
    """
    table, view = split_root(root)
    try:
        handle = TableHandle(str(table), version=version, storage_options=storage_options(table))
    except (TableNotFoundError, FileNotFoundError) as error:
        raise NoTable(f"there is no job table at {root}") from error
    except DeltaError as error:
        if _CHECKPOINT_DAMAGED.search(str(error)) is None:
            raise  # the storage failed
        raise TableDamaged(
            f"a checkpoint in {root / '_delta_log'} is damaged ({error}); restore it from a backup"
        ) from error
    written = handle.metadata().configuration.get(VERSION_PROPERTY)
    require_known_format(root, int(written) if written else _FORMAT_WITHOUT_PROPERTY)
    handle.view = view
    return handle


def require_known_format(root: TablePath, written: int) -> None:
    """Raise FormatTooNew or FormatTooOld if this retally cannot read the format `written`."""
    if written > FORMAT_VERSION:
        raise FormatTooNew(
            f"{root} has format version {written}, this retally reads up to {FORMAT_VERSION}; "
            "install a newer retally"
        )
    if written < OLDEST_FORMAT:
        raise FormatTooOld(
            f"{root} has format version {written}, this retally reads {OLDEST_FORMAT} and later; "
            "give the job a new name to recompute it from its topic"
        )


def log_entry(root: TablePath, version: int) -> TablePath:
    return split_root(root)[0] / "_delta_log" / f"{version:020d}.json"


def live_files(handle: DeltaTable) -> list[LiveFile]:
    """Return the files of the handle's version, oldest epochs first."""
    actions = handle.get_add_actions(flatten=True)
    if not actions.num_rows:
        return []
    names = ("path", "partition.part", "size_bytes", "num_records", "min.epoch", "max.epoch")
    columns = [actions.column(name).to_pylist() for name in names]
    files = [LiveFile(*values) for values in zip(*columns, strict=True)]
    for file in files:
        if file.epoch_min is None or file.epoch_max is None or file.rows is None:
            raise TableDamaged(
                f"the table's log has no statistics of {file.path}; restore the log from a backup"
            )
    files.sort(key=lambda file: (file.epoch_min, file.epoch_max, file.path))
    view = handle.view if isinstance(handle, TableHandle) else ""
    return files_of_view(files, view) if view else files


def files_of_view(files: Iterable[LiveFile], view: str) -> list[LiveFile]:
    """Return the files of a table that a view sees: its own ones, and those of all views."""
    seen = []
    for file in files:
        owner, part = split_part(file.part)
        if is_seen(view, owner, part):
            seen.append(replace(file, path=name_from(file.path, view), part=part))
    return seen


def own_files(files: Iterable[LiveFile], view: str) -> list[LiveFile]:
    """Return the files of a table that only this view has; "" has those that all views share."""
    own = (file for file in files if split_part(file.part)[0] == view)
    return files_of_view(own, view) if view else list(own)


def place_file(file: LiveFile, view: str) -> LiveFile:
    """Return a file that a view sees as its table sees it."""
    if not view:
        return file
    part = file.part if file.is_shared else place_part(file.part, view)
    return replace(file, path=place_name(file.path, view), part=part)
