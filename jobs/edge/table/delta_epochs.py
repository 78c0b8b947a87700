"""Delta epochs: a job's table, and the one way anything gets into it.

    files of the tasks ─┐
    the epoch's own row ├──► commit ──► version v+1, or this writer stops
    removed files ──────┘

Every commit, of an epoch, a compaction or a sweep, goes through `EpochTable.commit`:

1. the newest version must be the one that this writer wrote last
2. for epoch E the table must stand at epoch E-1 (the transaction version of the job)
3. put the log entry of version v+1, which exactly one writer can; no retry inside
4. read version v+1 back: with our uuid in it, done; with another's, we are fenced and stop;
   absent, nothing happened and the same version is tried again

So a commit whose reply is lost is recognised as ours, and two writers never both go on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from jobs.edge.process.failpoints import failpoint
from jobs.edge.table.epoch_files import (
    EPOCHS,
    AddedFile,
    TableLayout,
    file_name,
    now_ms,
    write_file,
)
from schemas.limits import LOG_ENTRIES_MAX, OBJECT_REQUESTS_AT_ONCE
from schemas.table.epoch import FORMAT_VERSION, JSON_FIELDS, OLDEST_FORMAT, EpochRow
from schemas.table.object_path import TablePath, storage_options
from schemas.table.parquet_file import TableDamaged, rows_in

APPLICATION = "retally"
COMMIT_TRIES_MAX = 5
_VERSION_PROPERTY = "retally.formatVersion"
_CHECKPOINT_DAMAGED = re.compile(r"Invalid Checkpoint|Parquet error")
QUIET = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Fenced(Exception):
    """Another writer has committed to this table; this one must stop."""


class CommitFailed(Exception):
    """The commit could not be made; nothing of it is in the table."""


class CommitUnknown(Exception):
    """What came of a commit cannot be seen now; this writer must stop, and its next start sees."""


class FormatTooNew(Exception):
    """The table was written by a newer retally."""


class FormatTooOld(Exception):
    """The table was written by a retally from before the first release."""


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

    root: TablePath
    layout: TableLayout
    handle: DeltaTable
    version: int = field(init=False)
    _removed: dict[str, int] | None = field(init=False, default=None)  # file -> when, in ms
    _standing: int | None = field(init=False, default=None)  # an epoch, once it is known

    def __post_init__(self) -> None:
        self.version = self.handle.version()

    @classmethod
    def exists(cls, root: TablePath) -> bool:
        return DeltaTable.is_deltatable(str(root), storage_options(root))

    @classmethod
    def open(cls, root: TablePath, layout: TableLayout) -> EpochTable:
        """The table as its writer finds it, once the newest of its log has been looked at."""
        _check_log(root)
        return cls(root, layout, opened(root))

    @classmethod
    def create(cls, root: TablePath, layout: TableLayout) -> EpochTable:
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
            storage_options=storage_options(root),
        )
        return cls(root, layout, handle)

    def newest(self) -> EpochRow | None:
        """The epoch that the table stands at; where a start begins."""
        row = newest_epoch(self.root, self.handle)
        standing = self._stands_at()
        if standing != (None if row is None else row.epoch):
            raise TableDamaged(
                f"the log of {self.root} stands at epoch {standing}, but the newest epoch row is "
                f"{'missing' if row is None else row.epoch}; restore the table from a backup"
            )
        return row

    def live_files(self) -> list[LiveFile]:
        return live_files(self.handle)

    def reopen(self) -> None:
        """Begin at the newest checkpoint: a handle works through all that the log has had since
        the one it was opened at, again with each commit."""
        self.handle = opened(self.root, self.version)

    def reader(self) -> DeltaTable:
        """A handle of its own at this version, for another thread."""
        return opened(self.root, self.version)

    def commit_epoch(
        self,
        row: EpochRow,
        files: Sequence[AddedFile],
        removed: Sequence[LiveFile] = (),
        *,
        durable: bool = False,
    ) -> None:
        """Commit an epoch: its files and its own row, together or not at all. Only one that sets
        the table back removes files."""
        name = file_name(EPOCHS, row.epoch, row.uuid, "driver")
        what = f"epoch {row.epoch}"
        try:
            own = write_file(self.root, name, self.layout.epochs_table(row), durable=durable)
        except OSError as error:
            raise CommitFailed(f"{what} could not be written to {self.root}: {error}") from error
        try:
            standing = self._stands_at()
        except DeltaError:  # whoever overtook us may have trimmed away what that reads
            self._expect_own_version()
            raise
        if standing != (row.epoch - 1 if row.epoch else None):
            raise Fenced(
                f"the table {self.root} stands at epoch {standing}, but this job wanted to commit "
                f"epoch {row.epoch}; another writer was here, so this one stops"
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
        """The one commit function; see the module's head for its steps."""
        if durable:
            _sync({(self.root / file.path).parent for file in added})
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
                    post_commithook_properties=QUIET,
                )
                failpoint("commit_reply_lost")
            except Exception as error:  # whatever it was, only the log knows what came of it
                problem = error
            with _seen(what, self.root):
                writer = self._writer_of(self.version + 1)
            if writer == uuid:
                self.version += 1
                with _seen(what, self.root):
                    self.handle.update_incremental()
                self._remember_removed(removed)
                self._standing = self._standing if epoch is None else epoch
                if durable:
                    _sync([self._entry(self.version), self.root / "_delta_log"])
                return
            if writer is not None:
                raise Fenced(
                    f"version {self.version + 1} of {self.root} belongs to another writer; "
                    f"{what} is not committed and this job stops"
                )
        raise CommitFailed(f"{what} could not be committed to {self.root}: {problem}") from problem

    def _stands_at(self) -> int | None:
        """The newest epoch, as the log has it. To ask is to read all entries since the checkpoint,
        each of them a request in object storage; there it is asked once, for no version can come
        between two of ours."""
        if self._standing is None or isinstance(self.root, Path):
            self._standing = self.handle.transaction_version(APPLICATION)
        return self._standing

    def lately_removed(self, since_ms: int) -> set[str]:
        """Files that left the table since then: who reads an older version still wants them."""
        if self._removed is None:
            self._removed = dict(_removals(self.root, since_ms))
        self._removed = {name: at for name, at in self._removed.items() if at >= since_ms}
        return set(self._removed)

    def _remember_removed(self, removed: Sequence[LiveFile]) -> None:
        if self._removed is not None:
            self._removed.update((file.path, now_ms()) for file in removed)

    def _expect_own_version(self) -> None:
        """A look at two names: a refresh would list the whole log, and after each commit the handle
        has been refreshed. Where others went on for long, the entry after ours is trimmed away, and
        the log has a checkpoint that we did not write."""
        checkpoint = last_checkpoint(self.root)
        if (
            (checkpoint is not None and checkpoint > self.version)
            or self.handle.version() != self.version
            or self._entry(self.version + 1).exists()
        ):
            raise Fenced(
                f"{self.root} has a version after {self.version}, which this job wrote last; "
                "another writer was here, so this one stops"
            )

    def _writer_of(self, version: int) -> str | None:
        """The uuid in the log entry of a version; None when there is no such entry."""
        try:
            text = self._entry(version).read_text()
        except FileNotFoundError:
            return None
        for line in text.splitlines():
            info = json.loads(line).get("commitInfo")
            if info is not None:
                own = info.get("retally", {})
                return str(own.get("uuid", "")) if isinstance(own, dict) else ""
        return ""

    def _entry(self, version: int) -> TablePath:
        return log_entry(self.root, version)


