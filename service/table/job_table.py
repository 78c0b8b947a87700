"""A job's table, read: its files at one version, its epochs, its rows as values.

    _delta_log ──► files of the version ──► Parquet ──► Arrow ──► values of schemas.types.sql_types

The service reads what docs/tables.md promises to every reader, with deltalake and Arrow and
nothing of the engine. A file that was compacted and swept away between the look at the log and the
look at the file is a FileNotFoundError: `at_newest` looks again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row
from schemas.table.epoch import FORMAT_VERSION, JSON_FIELDS, OLDEST_FORMAT, EpochRow
from schemas.table.object_path import TablePath, storage_options
from schemas.table.parquet_file import naming, rows_in, table_file
from schemas.types.sql_types import SqlType

CHANGELOG, ACCUMULATORS, MULTISETS = "changelog", "accumulators", "multisets"
QUARANTINE, LATE, EPOCHS = "quarantine", "late", "epochs"
_VERSION_PROPERTY = "retally.formatVersion"
_LOOKS_MAX = 5

Key = Row
Answer = TypeVar("Answer")


class NoTable(LookupError):
    """The job has not begun yet: there is no table, or no epoch in it."""


class FormatUnknown(Exception):
    """The table was written by a retally of another format."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of a version, with the epochs that its rows come from."""

    path: str
    part: str
    rows: int
    epoch_min: int
    epoch_max: int


@dataclass(frozen=True, slots=True)
class PartSize:
    """What a part of a version takes."""

    part: str
    files: int
    rows: int
    size: int  # bytes


class Table:
    """One version of a job's table."""

    def __init__(self, root: TablePath) -> None:
        self.root = root
        try:
            self.handle = DeltaTable(str(root), storage_options=storage_options(root))
        except (TableNotFoundError, FileNotFoundError) as error:
            raise NoTable(f"there is no table at {root}") from error
        written = int(self.handle.metadata().configuration.get(_VERSION_PROPERTY) or 1)
        if not OLDEST_FORMAT <= written <= FORMAT_VERSION:
            raise FormatUnknown(f"the table has format {written}, this retally {FORMAT_VERSION}")

    @property
    def id(self) -> str:
        """Delta's own id of the table, which a copy shares."""
        return str(self.handle.metadata().id)

    @property
    def version(self) -> int:
        return self.handle.version()

    @cached_property
    def files(self) -> list[LiveFile]:
        """All files of the version, oldest epochs first."""
        actions = self.handle.get_add_actions(flatten=True)
        if not actions.num_rows:
            return []
        names = ("path", "partition.part", "num_records", "min.epoch", "max.epoch")
        columns = [actions.column(name).to_pylist() for name in names]
        files = [LiveFile(*values) for values in zip(*columns, strict=True)]
        return sorted(files, key=lambda file: (file.epoch_min, file.epoch_max, file.path))

    def advance(self) -> None:
        """Go on to the newest version."""
        self.handle.update_incremental()
        self.__dict__.pop("files", None)

    def following(self) -> TablePath:
        """The log entry that the next version will have."""
        return self.root / "_delta_log" / f"{self.version + 1:020d}.json"

    @property
    def sizes(self) -> list[PartSize]:
        """What each part takes."""
        actions = self.handle.get_add_actions(flatten=True)
        if not actions.num_rows:
            return []
        found: dict[str, tuple[int, int, int]] = {}
        names = ("partition.part", "num_records", "size_bytes")
        columns = [actions.column(name).to_pylist() for name in names]
        for part, rows, size in zip(*columns, strict=True):
            files, all_rows, all_bytes = found.get(part, (0, 0, 0))
            found[part] = (files + 1, all_rows + (rows or 0), all_bytes + size)
        return [PartSize(part, *counted) for part, counted in found.items()]

    def of_part(self, part: str, after: int = -1) -> list[LiveFile]:
        return [file for file in self.files if file.part == part and file.epoch_max > after]

    def read(self, file: LiveFile, columns: Sequence[str] | None = None) -> pa.Table:
        return rows_in(self.root / file.path, columns)

    def batches(self, file: LiveFile, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """A file piece by piece: one that was merged may be larger than the memory."""
        path = self.root / file.path
        with naming(path), table_file(path) as parquet:
            for batch in parquet.iter_batches(rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])

    def epochs(self, after: int = -1) -> list[EpochRow]:
        """The rows of the epochs after one, in order and without a gap up to the newest."""
        rows = [row for file in self.of_part(EPOCHS, after) for row in self._epoch_rows(file)]
        rows = sorted((row for row in rows if row.epoch > after), key=lambda row: row.epoch)
        if len(rows) > 1 and rows[1].epoch > rows[0].epoch + 1:
            return rows[1:]  # retention keeps the job's start, and not what came after it
        return rows

    @property
    def newest(self) -> EpochRow:
        files = self.of_part(EPOCHS)
        if not files:
            raise NoTable("the table has no epoch yet")
        rows = self._epoch_rows(max(files, key=lambda file: file.epoch_max))
        return max(rows, key=lambda row: row.epoch)

    @property
    def start(self) -> EpochRow | None:
        """The job's start, with the offsets that it began at; retention keeps it."""
        files = self.of_part(EPOCHS)
        if not files:
            return None
        oldest = min(files, key=lambda file: file.epoch_min)
        row = min(self._epoch_rows(oldest), key=lambda row: row.epoch)
        return row if row.kind == "start" else None

    def _epoch_rows(self, file: LiveFile) -> Iterator[EpochRow]:
        table = self.read(file)
        stamps = table["committed_at"].cast(pa.int64()).to_pylist()
        for record, stamp in zip(table.drop(["committed_at"]).to_pylist(), stamps, strict=True):
            for name in JSON_FIELDS:
                record[name] = json.loads(record[name] or "{}")
            yield msgspec.convert({**record, "committed_at": stamp}, EpochRow)

    def changelog(self, after: int, up_to: int) -> pa.Table | None:
        """The changelog rows of the epochs (after, up_to], in order."""
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

    def buried(self, epoch: int) -> pa.Table | None:
        """The accumulators that an epoch has put a tombstone on, as far as no merge has dropped
        them."""
        wanted = (pc.field("epoch") == epoch) & pc.field("tombstone")
        pieces = [
            rows_in(self.root / file.path, filters=wanted)
            for file in self.of_part(ACCUMULATORS, epoch - 1)
            if file.epoch_min <= epoch
        ]
        return pa.concat_tables(pieces) if pieces else None

    def changelog_counts(self, after: int) -> dict[int, int]:
        """How many changelog rows of each epoch after one are still there."""
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


def at_newest(root: TablePath, read: Callable[[Table], Answer]) -> Answer:
    """Read the newest version, again where its files were swept away meanwhile."""
    for _ in range(_LOOKS_MAX - 1):
        try:
            return read(Table(root))
        except FileNotFoundError:
            continue
    return read(Table(root))


def newest_row(root: TablePath) -> EpochRow | None:
    """The newest epoch of a job; None before its first."""
    try:
        return at_newest(root, lambda table: table.newest)
    except (NoTable, DeltaError):
        return None


# --- columns of a plan ----------------------------------------------------------------------------


def group_columns(plan: Plan) -> list[tuple[str, SqlType]]:
    return [(named.name, named.type) for named in plan.group]


def result_columns(plan: Plan) -> list[tuple[str, SqlType]]:
    return list(plan.results)
