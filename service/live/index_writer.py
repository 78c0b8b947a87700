"""The writer of a results index: writes a job's results, epoch by epoch, into its file.

    reader ──► fill: all rows of one epoch            ┐
          └──► apply: the changes of the next epoch   ┴─► one transaction: rows, epoch number, uuid

The index is a cache. The plan names its file, and its content belongs to the uuid of its epoch. If
either does not fit the table, the index is filled again. The tag of the table is beside the rows,
so that a reader never takes the rows of one table for those of another. It has one writer at a
time, across processes: the reader of a killed service may still be running.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from schemas import limits
from schemas.table.epoch import EpochRow
from service.live.recent_changes import EpochChanges
from service.live.results_index import connect, locate_index
from service.live.row_store import RowStore
from service.transaction import transaction

_TRIM_EVERY_SECONDS = 10.0


class IndexWriter:
    """The only writer of one index file, between `open` and `close`."""

    def __init__(self, directory: Path, shape: RowShape) -> None:
        self.shape = shape
        self._directory = directory
        self._path = locate_index(directory, shape)
        self._lock: int
        self._connection: sqlite3.Connection
        self._store: RowStore
        self._indexed: set[str]
        self._applied: deque[tuple[float, int]] = deque()
        self._trimmed_at = time.monotonic()

    def open(self) -> IndexWriter:
        """Wait for the previous writer to end, and open or create the file."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock_directory(self._directory)
        for other in self._directory.glob("*.sqlite*"):  # of another plan
            if not other.name.startswith(self._path.name):
                other.unlink(missing_ok=True)
        try:
            self._open_file()
        except sqlite3.DatabaseError:  # damaged
            self._create_again()
        return self

    def discard(self) -> None:
        """Begin again with an empty file, because this one is damaged."""
        with suppress(sqlite3.Error):
            self._connection.close()
        self._create_again()

    def _create_again(self) -> None:
        for damaged in self._directory.glob(f"{self._path.name}*"):
            damaged.unlink()
        self._open_file()

    def _open_file(self) -> None:
        self._connection = connect(self._path)
        self._connection.execute(f"PRAGMA cache_size = -{limits.INDEX_CACHE_KIB}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {limits.INDEX_CHECKPOINT_PAGES}")
        self._store = RowStore(self._connection, self.shape)
        self._store.create_tables()
        for statement in (
            "CREATE TABLE IF NOT EXISTS position (epoch INTEGER, oldest INTEGER, uuid TEXT, "
            "table_tag TEXT)",
            "CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, committed_at INTEGER, "
            "watermark INTEGER, changelog_rows INTEGER)",
        ):
            self._connection.execute(statement)
        self._indexed = self._store.list_indexed()

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        os.close(self._lock)

    @property
    def position(self) -> tuple[int, str] | None:
        """The epoch of the rows and its uuid; None for an empty index."""
        row = self._connection.execute("SELECT epoch, uuid FROM position").fetchone()
        return None if row is None else (row[0], row[1])

    def fill(self, table: TableVersion, rows: Sequence[EpochRow]) -> None:
        """Replace all rows by those of the table; `rows` are all of its epochs.

        Lookups see the old rows until this is done.
        """
        newest = rows[-1]
        with transaction(self._connection):
            self._store.fill(table, newest.epoch)
            self._connection.execute("DELETE FROM epochs")
            self._connection.execute("DELETE FROM position")
            position = [newest.epoch, newest.epoch, newest.uuid, table.tag]
            self._connection.execute("INSERT INTO position VALUES (?, ?, ?, ?)", position)
            self._record_epochs(rows)
        self._applied.clear()

    def apply(
        self,
        row: EpochRow,
        changes: EpochChanges,
        changelog: pa.Table | None,
        expired: Sequence[bytes] = (),
    ) -> None:
        """Write the next epoch in one transaction; see RowStore.apply."""
        with transaction(self._connection):
            self._store.apply(changes, changelog, expired)
            self._connection.execute(
                "UPDATE position SET epoch = ?, uuid = ?", [row.epoch, row.uuid]
            )
            self._record_epochs([row])
        self._applied.append((time.monotonic(), row.epoch))
        if time.monotonic() - self._trimmed_at > _TRIM_EVERY_SECONDS:
            self._trim_history(time.monotonic() - limits.INDEX_HISTORY_SECONDS)

    def create_indexes(self, columns: Iterable[str]) -> None:
        """Create indexes for columns that queries have used; the queries do not wait."""
        for column in columns:
            if column not in self._indexed and len(self._indexed) < limits.INDEXED_COLUMNS_MAX:
                self._store.create_index(column)
                self._indexed.add(column)

    def _record_epochs(self, rows: Sequence[EpochRow]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?)",
            [
                (row.epoch, row.committed_at // 1_000, row.watermark, row.counts.changelog_rows)
                for row in rows
            ],
        )

    def _trim_history(self, before: float) -> None:
        """Delete old versions of rows, and record the oldest epoch that remains complete."""
        self._trimmed_at = time.monotonic()
        oldest = None
        while len(self._applied) > 1 and self._applied[0][0] < before:
            oldest = self._applied.popleft()[1]
        if oldest is not None:
            with transaction(self._connection):
                self._store.delete_ended(oldest)
                self._connection.execute("UPDATE position SET oldest = ?", [oldest])


def _lock_directory(directory: Path) -> int:
    """Wait for the previous writer to end; return the descriptor of the lock."""
    descriptor = os.open(directory / "writer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
