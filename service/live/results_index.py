"""The results index: one job's results as of its newest epochs, for lookups.

reader process ──► the changes of an epoch ──► announce ──► lookups see them immediately
              └──► rows in the index file, which requests read:
                   one read transaction each, so that rows and epoch are consistent
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from jobs.reading.row_shape import RowShape
from schemas.limits import QUERY_SECONDS_MAX, SQLITE_CHECK_STEPS
from schemas.process.kernel import BOOT_ID
from service.live.recent_changes import EpochChanges
from service.live.select import Select
from service.problems import Problem

_FORMAT = 4
_BOOT_CHARACTERS = 8  # of a random id


def locate_index(directory: Path, shape: RowShape) -> Path:
    """Return the index file of a plan since the last start of the machine.

    Nothing is synced, so after a loss of power a file may be a mixture of old and new pages.
    """
    boot = BOOT_ID.read_text()[:_BOOT_CHARACTERS]
    return directory / f"{shape.plan.fingerprint[:16]}-{_FORMAT}-{boot}.sqlite"


def connect(path: Path) -> sqlite3.Connection:
    """Open or create an index file."""
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    path.chmod(0o600)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")  # a lost index is filled again
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


class ResultsIndex:
    """The index of one job; thread-safe. The reader process writes its file (IndexWriter)."""

    def __init__(self, directory: Path, shape: RowShape) -> None:
        self.shape = shape
        self._path = locate_index(directory, shape)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open = False
        self._closed = False
        # The epoch that the reader is writing, and the new row of each changed group.
        self._announced: tuple[int, Mapping[bytes, bytes | None]] | None = None

    def open(self) -> None:
        """Start to read the file, which the reader has opened or created again."""
        with self._lock:
            self._local = threading.local()
            self._announced = None
            self._open = True

    def close(self) -> None:
        """Refuse new readers; running requests keep their connections."""
        with self._lock:
            self._closed = True

    def announce(self, changes: EpochChanges, expired: Sequence[bytes] = ()) -> None:
        """Let lookups see the next epoch before it is in the file."""
        self._announced = (changes.epoch, {**dict.fromkeys(expired), **changes.collect_rows()})

    def clear_announced(self) -> None:
        """Forget the announced epoch, because the file has it."""
        self._announced = None

    def lookup(self, key: bytes) -> tuple[int, bytes | None, str]:
        """Return the newest epoch, the row of a group in it, and the tag of the table."""
        announced = self._announced  # read it before the file, or an epoch could be missed
        row = (
            self._connect()
            .execute(
                "SELECT epoch, (SELECT document FROM rows WHERE key = ?), table_tag FROM position",
                [key],
            )
            .fetchone()
        )
        if row is None:
            raise make_no_epoch_problem()
        if announced is not None and announced[0] > row[0]:
            return announced[0], announced[1].get(key, row[1]), row[2]
        return row[0], row[1], row[2]

    @contextmanager
    def take_snapshot(self) -> Iterator[IndexSnapshot]:
        """Run several reads in one transaction, within QUERY_SECONDS_MAX."""
        connection = self._connect()
        deadline = time.monotonic() + QUERY_SECONDS_MAX
        connection.set_progress_handler(lambda: time.monotonic() > deadline, SQLITE_CHECK_STEPS)
        connection.execute("BEGIN")
        try:
            position = connection.execute(
                "SELECT epoch, oldest, table_tag FROM position"
            ).fetchone()
            if position is None:
                raise make_no_epoch_problem()
            yield IndexSnapshot(connection, *position)
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            raise make_slow_query_problem() from None
        finally:
            connection.set_progress_handler(None, 0)
            connection.execute("ROLLBACK")

    def _connect(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._lock:
                if self._closed:  # its file was deleted
                    raise make_refilling_problem()
                if not self._open:
                    raise make_no_epoch_problem()
                connection = self._local.connection = connect(self._path)
        return connection


class IndexSnapshot:
    """The index at one epoch."""

    def __init__(self, connection: sqlite3.Connection, epoch: int, oldest: int, tag: str) -> None:
        self.connection = connection
        self.epoch = epoch
        self.oldest = oldest
        self.table_tag = tag

    def select_rows(self, epoch: int, select: Select) -> list[tuple[Any, ...]] | None:
        """Return rows as of an epoch; None if the index does not have it any more."""
        if not self.oldest <= epoch <= self.epoch:
            return None
        current = epoch == self.epoch
        return self.query(*(select.render_current() if current else select.render_at(epoch)))

    def query(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with closing(self.connection.execute(statement, values)) as cursor:
            return cursor.fetchall()

    def find_epoch_at_time(self, milliseconds: int) -> int | None:
        """Return the newest epoch that was committed by then."""
        return self._find_number(
            "SELECT max(epoch) FROM epochs WHERE committed_at <= ?", milliseconds
        )

    def find_epoch_at_watermark(self, watermark: int) -> int | None:
        """Return the first epoch that has reached a watermark."""
        return self._find_number("SELECT min(epoch) FROM epochs WHERE watermark >= ?", watermark)

    def find_watermark(self, epoch: int) -> int | None:
        return self._find_number("SELECT watermark FROM epochs WHERE epoch = ?", epoch)

    def _find_number(self, statement: str, value: int) -> int | None:
        found = self.query(statement, [value])
        return found[0][0] if found else None


def make_refilling_problem() -> Problem:
    detail = "the service is reading the results of the job again; try again"
    return Problem("job-not-ready", detail, headers={"Retry-After": "1"})


def make_no_epoch_problem() -> Problem:
    return Problem(
        "job-has-no-table", "the job has no epoch yet; start the job and wait for its first epoch"
    )


def make_slow_query_problem() -> Problem:
    detail = f"the query took more than {QUERY_SECONDS_MAX:.0f} s; request less, or read the table"
    return Problem("query-too-slow", detail)
