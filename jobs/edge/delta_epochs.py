"""Delta epochs: a job's table, and the one way anything gets into it.

    files of the tasks ─┐
    the epoch's own row ├──► commit ──► version v+1, or this writer stops
    removed files ──────┘

Every commit, of an epoch, a compaction or a sweep, goes through `EpochTable.commit`:

1. refresh; the version must be the one that this writer wrote last
2. for epoch E the table must stand at epoch E-1 (the transaction version of the job)
3. put the log entry of version v+1, which exactly one writer can; no retry inside
4. read version v+1 back: with our uuid in it, done; with another's, we are fenced and stop;
   absent, nothing happened and the same version is tried again

So a commit whose reply is lost is recognised as ours, and two writers never both go on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from jobs.edge.epoch_files import (
    EPOCHS,
    AddedFile,
    TableLayout,
    file_name,
    now_ms,
    write_file,
)
from jobs.edge.failpoints import failpoint
from schemas.epoch import FORMAT_VERSION, JSON_FIELDS, EpochRow

log = logging.getLogger(__name__)

APPLICATION = "retally"
COMMIT_TRIES_MAX = 5
_VERSION_PROPERTY = "retally.formatVersion"
_QUIET = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Fenced(Exception):
    """Another writer has committed to this table; this one must stop."""


class CommitFailed(Exception):
    """The commit could not be made; nothing of it is in the table."""


class FormatTooNew(Exception):
    """The table was written by a newer retally."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of the table's current version, with the epochs its rows come from."""

    path: str
    part: str
    size: int
    rows: int
    epoch_min: int
    epoch_max: int


@dataclass(slots=True)
class EpochTable:
    """The table of one job, as its one writer holds it."""

    root: Path
    layout: TableLayout
    handle: DeltaTable
    version: int = field(init=False)

    def __post_init__(self) -> None:
        self.version = self.handle.version()

    @classmethod
    def exists(cls, root: Path) -> bool:
        return DeltaTable.is_deltatable(str(root))

    @classmethod
    def open(cls, root: Path, layout: TableLayout) -> EpochTable:
        return cls(root, layout, opened(root))

    @classmethod
    def create(cls, root: Path, layout: TableLayout) -> EpochTable:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = DeltaTable.create(
            str(root),
            Schema.from_arrow(layout.table_schema),
            mode="error",
            partition_by=["part"],
            configuration={
                "delta.logRetentionDuration": "interval 1 hours",
                "delta.deletedFileRetentionDuration": "interval 1 hours",
                "delta.dataSkippingStatsColumns": "epoch",
                _VERSION_PROPERTY: str(FORMAT_VERSION),
            },
            raise_if_key_not_exists=False,  # the format version is a property of our own
        )
        return cls(root, layout, handle)

    def newest(self) -> EpochRow | None:
        """The epoch that the table stands at; where a start begins."""
        return newest_epoch(self.root, self.handle)

    def live_files(self) -> list[LiveFile]:
        return live_files(self.handle)

    def reader(self) -> DeltaTable:
        """A handle of its own at this version, for another thread."""
        return opened(self.root, self.version)

    def commit_epoch(
        self,
        row: EpochRow,
        files: Sequence[AddedFile],
        removed: Sequence[LiveFile] = (),
        **options: Any,
    ) -> None:
        """Commit an epoch: its files and its own row, together or not at all. Only one that sets
        the table back removes files."""
        name = file_name(EPOCHS, row.epoch, row.uuid, "driver")
        own = write_file(self.root, name, self.layout.epochs_table(row), **options)
        standing = self.handle.transaction_version(APPLICATION)
        if standing is not None and standing != row.epoch - 1:
            raise Fenced(
                f"the table {self.root} stands at epoch {standing}, but this job wanted to commit "
                f"epoch {row.epoch}; another writer was here, so this one stops"
            )
        failpoint("before_commit")
        what = f"epoch {row.epoch}"
        self.commit([*files, own], removed, uuid=row.uuid, what=what, epoch=row.epoch)
        failpoint("after_commit")

    def commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[LiveFile] = (),
        *,
        uuid: str,
        what: str,
        epoch: int | None = None,
    ) -> None:
        """The one commit function; see the module's head for its steps."""
        changes = epoch is not None  # compactions and sweeps leave what the table says
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {"part": file.part}, now_ms(), changes, file.stats)
            for file in added
        ]
        actions += [
            RemoveAction(file.path, changes, now_ms(), file.size, {"part": file.part})
            for file in removed
        ]
        transactions = [] if epoch is None else [Transaction(APPLICATION, epoch)]
        properties = CommitProperties(
            custom_metadata={"retally": {"uuid": uuid, "what": what}},
            max_commit_retries=0,
            app_transactions=transactions,
        )
        problem: Exception | None = None
        for _ in range(COMMIT_TRIES_MAX):
            self._expect_own_version()
            try:
                self.handle.create_write_transaction(
                    actions,
                    "append",
                    self.handle.schema(),
                    ["part"],
                    commit_properties=properties,
                    post_commithook_properties=_QUIET,
                )
                failpoint("commit_reply_lost")
            except (DeltaError, OSError) as error:
                problem = error
            writer = self._writer_of(self.version + 1)
            if writer == uuid:
                self.version += 1
                self.handle.update_incremental()
                return
            if writer is not None:
                raise Fenced(
                    f"version {self.version + 1} of {self.root} belongs to another writer; "
                    f"{what} is not committed and this job stops"
                )
        raise CommitFailed(f"{what} could not be committed to {self.root}: {problem}")

    def _expect_own_version(self) -> None:
        self.handle.update_incremental()
        found = self.handle.version()
        if found != self.version:
            raise Fenced(
                f"{self.root} is at version {found}, but this job wrote version {self.version} "
                "last; another writer was here, so this one stops"
            )

    def _writer_of(self, version: int) -> str | None:
        """The uuid in the log entry of a version; None when there is no such entry."""
        try:
            text = (self.root / "_delta_log" / f"{version:020d}.json").read_text()
        except FileNotFoundError:
            return None
        for line in text.splitlines():
            info = json.loads(line).get("commitInfo")
            if info is not None:
                own = info.get("retally", {})
                return str(own.get("uuid", "")) if isinstance(own, dict) else ""
        return ""


