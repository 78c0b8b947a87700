"""The results index: one job's results as of its newest epochs, ready to be looked up.

reader (its process) ──► what an epoch says of its groups ──► announce ──► lookups, at once
                    └──► its rows, in the file of the index, which requests read:
                         one read transaction each, so that rows and epoch belong together
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from schemas.limits import QUERY_SECONDS_MAX
from service.live.recent_changes import EpochChanges
from service.live.select import Select
from service.problems import Problem
from service.table.row_shape import RowShape

_FORMAT = 3
_PROGRESS_STEPS = 20_000  # of SQLite's machine, between two looks at the clock


def index_file(directory: Path, shape: RowShape) -> Path:
    return directory / f"{shape.plan.fingerprint[:16]}-{_FORMAT}.sqlite"


def connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    path.chmod(0o600)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")  # what is lost is filled again
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


class ResultsIndex:
    """The index of one job, for all who ask; another process writes its file (IndexWriter)."""

    def __init__(self, directory: Path, shape: RowShape) -> None:
        self.shape = shape
        self._path = index_file(directory, shape)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open = False
        self._closed = False
        # The epoch that is being written, and what becomes of each group that it changed.
        self._ahead: tuple[int, Mapping[bytes, bytes | None]] | None = None

    def open(self) -> None:
        """Its file is there, perhaps made anew: nobody reads the one of before any more."""
        with self._lock:
            self._local = threading.local()
            self._ahead = None
            self._open = True

    def close(self) -> None:
        """Nobody begins to read any more; who does it now has their connection until they end."""
        with self._lock:
            self._closed = True

    def announce(self, told: EpochChanges, buried: Sequence[bytes] = ()) -> None:
        """What the epoch after the newest one says: a lookup need not wait until it is written,
        for what it does not name is as it was."""
        self._ahead = (told.epoch, {**dict.fromkeys(buried), **told.documents()})

    def written(self) -> None:
        """What was announced is in the file."""
        self._ahead = None

    def lookup(self, key: bytes) -> tuple[int, bytes | None]:
        """The newest epoch, and the row of a group in it."""
        ahead = self._ahead  # before the look: what is written meanwhile is in the index then
        row = (
            self._reader()
            .execute("SELECT epoch, (SELECT document FROM rows WHERE key = ?) FROM standing", [key])
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
                if not self._open:
                    raise no_epoch()
                connection = self._local.connection = connected(self._path)
        return connection


class Reading:
    """One moment of the index."""

    def __init__(self, connection: sqlite3.Connection, epoch: int, oldest: int) -> None:
        self.connection = connection
        self.epoch = epoch
        self.oldest = oldest

    def rows_of(self, epoch: int, select: Select) -> list[tuple[Any, ...]] | None:
        """Rows as of an epoch; None where the index does not go back so far."""
        if not self.oldest <= epoch <= self.epoch:
            return None
        return self.rows(*(select.now() if epoch == self.epoch else select.then(epoch)))

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
