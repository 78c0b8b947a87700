"""The follower of a job's table: sees each new epoch, and hands it on.

    next log entry there? ──► epochs and changelog after ours ──► results index
         (a look every 20 ms)                                ├──► recent changes
                                                             └──► whoever waits is woken

One thread a job. It reads what is committed and nothing else; a job that is stopped, or dead, is
only one whose next log entry does not come. Where the table's query is another one than ours, a
follower of that one takes our place.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.job_plan import plan_of
from schemas.epoch import EpochRow
from schemas.job import JobSpec
from schemas.limits import COURSE_EPOCHS_MAX, INDEX_LOOK_SECONDS
from service.course import Course
from service.places import JobPlaces
from service.pulse import Pulse, beaten
from service.recent import Recent, epoch_changes
from service.results_index import ResultsIndex
from service.row_shape import RowShape
from service.table import FormatUnknown, NoTable, Table

log = logging.getLogger(__name__)

_ABSENT_LOOK_SECONDS = 0.1
_REOPEN_SECONDS = 5.0  # the log is cleaned up: an entry may have come and gone between two looks
_AGAIN_SECONDS = 1.0
_CATCH_UP_ROWS = 200_000  # changelog rows in memory at once
_RATE_SECONDS = 10.0
_TOTALS = (
    "read", "quarantined", "skipped", "filtered", "late", "duplicates", "dropped_retractions",
    "unmatched_retractions", "misfits", "expired", "closed", "changelog_rows",
)  # fmt: skip


class Outgrown(Exception):
    """The table is of another query."""


class Follower:
    """Of one job; started at once, until `close`. `outgrown` is told, by its thread, when the
    table is of another query, and says whether somebody else follows it now."""

    def __init__(
        self,
        places: JobPlaces,
        spec: JobSpec,
        loop: asyncio.AbstractEventLoop | None,
        outgrown: Callable[[Follower], bool] = lambda _: False,
    ) -> None:
        self.places = places
        self.spec = spec
        self.shape = RowShape(plan_of(spec))
        self.index = ResultsIndex(places.index, self.shape)
        self.recent = Recent()
        self.course = Course()
        self.newest: EpochRow | None = None
        self.problem: str | None = None
        self.totals: Counter[str] = Counter()  # of the epochs that were followed
        self._paces: deque[tuple[float, int, int]] = deque()  # seconds, messages, changelog rows
        self.successor: Follower | None = None  # who goes on, where the query is another now
        self._outgrown = outgrown
        self._loop = loop
        self.told = Pulse()  # an epoch's changes are in `recent`, and lookups see it
        self.stood = Pulse()  # it is in the index too, and `newest`
        self._closed = threading.Event()
        self._released = False
        self.settled = False  # whether it knows by now if there is a table, and what it says
        self._thread = threading.Thread(
            target=self._run, name=f"follower-{places.name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._wake()
        self.index.close()

    def give_way(self, spec: JobSpec) -> Follower:
        """Another follower, of another query, takes our place: streams go on with that one, and
        requests that read our index may do so to their end."""
        self.index.close()
        self.successor = Follower(self.places, spec, self._loop, self._outgrown)
        self._closed.set()
        self._wake()
        return self.successor

    def release(self) -> None:
        """Let go of whoever waits for more, for the service is about to end."""
        self._released = True
        self._wake()

    @property
    def closed(self) -> bool:
        """Whether nothing more will come from here."""
        return self._released or self._closed.is_set()

    async def next_epoch(self, seconds: float, share: asyncio.Event | None = None) -> None:
        """Until a newer epoch stands, or the time is over."""
        await beaten(share or self.stood.share(), seconds)

    def rates(self) -> dict[str, float]:
        """Over the last seconds."""
        since = time.time() - _RATE_SECONDS
        paces = [pace for pace in list(self._paces) if pace[0] >= since]
        return {
            "read_per_second": round(sum(pace[1] for pace in paces) / _RATE_SECONDS, 1),
            "changes_per_second": round(sum(pace[2] for pace in paces) / _RATE_SECONDS, 1),
            "epochs_per_second": round(len(paces) / _RATE_SECONDS, 2),
        }

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow(Table(self.places.table))
            except NoTable:
                self._settle()
                self._closed.wait(_ABSENT_LOOK_SECONDS)
            except Outgrown:
                self.problem = "the table is of another query"
                if not self._outgrown(self):
                    self._settle()
                    self._closed.wait(_ABSENT_LOOK_SECONDS)
            except FileNotFoundError:  # compacted and swept away meanwhile
                self._closed.wait(INDEX_LOOK_SECONDS)
            except FormatUnknown as error:
                self._cannot_follow(str(error), error)
            except Exception as error:
                self._cannot_follow(f"{type(error).__name__}; see the service's log", error)

    def _settle(self) -> None:
        if not self.settled:
            self.settled = True
            self._wake()

    def _cannot_follow(self, problem: str, error: Exception) -> None:
        """Say it once, and try again: the table may be damaged, or in the middle of something."""
        if self._closed.is_set():
            return
        if problem != self.problem:
            log.error("the table of job %s cannot be followed", self.places.name, exc_info=error)
        self.problem = problem
        self._settle()
        self._closed.wait(_AGAIN_SECONDS)

    def _follow(self, table: Table) -> None:
        self._begin(table)
        while not self._closed.is_set():
            reopen = time.monotonic() + _REOPEN_SECONDS
            following = table.following()
            while not following.exists() and time.monotonic() < reopen:
                self.index.make_wanted()
                if self._closed.wait(INDEX_LOOK_SECONDS):
                    return
            table.advance()
            self._catch_up(table)

    def _begin(self, table: Table) -> None:
        """Bring the index to the table, from where it stands or from nothing."""
        newest = table.newest
        if newest.plan != self.shape.plan.fingerprint:
            raise Outgrown
        standing = self.index.standing
        known = False
        if standing is not None and standing[0] <= newest.epoch:
            rows = table.epochs(standing[0] - 1)
            known = bool(rows) and (rows[0].epoch, rows[0].uuid) == standing
        if not known:
            self.recent.clear()
            self.index.fill(table, table.epochs())
        self.problem = None
        self.course.begin(table.epochs(newest.epoch - COURSE_EPOCHS_MAX))
        self._reached(newest)
        self._wake(self.told)
        self._catch_up(table)
        self._settle()

    def _catch_up(self, table: Table) -> None:
        """The epochs after ours, in pieces that fit the memory."""
        standing = self.index.standing
        assert standing is not None
        rows = table.epochs(standing[0])
        plans = {row.plan for row in rows} - {self.shape.plan.fingerprint}
        if plans and rows[-1].plan in plans:
            raise Outgrown
        while rows:
            if plans or rows[0].epoch != standing[0] + 1 or not self._apply(table, rows):
                # Retention has passed us, or the query was another one in between: the changes
                # are gone, the state is not.
                self.recent.clear()
                self.index.fill(table, table.epochs())
                self._reached(table.newest)
                self._wake(self.told)
                return
            standing = self.index.standing
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
                gone = self.shape.keys(buried)
            told = epoch_changes(row, mine, self.shape)
            self.recent.add(told)
            self.index.announce(told, gone)
            self._wake(self.told)  # who follows changes need not wait for the index
            self.index.apply(row, told, mine, gone)
            self._reached(row)
        return True

    def _reached(self, row: EpochRow) -> None:
        self.newest = row
        self.course.reached(row)
        counters = row.counters
        self.totals["epochs"] += 1
        self.totals.update({name: int(counters.get(name) or 0) for name in _TOTALS})
        pace = (row.committed_at / 1e6, counters.get("read", 0), counters.get("changelog_rows", 0))
        self._paces.append(pace)
        while len(self._paces) > 1 and self._paces[0][0] < time.time() - 2 * _RATE_SECONDS:
            self._paces.popleft()
        self._wake(self.stood)

    def _wake(self, *pulses: Pulse) -> None:
        """Those who wait for these, or all who wait."""
        if self._loop is None:
            return
        for pulse in pulses or (self.told, self.stood):
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(pulse.beat, self._loop)


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
