"""The follower of a job's table: hears of each new epoch, and hands it on.

    reader (its process) ──► Told ──► recent changes, what lookups see ──► whoever waits is woken
                        └──► Stood ─► the newest epoch, the index has it ──► the others too

One thread a job, which only listens. Where the table's query is another one than ours, a follower
of that one takes our place.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from jobs.core.job.job_plan import plan_of
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.live.epoch_history import Course
from service.live.pulse import Pulse, beaten
from service.live.reader import Begun, Looked, Outgrown, Seen, Stood, Told
from service.live.reader_process import Nursery, ReaderEnded, ReaderProcess
from service.live.recent_changes import Recent
from service.live.results_index import ResultsIndex
from service.places import JobPlaces
from service.table.row_shape import RowShape

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_END_SECONDS = 5.0  # for a reader to hear that it is to end
_RATE_SECONDS = 10.0
_TOTALS = (
    "read", "quarantined", "skipped", "filtered", "late", "duplicates", "dropped_retractions",
    "unmatched_retractions", "misfits", "expired", "closed", "changelog_rows",
)  # fmt: skip


class Follower:
    """Of one job; started at once, until `close`. `outgrown` is told, by its thread, when the
    table is of another query, and says whether somebody else follows it now."""

    def __init__(
        self,
        places: JobPlaces,
        spec: JobSpec,
        nursery: Nursery,
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
        self._nursery = nursery
        self._loop = loop
        self.told = Pulse()  # an epoch's changes are in `recent`, and lookups see it
        self.stood = Pulse()  # it is in the index too, and `newest`
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._reader: ReaderProcess | None = None
        self._wanted: set[str] = set()
        self._released = False
        self.settled = False  # whether it knows by now if there is a table, and what it says
        self._thread = threading.Thread(
            target=self._run, name=f"follower-{places.name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._end_reader()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive() and self._reader is not None:
            self._reader.kill()
            self._thread.join()
        self._wake()
        self.index.close()

    def give_way(self, spec: JobSpec) -> Follower:
        """Another follower, of another query, takes our place: streams go on with that one, and
        requests that read our index may do so to their end."""
        self.index.close()
        self._end_reader()
        self.successor = Follower(self.places, spec, self._nursery, self._loop, self._outgrown)
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
            reader = self._begin_reader()
            try:
                while reader is not None:
                    self._heard(reader.next())
            except ReaderEnded:
                if self._closed.is_set():
                    return
                log.error("the reader of job %s ended; another begins", self.places.name)
                self.problem = "its table's reader ended; see the service's log"
                self._closed.wait(_AGAIN_SECONDS)

    def _begin_reader(self) -> ReaderProcess | None:
        """A process that reads the table; None when that is not wanted any more."""
        with self._lock:
            if self._closed.is_set():
                return None
            self._reader = self._nursery.reader(self.places, self.spec)
            for column in self._wanted:
                self._reader.want(column)
            return self._reader

    def _end_reader(self) -> None:
        with self._lock:
            self._closed.set()
            if self._reader is not None:
                self._reader.end()

    def want(self, columns: Iterable[str]) -> None:
        """Columns by which rows are asked for, by the index's own names; it may index them."""
        for column in columns:
            if column not in self._wanted:
                with self._lock:
                    self._wanted.add(column)
                    if self._reader is not None:
                        self._reader.want(column)

    def _heard(self, seen: Seen) -> None:
        match seen:
            case Begun(row, course, anew):
                if anew:
                    self.recent.clear()
                self.problem = None
                self.index.open()
                self.course.begin(course)
                self._reached(row)
                self._wake(self.told)
            case Told(changes, gone):
                self.index.announce(changes, gone)
                self.recent.add(changes)
                self._wake(self.told)
            case Stood(row):
                self.index.written()
                self._reached(row)
            case Looked(problem):
                self.problem = problem
                self._settle()
            case Outgrown():
                self.problem = "the table is of another query"
                if not self._outgrown(self):
                    self._settle()

    def _settle(self) -> None:
        if not self.settled:
            self.settled = True
            self._wake()

    def _reached(self, row: EpochRow) -> None:
        self.newest = row
        self.settled = True
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