@contextmanager
def _seen(what: str, root: TablePath) -> Iterator[None]:
    """A look at the log after a commit: a writer that cannot look must not go on, for it would take
    its own version for another's."""
    try:
        yield
    except (OSError, DeltaError) as error:
        raise CommitUnknown(
            f"whether {what} is in {root} cannot be seen: {error}; the next start looks again"
        ) from error


def opened(root: TablePath, version: int | None = None) -> DeltaTable:
    """The table of a job for reading; refused when its format is newer than this retally.

    3 is the first format that is read (1 had no timers, 2 no late rows). 4 has images for jobs
    with dedupe; a table of 3 has none and needs none. A later retally that changes the format
    brings an older table up here, or says what to do; every reader and the writer come through
    here.
    """
    try:
        handle = DeltaTable(str(root), version=version, storage_options=storage_options(root))
    except TableNotFoundError as error:
        raise FileNotFoundError(f"there is no job table at {root}") from error
    except DeltaError as error:
        if _CHECKPOINT_DAMAGED.search(str(error)) is None:
            raise  # storage that does not answer
        raise TableDamaged(
            f"a checkpoint in {root / '_delta_log'} is damaged ({error}); restore it from a backup"
        ) from error
    written = int(handle.metadata().configuration.get(_VERSION_PROPERTY) or FORMAT_VERSION)
    if written > FORMAT_VERSION:
        raise FormatTooNew(
            f"{root} has format version {written}, this retally knows {FORMAT_VERSION}; "
            "install the newer retally"
        )
    if written < OLDEST_FORMAT:
        raise FormatTooOld(
            f"{root} has format version {written}, this retally knows {OLDEST_FORMAT} and later; "
            "give the job a new name, and it begins anew from its topic"
        )
    return handle