def opened(root: Path, version: int | None = None) -> DeltaTable:
    """The table of a job for reading; refused when its format is newer than this retally."""
    try:
        handle = DeltaTable(str(root), version=version)
    except TableNotFoundError as error:
        raise FileNotFoundError(f"there is no job table at {root}") from error
    written = int(handle.metadata().configuration.get(_VERSION_PROPERTY) or FORMAT_VERSION)
    if written > FORMAT_VERSION:
        raise FormatTooNew(
            f"{root} has format version {written}, this retally knows {FORMAT_VERSION}; "
            "install the newer retally"
        )
    return handle


def live_files(handle: DeltaTable) -> list[LiveFile]:
    """The files of the handle's version, oldest epochs first."""
    actions = handle.get_add_actions(flatten=True)
    columns = {
        name: actions.column(name).to_pylist()
        for name in ("path", "partition.part", "size_bytes", "num_records", "min.epoch",
                     "max.epoch")
        if name in actions.schema.names
    }  # fmt: skip
    if not columns.get("path"):
        return []
    files = [
        LiveFile(path, part, size, rows or 0, low or 0, high or 0)
        for path, part, size, rows, low, high in zip(
            columns["path"],
            columns["partition.part"],
            columns["size_bytes"],
            columns["num_records"],
            columns["min.epoch"],
            columns["max.epoch"],
            strict=True,
        )
    ]
    return sorted(files, key=lambda file: (file.epoch_min, file.epoch_max, file.path))


def newest_epoch(root: Path, handle: DeltaTable) -> EpochRow | None:
    rows = epoch_rows(root, handle, newest_only=True)
    return rows[-1] if rows else None


def epoch_rows(
    root: Path, handle: DeltaTable, since: int = -1, *, newest_only: bool = False
) -> list[EpochRow]:
    """The epoch rows after `since`, in order."""
    files = [f for f in live_files(handle) if f.part == EPOCHS and f.epoch_max > since]
    if newest_only and files:
        files = [max(files, key=lambda file: file.epoch_max)]
    rows = [row for file in files for row in _rows_of(root / file.path)]
    return sorted((row for row in rows if row.epoch > since), key=lambda row: row.epoch)


def _rows_of(path: Path) -> list[EpochRow]:
    rows = []
    table = pq.ParquetFile(path).read()
    stamps = table["committed_at"].combine_chunks().view("int64").to_pylist()
    for record, stamp in zip(table.drop(["committed_at"]).to_pylist(), stamps, strict=True):
        for name in JSON_FIELDS:
            record[name] = json.loads(record[name] or "{}")
        rows.append(msgspec.convert({**record, "committed_at": stamp}, EpochRow))
    return rows
