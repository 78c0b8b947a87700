"""The reader of a job's table: reads each new epoch, writes the index, and sends events.

    next log entry exists? ──► later epochs and changelog ──► EpochRead: its rendered changes
      (checked every 20 ms)                              └──► results index ──► EpochIndexed

It reads only what is committed; of a stopped or dead job there is simply no next log entry. It runs
in its own process (service.live.reader_process), because its work would delay every request. Its
client is the service's live table of the job.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.job.job_plan import plan_of
from jobs.reading.files import FormatUnknown, NoTable
from jobs.reading.history import read_changes
from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from schemas import limits
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.live.index_writer import IndexWriter
from service.live.recent_changes import EpochChanges, render_epoch
from service.paths import JobPaths

log = logging.getLogger(__name__)

_ABSENT_POLL_SECONDS = 0.1
_REOPEN_SECONDS = 5.0  # log cleanup may remove an entry between two checks
_RETRY_SECONDS = 1.0


class IndexOpened(msgspec.Struct, frozen=True, tag=True):
    """The index is ready, with the epochs up to it. `table_tag` is the tag of the table.

    `refilled`: it was filled from the table, so there are no changes that lead to it.
    """

    row: EpochRow
    rows: list[EpochRow]
    table_tag: str
    refilled: bool


class EpochRead(msgspec.Struct, frozen=True, tag=True):
    """The changes of an epoch, and the groups that expired without a change."""

    changes: EpochChanges
    expired: list[bytes]
    pieces: int = 0  # in which its changes follow, on the way between processes


class EpochIndexed(msgspec.Struct, frozen=True, tag=True):
    """The index contains an epoch."""

    row: EpochRow


class NothingToFollow(msgspec.Struct, frozen=True, tag=True):
    """There is no table yet, or a problem with it."""

    problem: str | None = None


class QueryChanged(msgspec.Struct, frozen=True, tag=True):
    """The table has another query."""


ReaderEvent = IndexOpened | EpochRead | EpochIndexed | NothingToFollow | QueryChanged


class ReaderClient(Protocol):
    """Receives the events of a reader, and controls it."""

    def send(self, event: ReaderEvent) -> None: ...

    def wait(self, seconds: float) -> bool:
        """Wait for the time or the end; return whether the reader should end."""

    def take_requested_columns(self) -> Sequence[str]:
        """Return the columns to index that were requested since the last call."""


class _QueryDiffers(Exception):
    pass


class Reader:
    """Reads one job until its client ends it."""

    def __init__(self, paths: JobPaths, spec: JobSpec, client: ReaderClient) -> None:
        self._paths = paths
        self._shape = RowShape(plan_of(spec), safe=True)
        self._index = IndexWriter(paths.index, self._shape)
        self._client = client
        self._problem: str | None = None
        self._version = -1  # of the table, as last read
        self._missed = (-1, 0)  # a version, and how often one of its files was missing

    def run(self) -> None:
        """Read until the client ends the reader."""
        self._index.open()
        while not self._client.wait(0):
            try:
                self._follow(TableVersion(self._paths.table))
            except NoTable:
                self._client.send(NothingToFollow(self._problem))
                self._client.wait(_ABSENT_POLL_SECONDS)
            except _QueryDiffers:
                self._client.send(QueryChanged())
                self._client.wait(_ABSENT_POLL_SECONDS)
            except FileNotFoundError as error:
                if self._was_swept():
                    self._client.wait(limits.INDEX_POLL_SECONDS)
                else:
                    self._report_problem("the table misses a file; see the service's log", error)
            except FormatUnknown as error:
                self._report_problem(str(error), error)
            except (BrokenPipeError, ConnectionResetError):
                return
            except sqlite3.OperationalError as error:  # a full disk, for example
                self._report_problem(_describe(error), error)
            except sqlite3.DatabaseError as error:
                self._report_problem(_describe(error), error)
                self._index.discard()
            except Exception as error:
                self._report_problem(_describe(error), error)
        self._index.close()

    def _was_swept(self) -> bool:
        """Return whether a missing file may be swept: then there is a newer version by now."""
        version, misses = self._missed
        self._missed = (self._version, misses + 1 if version == self._version else 1)
        return self._missed[1] < limits.TABLE_READ_TRIES_MAX

    def _report_problem(self, problem: str, error: Exception) -> None:
        """Report a problem once, and wait before the next try."""
        if self._client.wait(0):
            return
        if problem != self._problem:
            log.error("cannot follow the table of job %s", self._paths.name, exc_info=error)
        self._problem = problem
        self._client.send(NothingToFollow(problem))
        self._client.wait(_RETRY_SECONDS)

    def _follow(self, table: TableVersion) -> None:
        self._version = table.version
        self._open(table)
        while not self._client.wait(0):  # a job may commit faster than the reader reads
            reopen = time.monotonic() + _REOPEN_SECONDS
            entry = table.next_entry()
            interval = (
                limits.INDEX_POLL_SECONDS if isinstance(entry, Path) else limits.OBJECT_POLL_SECONDS
            )
            while not entry.exists() and time.monotonic() < reopen:
                next_poll = time.monotonic() + interval
                while time.monotonic() < next_poll:
                    self._index.create_indexes(self._client.take_requested_columns())
                    if self._client.wait(limits.INDEX_POLL_SECONDS):
                        return
            table.advance()
            self._version = table.version
            self._catch_up(table)

    def _open(self, table: TableVersion) -> None:
        """Bring the index to the newest epoch, from its position or by filling it."""
        newest = table.newest
        if newest.plan != self._shape.plan.fingerprint:
            raise _QueryDiffers
        position = self._index.position
        rows = [] if position is None else table.epochs(position[0] - 1)
        if rows and (rows[0].epoch, rows[0].uuid) == position:
            self._report_opened(table, rows[0], refilled=False)
            self._catch_up(table)
        else:
            self._fill(table)

    def _fill(self, table: TableVersion) -> None:
        self._index.fill(table, table.epochs())
        self._report_opened(table, table.newest, refilled=True)

    def _report_opened(self, table: TableVersion, row: EpochRow, *, refilled: bool) -> None:
        self._problem = None
        rows = table.epochs(row.epoch - limits.HISTORY_EPOCHS_MAX)
        rows = [each for each in rows if each.epoch <= row.epoch]
        self._client.send(IndexOpened(row, rows, table.tag, refilled))

    def _catch_up(self, table: TableVersion) -> None:
        """Apply the epochs after the index, in pieces that fit in memory."""
        position = self._index.position
        assert position is not None
        # The row of the position too: a table may be dropped and made anew in place, with as many
        # versions. Then this raises FileNotFoundError, or the row is another.
        known, *rows = table.epochs(position[0] - 1)
        plans = {row.plan for row in rows} - {self._shape.plan.fingerprint}
        if plans and rows[-1].plan in plans:
            raise _QueryDiffers
        if (known.epoch, known.uuid) != position:
            self._fill(table)
            return
        while rows:
            if plans or not self._apply(table, rows):
                # Retention has removed changes, or the query was another one in between. Only the
                # state is complete.
                self._fill(table)
                return
            position = self._index.position
            assert position is not None
            rows = [row for row in rows if row.epoch > position[0]]

    def _apply(self, table: TableVersion, rows: list[EpochRow]) -> bool:
        """Apply the first of these epochs; return False if their changes are incomplete."""
        found = read_changes(table, rows, limits.INDEX_CATCH_UP_ROWS_MAX)
        for row, mine in found:
            expired: list[bytes] = []
            silent = row.counts.expired_silently
            if silent:  # these groups have no change; only the state has their keys
                buried = table.read_tombstones(row.epoch)
                if buried is None or buried.num_rows < silent + _count_deletions(mine):
                    return False
                expired = self._shape.encode_keys(buried)
            changes = render_epoch(row, mine, self._shape, table.tag)
            self._client.send(EpochRead(changes, expired))  # streams need not wait for the index
            self._index.apply(row, changes, mine, expired)
            self._client.send(EpochIndexed(row))
        return bool(found)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}; see the service's log"


def _count_deletions(changelog: pa.Table | None) -> int:
    """Return the number of groups that an epoch deletes."""
    if changelog is None:
        return 0
    return int(pc.sum(pc.equal(changelog["op"], "-D")).as_py() or 0)
