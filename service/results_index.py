"""The results index: one job's results as of its newest epochs, ready to be looked up.

    follower (one thread) ──► announce: what an epoch says of its groups ──► lookups, at once
                         └──► apply: its rows, epoch number, commit
    requests (any thread) ──► one read transaction each: rows and epoch belong together

It is a cache: its file is named by the plan, its content is tied to the uuid of its epoch, and
where either does not fit the table it is filled again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas.epoch import EpochRow
from schemas.limits import INDEX_CACHE_KIB, INDEX_HISTORY_SECONDS, INDEXED_COLUMNS_MAX, QUERY_SECONDS_MAX
from service.problems import Problem
from service.recent import EpochChanges
from service.row_shape import RowShape
from service.row_store import STILL, RowStore
from service.table import Table

_FORMAT = 2
_PROGRESS_STEPS = 20_000  # of SQLite's machine, between two looks at the clock
_CHECKPOINT_PAGES = 16_000  # 64 MiB: a page that several epochs write is put back once
_FORGET_EVERY_SECONDS = 10.0


class ResultsIndex:
    """The index of one job; `apply` and `fill` belong to its one writer."""

    def __init__(self, directory: Path, shape: RowShape) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.shape = shape
        name = f"{shape.plan.fingerprint[:16]}-{_FORMAT}.sqlite"
        self._path = directory / name
        for other in directory.glob("*.sqlite*"):  # of another plan
            if not other.name.startswith(name):
                other.unlink(missing_ok=True)
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._open()
        except sqlite3.DatabaseError:  # damaged: it is made anew
            for damaged in directory.glob(f"{name}*"):
                damaged.unlink()
            self._open()
        # The epoch that is being written, and what becomes of each group that it changed.
        self._ahead: tuple[int, Mapping[bytes, bytes | None]] | None = None
        self._wanted: set[str] = set()
        self._indexed = self._store.indexed()
        self._applied: deque[tuple[float, int]] = deque()
        self._forgot = time.monotonic()

    def _open(self) -> None:
        self._writer = self._connected()
        self._writer.execute(f"PRAGMA cache_size = -{INDEX_CACHE_KIB}")
        self._writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._store = RowStore(self._writer, self.shape)
        self._store.create()
        for statement in (
            "CREATE TABLE IF NOT EXISTS standing (epoch INTEGER, oldest INTEGER, uuid TEXT)",
            "CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, committed_at INTEGER, "
            "watermark INTEGER, changelog_rows INTEGER)",
        ):
            self._writer.execute(statement)

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        self._path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # what is lost is filled again
        connection.execute("PRAGMA busy_timeout = 5000")
        return connection

    def close(self) -> None:
        """Nobody begins to read any more; who does it now has their connection until they end."""
        with self._lock:
            self._closed = True
            self._readers.clear()
            with suppress(sqlite3.Error):
                self._writer.close()

    # --- the writer -----------------------------------------------------------------------------

    @property
    def standing(self) -> tuple[int, str] | None:
        """The epoch that the rows are of, and its uuid; None for an index that is empty."""
        row = self._writer.execute("SELECT epoch, uuid FROM standing").fetchone()
        return None if row is None else (row[0], row[1])

    def fill(self, table: Table, rows: Sequence[EpochRow]) -> None:
        """Everything anew from the table; `rows` are all of its epochs. Readers see the old rows
        until this is done."""
        newest = rows[-1]
        self._ahead = None
        with self._transaction():
            self._store.fill(table, newest.epoch)
            self._writer.execute("DELETE FROM epochs")
            self._writer.execute("DELETE FROM standing")
            self._writer.execute(
                "INSERT INTO standing VALUES (?, ?, ?)", [newest.epoch, newest.epoch, newest.uuid]
            )
            self._tell(rows)
        self._applied.clear()

    def announce(self, told: EpochChanges, buried: Sequence[bytes] = ()) -> None:
        """What the epoch after the newest one says: a lookup need not wait until it is written,
        for what it does not name is as it was."""
        self._ahead = (told.epoch, {**dict.fromkeys(buried), **told.documents()})

    def apply(
        self,
        row: EpochRow,
        told: EpochChanges,
        changelog: pa.Table | None,
        buried: Sequence[bytes] = (),
    ) -> None:
        """The epoch after the newest one, in one transaction (see RowStore.apply)."""
        with self._transaction():
            self._store.apply(told, changelog, buried)
            self._writer.execute("UPDATE standing SET epoch = ?, uuid = ?", [row.epoch, row.uuid])
            self._tell([row])
        self._ahead = None
        self._applied.append((time.monotonic(), row.epoch))
        if time.monotonic() - self._forgot > _FORGET_EVERY_SECONDS:
            self._forget(time.monotonic() - INDEX_HISTORY_SECONDS)

    def _tell(self, rows: Sequence[EpochRow]) -> None:
        self._writer.executemany(
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
            with self._transaction():
                self._store.forget(oldest)
                self._writer.execute("UPDATE standing SET oldest = ?", [oldest])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._writer.execute("ROLLBACK")
            raise
        self._writer.execute("COMMIT")

    def make_wanted(self) -> None:
        """Indexes of columns that somebody asked by; the question itself did not wait for them."""
        while self._wanted:
            column = self._wanted.pop()
            self._store.index(column)
            self._indexed.add(column)

    # --- readers --------------------------------------------------------------------------------

    def want(self, columns: Iterable[str]) -> None:
        """Columns by which rows are asked for, by the index's own names."""
        for column in columns:
            known = self._indexed | self._wanted
            if column not in known and len(known) < INDEXED_COLUMNS_MAX:
                self._wanted.add(column)

    def lookup(self, key: bytes) -> tuple[int, bytes | None]:
        """The newest epoch, and the row of a group in it."""
        ahead = self._ahead  # before the look: what is written meanwhile is in the index then
        row = (
            self._reader()
            .execute(
                "SELECT epoch, (SELECT document FROM rows WHERE key = ? AND until = ? "
                "ORDER BY since DESC LIMIT 1) FROM standing",
                [key, STILL],
            )
            .fetchone()
        )
        if row is None:
            raise no_epoch()
        if ahead is not None and ahead[0] > row[0]:
            return ahead[0], ahead[1].get(key, row[1])
        return row[0], row[1]

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Several looks at one moment of the index."""
        connection = self._reader()
        deadline = time.monotonic() + QUERY_SECONDS_MAX
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
        connection.execute("BEGIN")
        try:
            standing = connection.execute("SELECT epoch, oldest FROM standing").fetchone()
            if standing is None:
                raise no_epoch()
            yield Reading(connection, *standing)
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            raise too_slow() from None
        finally:
            connection.set_progress_handler(None, 0)
            connection.execute("ROLLBACK")

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._lock:
                if self._closed:  # its file is gone
                    raise _read_anew()
                connection = self._local.connection = self._connected()
                self._readers.append(connection)
        return connection


class Reading:
    """One moment of the index."""

    def __init__(self, connection: sqlite3.Connection, epoch: int, oldest: int) -> None:
        self.connection = connection
        self.epoch = epoch
        self.oldest = oldest

    def rows(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with closing(self.connection.execute(statement, values)) as cursor:
            return cursor.fetchall()

    def epoch_at_time(self, milliseconds: int) -> int | None:
        """The newest epoch that was committed by then."""
        return self._epoch("SELECT max(epoch) FROM epochs WHERE committed_at <= ?", milliseconds)

    def epoch_at_watermark(self, watermark: int) -> int | None:
        """The first epoch that knew all rows up to that time."""
        return self._epoch("SELECT min(epoch) FROM epochs WHERE watermark >= ?", watermark)

    def watermark(self, epoch: int) -> int | None:
        return self._epoch("SELECT watermark FROM epochs WHERE epoch = ?", epoch)

    def epochs_after(self, epoch: int) -> list[tuple[int, int]]:
        """Each later epoch with the number of its changelog rows, in order."""
        statement = "SELECT epoch, changelog_rows FROM epochs WHERE epoch > ? ORDER BY epoch"
        return [(number, count) for number, count in self.rows(statement, [epoch])]

    def _epoch(self, statement: str, value: int) -> int | None:
        found = self.rows(statement, [value])
        return found[0][0] if found else None


def _read_anew() -> Problem:
    detail = "the results of the job are being read from its table anew; try again"
    return Problem("job-not-ready", 503, detail, headers={"Retry-After": "1"})


def no_epoch() -> Problem:
    return Problem(
        "job-has-no-table", 409, "the job has no epoch yet; start it, and wait for its first"
    )


def too_slow() -> Problem:
    detail = f"it took more than {QUERY_SECONDS_MAX:.0f} s; ask for less, or read the table itself"
    return Problem("query-too-slow", 503, detail)
