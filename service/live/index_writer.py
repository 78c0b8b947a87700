"""The writer of a results index: one job's results, epoch by epoch, into the file of the index.

    reader ──► fill: all rows of one epoch          ┐
          └──► apply: what the next epoch changed   ┴─► one transaction: rows, epoch number, uuid

It is a cache: its file is named by the plan, its content is tied to the uuid of its epoch, and
where either does not fit the table it is filled again. It has one writer at a time, across
processes: the reader of a service that was killed may not have noticed yet.
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

from schemas.limits import INDEX_CACHE_KIB, INDEX_HISTORY_SECONDS, INDEXED_COLUMNS_MAX
from schemas.table.epoch import EpochRow
from service.live.recent_changes import EpochChanges
from service.live.results_index import connected, index_file
from service.live.row_store import RowStore
from service.table.job_table import Table
from service.table.row_shape import RowShape
from service.transaction import transaction

_CHECKPOINT_PAGES = 16_000  # 64 MiB: a page that several epochs write is put back once
_FORGET_EVERY_SECONDS = 10.0


class IndexWriter:
    def __init__(self, directory: Path, shape: RowShape) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _only_writer(directory)
        self.shape = shape
        self._path = index_file(directory, shape)
        for other in directory.glob("*.sqlite*"):  # of another plan
            if not other.name.startswith(self._path.name):
                other.unlink(missing_ok=True)
        try:
            self._open()
        except sqlite3.DatabaseError:  # damaged: it is made anew
            for damaged in directory.glob(f"{self._path.name}*"):
                damaged.unlink()
            self._open()
        self._indexed = self._store.indexed()
        self._applied: deque[tuple[float, int]] = deque()
        self._forgot = time.monotonic()

    def _open(self) -> None:
        self._connection = connected(self._path)
        self._connection.execute(f"PRAGMA cache_size = -{INDEX_CACHE_KIB}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._store = RowStore(self._connection, self.shape)
        self._store.create()
        for statement in (
            "CREATE TABLE IF NOT EXISTS standing (epoch INTEGER, oldest INTEGER, uuid TEXT)",
            "CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, committed_at INTEGER, "
            "watermark INTEGER, changelog_rows INTEGER)",
        ):
            self._connection.execute(statement)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        os.close(self._lock)

    @property
    def standing(self) -> tuple[int, str] | None:
        """The epoch that the rows are of, and its uuid; None for an index that is empty."""
        row = self._connection.execute("SELECT epoch, uuid FROM standing").fetchone()
        return None if row is None else (row[0], row[1])

    def fill(self, table: Table, rows: Sequence[EpochRow]) -> None:
        """Everything anew from the table; `rows` are all of its epochs. Lookups see the old rows
        until this is done."""
        newest = rows[-1]
        with transaction(self._connection):
            self._store.fill(table, newest.epoch)
            self._connection.execute("DELETE FROM epochs")
            self._connection.execute("DELETE FROM standing")
            self._connection.execute(
                "INSERT INTO standing VALUES (?, ?, ?)", [newest.epoch, newest.epoch, newest.uuid]
            )
            self._note(rows)
        self._applied.clear()

    def apply(
        self,
        row: EpochRow,
        told: EpochChanges,
        changelog: pa.Table | None,
        buried: Sequence[bytes] = (),
    ) -> None:
        """The epoch after the newest one, in one transaction (see RowStore.apply)."""
        with transaction(self._connection):
            self._store.apply(told, changelog, buried)
            self._connection.execute(
                "UPDATE standing SET epoch = ?, uuid = ?", [row.epoch, row.uuid]
            )
            self._note([row])
        self._applied.append((time.monotonic(), row.epoch))
        if time.monotonic() - self._forgot > _FORGET_EVERY_SECONDS:
            self._forget(time.monotonic() - INDEX_HISTORY_SECONDS)

    def make_wanted(self, columns: Iterable[str]) -> None:
        """Indexes of columns that somebody asked by; the question itself did not wait for them."""
        for column in columns:
            if column not in self._indexed and len(self._indexed) < INDEXED_COLUMNS_MAX:
                self._store.index(column)
                self._indexed.add(column)

    def _note(self, rows: Sequence[EpochRow]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?)",
            [
                (
                    row.epoch,
                    row.committed_at // 1_000,
                    row.watermarks.get("combined"),
                    row.counters.get("changelog_rows", 0),
                )
                for row in rows
            ],
        )

    def _forget(self, before: float) -> None:
        """Let old versions go; the epoch after the last one forgotten is the oldest to ask for."""
        self._forgot = time.monotonic()
        oldest = None
        while len(self._applied) > 1 and self._applied[0][0] < before:
            oldest = self._applied.popleft()[1]
        if oldest is not None:
            with transaction(self._connection):
                self._store.forget(oldest)
                self._connection.execute("UPDATE standing SET oldest = ?", [oldest])


def _only_writer(directory: Path) -> int:
    """Waits for the writer before us to end."""
    descriptor = os.open(directory / "writer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
