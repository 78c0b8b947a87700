"""Commit epochs, compactions and sweeps to a job's Delta table.

    files of the tasks ─┐
    epoch row           ├──► commit ──► version v+1, or this writer stops
    removed files ──────┘

Every commit, of an epoch, a compaction or a sweep, goes through `EpochTable.commit`:

1. require that this writer wrote the newest version
2. for epoch E, require that the table is at epoch E-1 (the transaction version of the job)
3. put the log entry of version v+1 without retries; only one writer can succeed
4. read version v+1 back: if it has our uuid, the commit is done; if it has another uuid, this
   writer is fenced and stops; if it is absent, nothing happened and the writer tries again

So a writer recognises its own commit when the reply is lost, and of two writers one always stops.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from jobs.edge.process.failpoints import failpoint
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import AddedFile, file_name, write_file
from jobs.reading.epoch_rows import newest_of_job
from jobs.reading.files import (
    VERSION_PROPERTY,
    LiveFile,
    TableHandle,
    live_files,
    log_entry,
    open_table,
)
from jobs.reading.parts import EPOCHS
from schemas import limits
from schemas.failures.catalogue import CodedError
from schemas.table.epoch import FORMAT_VERSION, EpochRow
from schemas.table.object_path import TablePath, storage_options
from schemas.table.parquet_file import TableDamaged, rows_in
from schemas.types.moments import now_ms

APPLICATION = "retally"
QUIET = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Fenced(CodedError, code="fenced"):
    """Another writer has committed to this table; this writer must stop."""


class CommitFailed(Exception):
    """The commit failed; the table has nothing of it."""


class CommitUnknown(Exception):
    """The result of a commit cannot be read; this writer must stop, and its next start checks."""


@dataclass(slots=True)
class EpochTable:
    """The table of one job, held by its single writer."""

    root: TablePath
    layout: TableLayout
    handle: DeltaTable
    version: int = field(init=False)
    _removed: dict[str, int] | None = field(init=False, default=None)  # path -> removal time in ms
    _log_epoch: int | None = field(init=False, default=None)  # the newest one, once it is known

    def __post_init__(self) -> None:
        self.version = self.handle.version()

    @classmethod
    def exists(cls, root: TablePath) -> bool:
        return DeltaTable.is_deltatable(str(root), storage_options(root))

    @classmethod
    def open(cls, root: TablePath, layout: TableLayout) -> EpochTable:
        """Check the entries since the last checkpoint, then open the table for its writer."""
        _check_log(root)
        return cls(root, layout, open_table(root))

    @classmethod
    def create(
        cls, root: TablePath, layout: TableLayout, schema: pa.Schema | None = None
    ) -> EpochTable:
        """Create an empty table at `root`; `schema` has the columns of several views."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = TableHandle.create(
            str(root),
            Schema.from_arrow(layout.table_schema if schema is None else schema),
            mode="error",
            partition_by=["part"],
            configuration={
                "delta.logRetentionDuration": "interval 1 hours",
                "delta.deletedFileRetentionDuration": "interval 1 hours",
                "delta.dataSkippingStatsColumns": "epoch",
                VERSION_PROPERTY: str(FORMAT_VERSION),
            },
            raise_if_key_not_exists=False,  # Delta does not know our format version
            storage_options=storage_options(root),
        )
        return cls(root, layout, handle)

    def newest(self) -> EpochRow | None:
        """Return the newest epoch row, from which a job resumes; None if there is none."""
        row = newest_of_job(self.root, live_files(self.handle))
        logged = self._read_log_epoch()
        if logged != (None if row is None else row.epoch):
            raise TableDamaged(
                f"the log of {self.root} is at epoch {logged}, but the newest epoch row is "
                f"{'missing' if row is None else row.epoch}; restore the table from a backup"
            )
        return row

    def live_files(self) -> list[LiveFile]:
        return live_files(self.handle)

    def reopen(self) -> None:
        """Open the table again, from the newest checkpoint.

        A handle goes through all log entries since its checkpoint at each commit.
        """
        self.handle = open_table(self.root, self.version)

    def reader(self) -> DeltaTable:
        """Return a separate handle at this version, for another thread."""
        return open_table(self.root, self.version)

    def claim(self) -> bool:
        """Fence all other writers by an empty commit; return whether they have committed meanwhile.

        Another writer may commit first. Then this one follows it and tries again at once, so that
        little time is left for the next commit. Raise Fenced if that was in vain each time.
        """
        tries = 0
        while True:
            try:
                self.commit([], uuid=uuid4().hex, what="claim")
                return tries > 0
            except Fenced:
                tries += 1
                if tries == limits.CLAIM_TRIES_MAX:
                    raise
            self.handle.update_incremental()
            self.version = self.handle.version()
            self._log_epoch = self._removed = None

    def commit_epoch(
        self,
        row: EpochRow,
        files: Sequence[AddedFile],
        removed: Sequence[LiveFile] = (),
        *,
        durable: bool = False,
    ) -> None:
        """Commit the files and the row of an epoch, together or not at all.

        Only an epoch that restores an older state removes files.
        """
        name = file_name(EPOCHS, row.epoch, row.uuid, "driver")
        what = f"epoch {row.epoch}"
        try:
            own = write_file(self.root, name, self.layout.epochs_table(row), durable=durable)
        except OSError as error:
            raise CommitFailed(f"{what} could not be written to {self.root}: {error}") from error
        try:
            logged = self._read_log_epoch()
        except DeltaError:  # another writer may have trimmed the entries that this reads
            self.require_own_version()
            raise
        if logged != (row.epoch - 1 if row.epoch else None):
            raise Fenced(
                f"the table {self.root} is at epoch {logged}, but this job wanted to commit "
                f"epoch {row.epoch}; another writer has committed, so this job stops"
            )
        failpoint("before_commit")
        self.commit(
            [*files, own], removed, uuid=row.uuid, what=what, epoch=row.epoch, durable=durable
        )
        failpoint("after_commit")

    def commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[LiveFile] = (),
        *,
        uuid: str,
        what: str,
        epoch: int | None = None,
        durable: bool = False,
    ) -> None:
        """Commit file changes to the table; the module docstring lists the steps."""
        if durable:
            _sync({(self.root / file.path).parent for file in added})
        changes_data = epoch is not None  # compactions and sweeps keep the logical rows
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {"part": file.part}, now_ms(), changes_data, file.stats)
            for file in added
        ]
        actions += [
            RemoveAction(file.path, changes_data, now_ms(), file.size, {"part": file.part})
            for file in removed
        ]
        transactions = [] if epoch is None else [Transaction(APPLICATION, epoch)]
        properties = CommitProperties(
            custom_metadata={"retally": {"uuid": uuid, "what": what}},
            max_commit_retries=0,
            app_transactions=transactions,
        )
        problem: Exception | None = None
        for tries in range(limits.COMMIT_TRIES_MAX):
            # In object storage the entry of an earlier try may land late.
            writer = self._find_next_writer(what) if tries else None
            if writer is None:
                self.require_own_version()
                try:
                    self.handle.create_write_transaction(
                        actions,
                        "append",
                        self.handle.schema(),
                        ["part"],
                        commit_properties=properties,
                        post_commithook_properties=QUIET,
                    )
                    failpoint("commit_reply_lost")
                except Exception as error:  # only the log shows whether the commit happened
                    problem = error
                writer = self._find_next_writer(what)
            if writer == uuid:
                self.version += 1
                with _require_readable(what, self.root):
                    self.handle.update_incremental()
                self._remember_removed(removed)
                self._log_epoch = self._log_epoch if epoch is None else epoch
                if durable:
                    _sync([self._entry_path(self.version), self.root / "_delta_log"])
                return
            if writer is not None:
                raise Fenced(
                    f"version {self.version + 1} of {self.root} belongs to another writer; "
                    f"{what} is not committed and this job stops"
                )
        raise CommitFailed(f"{what} could not be committed to {self.root}: {problem}") from problem

    def _read_log_epoch(self) -> int | None:
        """Return the newest epoch in the log.

        This reads all entries since the checkpoint. In object storage each entry is a request, so
        there it is read once: no other version can come between two of ours.
        """
        if self._log_epoch is None or isinstance(self.root, Path):
            self._log_epoch = self.handle.transaction_version(APPLICATION)
        return self._log_epoch

    def removed_since(self, since_ms: int) -> set[str]:
        """Return the files removed since `since_ms`; readers of older versions still need them."""
        if self._removed is None:
            self._removed = dict(_read_removals(self.root, since_ms))
        self._removed = {name: at for name, at in self._removed.items() if at >= since_ms}
        return set(self._removed)

    def _remember_removed(self, removed: Sequence[LiveFile]) -> None:
        if self._removed is not None:
            self._removed.update((file.path, now_ms()) for file in removed)

    def require_own_version(self) -> None:
        """Raise Fenced unless this writer wrote the newest version.

        This checks two names, because a refresh would list the whole log. If another writer has
        gone on for long, the entry after ours is trimmed, but the log has a newer checkpoint.
        """
        checkpoint = last_checkpoint(self.root)
        if (
            (checkpoint is not None and checkpoint > self.version)
            or self.handle.version() != self.version
            or self._entry_path(self.version + 1).exists()
        ):
            raise Fenced(
                f"{self.root} has a version after {self.version}, which this job wrote last; "
                "another writer has committed, so this job stops"
            )

    def _find_next_writer(self, what: str) -> str | None:
        """Return the uuid of the next version, if it is there."""
        with _require_readable(what, self.root):
            return self._writer_of(self.version + 1)

    def _writer_of(self, version: int) -> str | None:
        """Return the uuid in the log entry of a version; None if there is no such entry."""
        try:
            text = self._entry_path(version).read_text()
        except FileNotFoundError:
            return None
        for line in text.splitlines():
            info = json.loads(line).get("commitInfo")
            if info is not None:
                own = info.get("retally", {})
                return str(own.get("uuid", "")) if isinstance(own, dict) else ""
        return ""

    def _entry_path(self, version: int) -> TablePath:
        return log_entry(self.root, version)


