"""The reader of a job's table: sees each new epoch, writes the index, and tells what it saw.

    next log entry there? ──► epochs and changelog after ours ──► Told: its changes, rendered
         (a look every 20 ms)                                └──► results index ──► Stood

It reads what is committed and nothing else; a job that is stopped, or dead, is only one whose next
log entry does not come. It runs in a process of its own (service.live.reader_process), for what it
computes would hold up every request; whom it tells is the service's follower of the job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.job.job_plan import plan_of
from schemas.limits import COURSE_EPOCHS_MAX, INDEX_LOOK_SECONDS, OBJECT_LOOK_SECONDS
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.live.index_writer import IndexWriter
from service.live.recent_changes import EpochChanges, epoch_changes
from service.places import JobPlaces
from service.table.job_table import FormatUnknown, NoTable, Table
from service.table.row_shape import RowShape

log = logging.getLogger(__name__)

_ABSENT_LOOK_SECONDS = 0.1
_REOPEN_SECONDS = 5.0  # the log is cleaned up: an entry may have come and gone between two looks
_AGAIN_SECONDS = 1.0
_CATCH_UP_ROWS = 200_000  # changelog rows in memory at once


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The index stands, with the epochs that led there; `anew` where it was filled from the
    table, so that no changes lead to it."""

    row: EpochRow
    course: list[EpochRow]
    anew: bool


class Told(msgspec.Struct, frozen=True):
    """An epoch's changes, and the groups that went without a word in them."""

    changes: EpochChanges
    gone: list[bytes]


class Stood(msgspec.Struct, frozen=True, tag=True):
    """An epoch is in the index."""

    row: EpochRow


class Looked(msgspec.Struct, frozen=True, tag=True):
    """There is nothing to follow: no table yet, or a problem with it."""

    problem: str | None = None


class Outgrown(msgspec.Struct, frozen=True, tag=True):
    """The table is of another query."""


Seen = Begun | Told | Stood | Looked | Outgrown


class Asker(Protocol):
    """Who is told, and says what is wanted."""

    def tell(self, seen: Seen) -> None: ...

    def wait(self, seconds: float) -> bool:
        """So long, or until it is over, which is True from then on."""

    def wanted(self) -> Sequence[str]:
        """Columns that are to be indexed, since the last time."""


class _OfAnotherQuery(Exception):
    pass


