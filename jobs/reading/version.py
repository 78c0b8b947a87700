"""Read one version of a job's table: its files, epochs and changelog.

    _delta_log ──► files of the version ──► Parquet ──► Arrow ──► values of schemas.types.sql_types

This module needs deltalake and Arrow but no engine, so the service and the commands use it too.
Between reading the log and reading a file, the job may compact and sweep that file. The reader then
gets a FileNotFoundError; `at_newest` tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.core.values.change import RejectCode, Row
from jobs.reading.epoch_rows import counted_rows, epoch_rows, newest_epoch, newest_of_job, start_row
from jobs.reading.files import LiveFile, NoTable, live_files, log_entry, open_table
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, QUARANTINE
from schemas.limits import TABLE_READ_TRIES_MAX
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import naming, rows_in, table_file

Key = Row
_CODE = "quarantine_code"
TABLE_TAG_CHARACTERS = 8  # of a random id
Answer = TypeVar("Answer")
Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class PartSize:
    part: str
    files: int
    rows: int
    size: int  # bytes


class TableVersion:
    """One version of a job's table."""

    def __init__(self, root: TablePath, handle: DeltaTable | None = None) -> None:
        self.root = root
        self.handle = open_table(root) if handle is None else handle

    @property
    def id(self) -> str:
        """Delta's id of the table; a copy of the table has the same id."""
        return str(self.handle.metadata().id)

    @property
    def tag(self) -> str:
        """The start of the id, for clients: a table that is made anew has another tag."""
        return self.id[:TABLE_TAG_CHARACTERS]

    @property
    def version(self) -> int:
        return self.handle.version()

    @cached_property
    def files(self) -> list[LiveFile]:
        """The live files of the version, oldest epochs first."""
        return live_files(self.handle)

    def advance(self) -> None:
        """Advance to the newest version."""
        self.handle.update_incremental()
        self.__dict__.pop("files", None)

    def next_entry(self) -> TablePath:
        """Return the path of the log entry that the next version will have."""
        return log_entry(self.root, self.version + 1)

    @property
    def sizes(self) -> list[PartSize]:
        """The size of each part that has files."""
        sizes: dict[str, PartSize] = {}
        for file in self.files:
            size = sizes.get(file.part, PartSize(file.part, 0, 0, 0))
            sizes[file.part] = PartSize(
                file.part, size.files + 1, size.rows + file.rows, size.size + file.size
            )
        return list(sizes.values())

    def of_part(self, part: str, after: int = -1) -> list[LiveFile]:
        return [file for file in self.files if file.part == part and file.epoch_max > after]

    def read(self, file: LiveFile, columns: Sequence[str] | None = None) -> pa.Table:
        rows = rows_in(self.root / file.path, _add_code(file, columns))
        return _drop_taken(file, rows, columns)

    def batches(self, file: LiveFile, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """Read a file in batches, because a merged file may be larger than memory."""
        path = self.root / file.path
        with naming(path), table_file(path) as parquet:
            for batch in parquet.iter_batches(rows, columns=_add_code(file, columns)):
                yield _drop_taken(file, pa.Table.from_batches([batch]), columns)

    def epochs(self, after: int = -1) -> list[EpochRow]:
        """Return the rows of the epochs after `after`, in order and without a gap."""
        return epoch_rows(self.root, self.files, after)

    @property
    def newest(self) -> EpochRow:
        row = newest_epoch(self.root, self.files)
        if row is None:
            raise NoTable(f"the table at {self.root} has no epoch yet")
        return row

    @property
    def start(self) -> EpochRow | None:
        """The row of the job's start, with the first offsets of topics that came later too."""
        first = start_row(self.root, self.files)
        return first and first.with_topics_of(self.newest)

    @property
    def refusing(self) -> set[str]:
        """The views that have refused a message which other views may have taken."""
        return {view for row in counted_rows(self.root, self.files) for view in row.refused}

    def changelog(self, after: int, up_to: int) -> pa.Table | None:
        """Return the changelog rows of the epochs (after, up_to], in order."""
        pieces = []
        for file in self.of_part(CHANGELOG, after):
            if file.epoch_min > up_to:
                continue
            whole = file.epoch_min > after and file.epoch_max <= up_to
            wanted = None if whole else [("epoch", ">", after), ("epoch", "<=", up_to)]
            pieces.append(rows_in(self.root / file.path, filters=wanted))
        pieces = [piece for piece in pieces if piece.num_rows]
        if not pieces:
            return None
        table = pa.concat_tables(pieces)
        return table.sort_by([("epoch", "ascending"), ("seq", "ascending")])

    def read_tombstones(self, epoch: int) -> pa.Table | None:
        """Return the accumulator tombstones of an epoch that no merge has dropped yet."""
        wanted = (pc.field("epoch") == epoch) & pc.field("tombstone")
        pieces = [
            rows_in(self.root / file.path, filters=wanted)
            for file in self.of_part(ACCUMULATORS, epoch - 1)
            if file.epoch_min <= epoch
        ]
        return pa.concat_tables(pieces) if pieces else None

    def count_changelog(self, after: int) -> dict[int, int]:
        """Count the changelog rows of each epoch after `after` that retention has kept."""
        counts: dict[int, int] = {}
        for file in self.of_part(CHANGELOG, after):
            if file.epoch_min == file.epoch_max:
                counts[file.epoch_min] = counts.get(file.epoch_min, 0) + file.rows
                continue
            epochs = self.read(file, ["epoch"])["epoch"]
            for entry in pc.value_counts(epochs).to_pylist():
                if entry["values"] > after:
                    counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
        return counts


def _has_taken(file: LiveFile) -> bool:
    """Return whether a view reads messages in this file that it has not refused."""
    return file.is_shared and file.part == QUARANTINE


def _add_code(file: LiveFile, columns: Sequence[str] | None) -> list[str] | None:
    """Return the columns to read from a file, so that `_drop_taken` can be applied."""
    if columns is None or not _has_taken(file) or _CODE in columns:
        return None if columns is None else list(columns)
    return [*columns, _CODE]


def _drop_taken(file: LiveFile, rows: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Drop the messages on which only the job's own query fails: other views have taken them."""
    if not _has_taken(file):
        return rows
    of_query = pc.equal(rows[_CODE], pa.scalar(RejectCode.EXPRESSION.value))
    rows = rows.filter(pc.invert(pc.fill_null(of_query, False)))
    return rows if columns is None or _CODE in columns else rows.drop_columns([_CODE])


def at_newest(root: TablePath, read: Callable[[TableVersion], Answer]) -> Answer:
    """Read the newest version; read again if the job swept its files meanwhile."""
    return read_again(lambda: TableVersion(root), read)


def read_again(open_newest: Callable[[], Table], read: Callable[[Table], Answer]) -> Answer:
    """Open the newest version and read it, again and again if files were swept in between."""
    for _ in range(TABLE_READ_TRIES_MAX - 1):
        try:
            return read(open_newest())
        except NoTable:
            raise
        except FileNotFoundError:
            continue
    return read(open_newest())


def newest_whole_row(root: TablePath) -> EpochRow | None:
    """Return the row of the newest epoch with all views; None without a table.

    Raise what UNREADABLE lists if the table is there: it is no reason to forget its state.
    """
    try:
        return at_newest(root, lambda table: newest_of_job(table.root, table.files))
    except NoTable:
        return None