# --- the log ----------------------------------------------------------------------------------


def log_entry(root: TablePath, version: int) -> TablePath:
    return root / "_delta_log" / f"{version:020d}.json"


def last_checkpoint(root: TablePath) -> int | None:
    """The version of Delta's newest checkpoint of the log, as the log itself says."""
    try:
        said = json.loads((root / "_delta_log" / "_last_checkpoint").read_text())
        return int(said["version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # it is a hint; without it the log is listed
        return None


def _check_log(root: TablePath) -> None:
    """Each log entry since the last checkpoint says who wrote it. An entry that was cut off would
    else be taken for one without actions, and its epoch be lost without a word."""
    since = last_checkpoint(root) or 0
    newest = sorted(version for path in _entries(root) if (version := int(path.stem)) > since)
    paths = [log_entry(root, version) for version in newest]
    for path, text in zip(paths, _contents(paths), strict=True):
        try:
            kinds = {kind for line in text.splitlines() for kind in json.loads(line)}
        except (ValueError, TypeError):
            kinds = set()
        if "commitInfo" not in kinds:
            raise TableDamaged(
                f"{path} is damaged; restore it from a backup, or if the machine lost power while "
                "that was written, and nothing is newer, delete it"
            )
    if newest and newest != list(range(newest[0], newest[0] + len(newest))):
        missing = sorted(set(range(newest[0], newest[-1])) - set(newest))
        raise TableDamaged(f"{log_entry(root, missing[0])} is missing; restore it from a backup")


def _entries(root: TablePath) -> Iterator[TablePath]:
    directory = root / "_delta_log"
    for path in directory.glob("*.json") if directory.is_dir() else ():
        if path.stem.isdigit():
            yield path


def _contents(paths: Sequence[TablePath]) -> Iterator[bytes]:
    """What is in these files. In object storage each is a request, so several are under way."""
    if all(isinstance(path, Path) for path in paths):
        yield from (path.read_bytes() for path in paths)
        return
    with ThreadPoolExecutor(OBJECT_REQUESTS_AT_ONCE) as requests:
        yield from requests.map(lambda path: path.read_bytes(), paths)


def write_checkpoint(root: TablePath, version: int) -> None:
    """Delta's own checkpoint of the log, from a handle of its own: it commits nothing. What is in
    the log from long before goes, by Delta's clean-up, which looks at its age, and by ours."""
    handle = opened(root, version)
    handle.create_checkpoint()
    handle.cleanup_metadata()
    _trim_log(root, version)


def _trim_log(root: TablePath, checkpoint: int) -> None:
    """Every commit lists all that there is, however young it is."""
    paths: list[TablePath] = list((root / "_delta_log").glob("*"))
    for path in paths:
        version = path.name.partition(".")[0]
        if version.isdigit() and int(version) < checkpoint - LOG_ENTRIES_MAX:
            path.unlink(missing_ok=True)


def _removals(root: TablePath, since_ms: int) -> Iterator[tuple[str, int]]:
    """Files that have left the table since then, and when: as the newest checkpoint has them, and
    the log entries, of which there may be fewer."""
    checkpoint = last_checkpoint(root)
    if checkpoint is not None:
        path = root / "_delta_log" / f"{checkpoint:020d}.checkpoint.parquet"
        for removed in rows_in(path, ["remove"])["remove"].drop_null().to_pylist():
            at = int(removed["deletionTimestamp"] or since_ms)
            if at >= since_ms:
                yield removed["path"], at
    entries = (path for path in _entries(root) if path.stat().st_mtime * 1_000 >= since_ms)
    for text in _contents(list(entries)):
        for line in text.splitlines():
            if line.startswith(b'{"remove"'):
                action = json.loads(line)["remove"]
                yield action["path"], int(action.get("deletionTimestamp") or since_ms)


def _sync(paths: Iterable[TablePath]) -> None:
    """Files and directory entries to the disk; object storage keeps what it has acknowledged."""
    for path in paths:
        if not isinstance(path, Path):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- files and rows ---------------------------------------------------------------------------


def live_files(handle: DeltaTable) -> list[LiveFile]:
    """The files of the handle's version, oldest epochs first."""
    actions = handle.get_add_actions(flatten=True)
    if not actions.num_rows:
        return []
    names = ("path", "partition.part", "size_bytes", "num_records", "min.epoch", "max.epoch")
    columns = [actions.column(name).to_pylist() for name in names]
    files = [LiveFile(*values) for values in zip(*columns, strict=True)]
    for file in files:
        if file.epoch_min is None or file.epoch_max is None or file.rows is None:
            raise TableDamaged(f"the table's log has no statistics of {file.path}")
    return sorted(files, key=lambda file: (file.epoch_min, file.epoch_max, file.path))


def newest_epoch(root: TablePath, handle: DeltaTable) -> EpochRow | None:
    rows = epoch_rows(root, handle, newest_only=True)
    return rows[-1] if rows else None


def epoch_rows(
    root: TablePath, handle: DeltaTable, since: int = -1, *, newest_only: bool = False
) -> list[EpochRow]:
    """The epoch rows after `since`, in order and without a gap up to the newest."""
    files = [f for f in live_files(handle) if f.part == EPOCHS and f.epoch_max > since]
    if newest_only and files:
        files = [max(files, key=lambda file: file.epoch_max)]
    rows = [row for file in files for row in rows_of(root / file.path)]
    rows = sorted((row for row in rows if row.epoch > since), key=lambda row: row.epoch)
    if len(rows) > 1 and rows[1].epoch > rows[0].epoch + 1:
        return rows[1:]  # retention keeps the start, see `start_row`, and not what came after it
    return rows


def start_row(root: TablePath, handle: DeltaTable) -> EpochRow | None:
    """The row of the job's start, whatever retention has removed: where its offsets began, and
    the counters of the epochs that are no longer there added up."""
    files = [file for file in live_files(handle) if file.part == EPOCHS]
    oldest = min(files, key=lambda file: file.epoch_min, default=None)
    if oldest is None:
        return None
    row = min(rows_of(root / oldest.path), key=lambda row: row.epoch)
    return row if row.kind == "start" else None


def rows_of(path: TablePath) -> list[EpochRow]:
    """The rows of a file of epochs."""
    rows = []
    table = rows_in(path)
    stamps = table["committed_at"].combine_chunks().view("int64").to_pylist()
    for record, stamp in zip(table.drop(["committed_at"]).to_pylist(), stamps, strict=True):
        for name in JSON_FIELDS:
            record[name] = json.loads(record[name] or "{}")
        rows.append(msgspec.convert({**record, "committed_at": stamp}, EpochRow))
    return rows