@contextmanager
def _require_readable(what: str, root: TablePath) -> Iterator[None]:
    """Turn an error while reading the log after a commit into CommitUnknown.

    A writer that goes on without reading would take its own version for another writer's.
    """
    try:
        yield
    except (OSError, DeltaError) as error:
        raise CommitUnknown(
            f"cannot read whether {what} is in {root}: {error}; the next start reads it again"
        ) from error


# --- the log ----------------------------------------------------------------------------------


def last_checkpoint(root: TablePath) -> int | None:
    """Return the version of the newest checkpoint that the log names; None if it names none."""
    try:
        hint = json.loads((root / "_delta_log" / "_last_checkpoint").read_text())
        return int(hint["version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # without the hint, Delta lists the log
        return None


def _check_log(root: TablePath) -> None:
    """Raise TableDamaged unless all log entries since the last checkpoint are complete.

    A complete entry names its writer. Delta would read a truncated entry as an entry without
    actions, and its epoch would be lost silently.
    """
    since = last_checkpoint(root) or 0
    newest = sorted(version for path in _list_entries(root) if (version := int(path.stem)) > since)
    paths = [log_entry(root, version) for version in newest]
    for path, text in zip(paths, _read_contents(paths), strict=True):
        try:
            kinds = {kind for line in text.splitlines() for kind in json.loads(line)}
        except (ValueError, TypeError):
            kinds = set()
        if "commitInfo" not in kinds:
            raise TableDamaged(
                f"{path} is damaged; restore it from a backup; if the machine lost power during "
                "its write and no entry is newer, delete it"
            )
    if newest and newest != list(range(newest[0], newest[0] + len(newest))):
        missing = sorted(set(range(newest[0], newest[-1])) - set(newest))
        raise TableDamaged(f"{log_entry(root, missing[0])} is missing; restore it from a backup")


def _list_entries(root: TablePath) -> Iterator[TablePath]:
    directory = root / "_delta_log"
    for path in directory.glob("*.json") if directory.is_dir() else ():
        if path.stem.isdigit():
            yield path


def _read_contents(paths: Sequence[TablePath]) -> Iterator[bytes]:
    """Yield the contents of these files; object storage gets several requests at once."""
    if all(isinstance(path, Path) for path in paths):
        yield from (path.read_bytes() for path in paths)
        return
    with ThreadPoolExecutor(limits.OBJECT_REQUESTS_AT_ONCE) as requests:
        yield from requests.map(lambda path: path.read_bytes(), paths)


def write_checkpoint(root: TablePath, version: int) -> None:
    """Write a Delta checkpoint with a separate handle and remove old log entries.

    It commits nothing. Delta's clean-up removes entries by age, and ours by number.
    """
    handle = open_table(root, version)
    handle.create_checkpoint()
    handle.cleanup_metadata()
    _trim_log(root, version)


def _trim_log(root: TablePath, checkpoint: int) -> None:
    """Remove entries long before the checkpoint: each commit lists all, however young they are."""
    paths: list[TablePath] = list((root / "_delta_log").glob("*"))
    for path in paths:
        version = path.name.partition(".")[0]
        if version.isdigit() and int(version) < checkpoint - limits.LOG_ENTRIES_MAX:
            path.unlink(missing_ok=True)


def _read_removals(root: TablePath, since_ms: int) -> Iterator[tuple[str, int]]:
    """Yield (path, removal time in ms) of files removed since `since_ms`.

    They come from the newest checkpoint and from the log entries that are left.
    """
    checkpoint = last_checkpoint(root)
    if checkpoint is not None:
        path = root / "_delta_log" / f"{checkpoint:020d}.checkpoint.parquet"
        for removed in rows_in(path, ["remove"])["remove"].drop_null().to_pylist():
            at = int(removed["deletionTimestamp"] or since_ms)
            if at >= since_ms:
                yield removed["path"], at
    entries = (path for path in _list_entries(root) if path.stat().st_mtime * 1_000 >= since_ms)
    for text in _read_contents(list(entries)):
        for line in text.splitlines():
            if line.startswith(b'{"remove"'):
                action = json.loads(line)["remove"]
                yield action["path"], int(action.get("deletionTimestamp") or since_ms)


def _sync(paths: Iterable[TablePath]) -> None:
    """Sync files and directories to disk; object storage is durable once it acknowledges."""
    for path in paths:
        if not isinstance(path, Path):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