class Reader:
    """Of one job, until `asker` has enough."""

    def __init__(self, places: JobPlaces, spec: JobSpec, asker: Asker) -> None:
        self._places = places
        self._shape = RowShape(plan_of(spec))
        self._index = IndexWriter(places.index, self._shape)
        self._asker = asker
        self._problem: str | None = None

    def run(self) -> None:
        while not self._asker.wait(0):
            try:
                self._follow(Table(self._places.table))
            except NoTable:
                self._asker.tell(Looked(self._problem))
                self._asker.wait(_ABSENT_LOOK_SECONDS)
            except _OfAnotherQuery:
                self._asker.tell(Outgrown())
                self._asker.wait(_ABSENT_LOOK_SECONDS)
            except FileNotFoundError:  # compacted and swept away meanwhile
                self._asker.wait(INDEX_LOOK_SECONDS)
            except FormatUnknown as error:
                self._cannot_follow(str(error), error)
            except (BrokenPipeError, ConnectionResetError):
                return
            except Exception as error:
                self._cannot_follow(f"{type(error).__name__}; see the service's log", error)
        self._index.close()

    def _cannot_follow(self, problem: str, error: Exception) -> None:
        """Say it once, and try again: the table may be damaged, or in the middle of something."""
        if self._asker.wait(0):
            return
        if problem != self._problem:
            log.error("the table of job %s cannot be followed", self._places.name, exc_info=error)
        self._problem = problem
        self._asker.tell(Looked(problem))
        self._asker.wait(_AGAIN_SECONDS)

    def _follow(self, table: Table) -> None:
        self._begin(table)
        while not self._asker.wait(0):  # a job may commit faster than we catch up
            reopen = time.monotonic() + _REOPEN_SECONDS
            following = table.following()
            every = INDEX_LOOK_SECONDS if isinstance(following, Path) else OBJECT_LOOK_SECONDS
            while not following.exists() and time.monotonic() < reopen:
                look = time.monotonic() + every
                while time.monotonic() < look:
                    self._index.make_wanted(self._asker.wanted())
                    if self._asker.wait(INDEX_LOOK_SECONDS):
                        return
            table.advance()
            self._catch_up(table)

    def _begin(self, table: Table) -> None:
        """Bring the index to the table, from where it stands or from nothing."""
        newest = table.newest
        if newest.plan != self._shape.plan.fingerprint:
            raise _OfAnotherQuery
        standing = self._index.standing
        rows = [] if standing is None else table.epochs(standing[0] - 1)
        if rows and (rows[0].epoch, rows[0].uuid) == standing:
            self._begun(table, rows[0], anew=False)
            self._catch_up(table)
        else:
            self._fill(table)

    def _fill(self, table: Table) -> None:
        self._index.fill(table, table.epochs())
        self._begun(table, table.newest, anew=True)

    def _begun(self, table: Table, row: EpochRow, *, anew: bool) -> None:
        self._problem = None
        course = table.epochs(row.epoch - COURSE_EPOCHS_MAX)
        led = [each for each in course if each.epoch <= row.epoch]
        self._asker.tell(Begun(row, led, anew))

    def _catch_up(self, table: Table) -> None:
        """The epochs after ours, in pieces that fit the memory."""
        standing = self._index.standing
        assert standing is not None
        rows = table.epochs(standing[0])
        plans = {row.plan for row in rows} - {self._shape.plan.fingerprint}
        if plans and rows[-1].plan in plans:
            raise _OfAnotherQuery
        while rows:
            if plans or rows[0].epoch != standing[0] + 1 or not self._apply(table, rows):
                # Retention has passed us, or the query was another one in between: the changes
                # are gone, the state is not.
                self._fill(table)
                return
            standing = self._index.standing
            assert standing is not None
            rows = [row for row in rows if row.epoch > standing[0]]

    def _apply(self, table: Table, rows: list[EpochRow]) -> bool:
        """The first of these epochs; False where the table does not have all of them any more."""
        piece = [rows[0]]
        total = int(rows[0].counters.get("changelog_rows", 0))
        for row in rows[1:]:
            total += int(row.counters.get("changelog_rows", 0))
            if total > _CATCH_UP_ROWS:
                break
            piece.append(row)
        changelog = table.changelog(piece[0].epoch - 1, piece[-1].epoch)
        expected = sum(int(row.counters.get("changelog_rows", 0)) for row in piece)
        if (0 if changelog is None else changelog.num_rows) != expected:
            return False
        for row in piece:
            mine = _of_epoch(changelog, row.epoch)
            gone: list[bytes] = []
            silent = int(row.counters.get("expired_silently", 0))
            if silent:  # groups went without a word; only the state says which
                buried = table.buried(row.epoch)
                if buried is None or buried.num_rows < silent + _deletions(mine):
                    return False
                gone = self._shape.keys(buried)
            changes = epoch_changes(row, mine, self._shape)
            self._asker.tell(Told(changes, gone))  # who follows need not wait for the index
            self._index.apply(row, changes, mine, gone)
            self._asker.tell(Stood(row))
        return True


def _of_epoch(changelog: pa.Table | None, epoch: int) -> pa.Table | None:
    if changelog is None:
        return None
    mine = changelog.filter(pc.equal(changelog["epoch"], epoch))
    return mine if mine.num_rows else None


def _deletions(changelog: pa.Table | None) -> int:
    """How many groups an epoch's changelog ends with -D."""
    if changelog is None:
        return 0
    return int(pc.sum(pc.equal(changelog["op"], "-D")).as_py() or 0)
