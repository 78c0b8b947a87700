"""The live table of a job: its newest epochs in memory, and the clients that wait.

    reader process ──► EpochRead ────► recent changes and lookups ──► wakes streams
                  └──► EpochIndexed ─► newest epoch and index ──────► wakes all other clients

One thread for each job or view, which only receives. If the query changes, a live table for the new
query replaces this one.
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
from jobs.reading.row_shape import RowShape
from schemas.documents.answers import Rates
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.histogram import Histogram
from service.live.epoch_history import EpochHistory
from service.live.reader import (
    EpochIndexed,
    EpochRead,
    IndexOpened,
    NothingToFollow,
    QueryChanged,
    ReaderEvent,
)
from service.live.reader_process import ReaderEnded, ReaderProcess, ReaderSpawner
from service.live.recent_changes import RecentChanges
from service.live.results_index import ResultsIndex, make_no_epoch_problem
from service.live.staggered_event import StaggeredEvent, wait_for_share
from service.paths import JobPaths, hide_paths

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_END_SECONDS = 5.0  # for a reader to end
_RATE_SECONDS = 10.0
_TOTALS = """read scanned rows groups_touched groups_in_arrays rows_folded rows_caught_up
    tasks_placed tasks_at_home quarantined skipped filtered late duplicates damaged_texts
    keys_in_several_partitions ambiguous_keys dropped_retractions unmatched_retractions
    source_repeats misfits expired closed changelog_rows"""
# Bounds of latencies in seconds: from a fast epoch to the backlog of a day.
LATENCY_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)


class LiveTable:
    """Follows the table of one job or view between `start` and `close`.

    If the table has another query, or the job has other views, its thread calls `on_query_changed`,
    which returns whether another live table has replaced this one.
    """

    def __init__(
        self,
        paths: JobPaths,
        spec: JobSpec,
        spawner: ReaderSpawner,
        loop: asyncio.AbstractEventLoop | None,
        on_query_changed: Callable[[LiveTable], bool] = lambda _: False,
        on_retired: Callable[[LiveTable], None] = lambda _: None,
    ) -> None:
        self.paths = paths
        self.spec = spec
        self.shape = RowShape(plan_of(spec), safe=True)
        self.index = ResultsIndex(paths.index, self.shape)
        self.recent = RecentChanges()
        self.history = EpochHistory(paths.history)
        self.newest: EpochRow | None = None
        self.table_tag = ""  # a table that is dropped and made again has another
        self.problem: str | None = None
        self.totals: Counter[str] = Counter()  # of the epochs since the start
        self.commit_latencies = Histogram(LATENCY_BOUNDS)  # of the same epochs
        self.publish_latencies = Histogram(LATENCY_BOUNDS)
        self._paces: deque[tuple[float, int, int]] = deque()  # seconds, messages, changelog rows
        self.successor: LiveTable | None = None  # the live table that has replaced this one
        self._on_query_changed = on_query_changed
        self._on_retired = on_retired
        self._retired = False
        self._spawner = spawner
        self._loop = loop
        self.new_changes = StaggeredEvent()  # `recent` and lookups have a new epoch
        self.new_epochs = StaggeredEvent()  # the index and `newest` have it too
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._reader: ReaderProcess | None = None
        self._wanted: set[str] = set()
        self._streams_ended = False
        self.read_once = False  # whether the table was read once, or is known to be missing
        self._thread = threading.Thread(
            target=self._run, name=f"live_table-{paths.name}", daemon=True
        )

    def require_newest(self) -> EpochRow:
        """Return the newest epoch; raise a Problem if there is none."""
        if self.newest is None:
            raise make_no_epoch_problem()
        return self.newest

    def start(self) -> None:
        """Start the thread and the reader."""
        self._thread.start()

    def close(self) -> None:
        """End the reader and the thread."""
        self._stop_reader()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive() and self._reader is not None:
            self._reader.kill()
            self._thread.join()
        self._wake()
        self.history.save()
        self.index.close()

    def replace(self, spec: JobSpec) -> LiveTable:
        """Start a live table for another query, and stop this one.

        Streams continue with the new live table. Requests that read the old index may finish.
        """
        self.index.close()
        self._stop_reader()
        successor = LiveTable(
            self.paths, spec, self._spawner, self._loop, self._on_query_changed, self._on_retired
        )
        successor.start()
        self.successor = successor
        self._wake()
        return successor

    def retire(self) -> None:
        """Stop, because the view is gone; the thread of this live table may call it.

        Once its reader has ended, its thread calls `on_retired`.
        """
        self._retired = True
        self.index.close()
        self._stop_reader()
        self._wake()

    def end_streams(self) -> None:
        """Wake all clients and end their streams, because the service is stopping."""
        self._streams_ended = True
        self._wake()

    @property
    def closed(self) -> bool:
        """Whether no more epochs will arrive."""
        return self._streams_ended or self._closed.is_set()

    async def wait_for_epoch(self, seconds: float, share: asyncio.Event | None = None) -> None:
        """Wait until the index has a newer epoch, or for the time."""
        await wait_for_share(share or self.new_epochs.share(), seconds)

    def compute_rates(self) -> Rates:
        """Return messages, changes and epochs per second over the last seconds."""
        since = time.time() - _RATE_SECONDS
        paces = [pace for pace in list(self._paces) if pace[0] >= since]
        return Rates(
            read_per_second=round(sum(pace[1] for pace in paces) / _RATE_SECONDS, 1),
            changes_per_second=round(sum(pace[2] for pace in paces) / _RATE_SECONDS, 1),
            epochs_per_second=round(len(paces) / _RATE_SECONDS, 2),
        )

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        self._follow_readers()
        if self._retired:
            self._on_retired(self)

    def _follow_readers(self) -> None:
        while not self._closed.is_set():
            try:
                reader = self._start_reader()
                while reader is not None:
                    self._handle(reader.receive())
            except ReaderEnded:
                if self._closed.is_set():
                    return
                log.error("the reader of job %s ended; starting another", self.paths.name)
                self.problem = "the reader of its table ended; see the service's log"
                self._closed.wait(_AGAIN_SECONDS)
            except Exception:  # no descriptor or no thread is left, for example
                log.exception("cannot follow the table of job %s, trying again", self.paths.name)
                self.problem = "its table cannot be followed; see the service's log"
                with self._lock:
                    if self._reader is not None:
                        self._reader.stop()
                self._closed.wait(_AGAIN_SECONDS)

    def _start_reader(self) -> ReaderProcess | None:
        """Start a process that reads the table; return None after close."""
        with self._lock:
            if self._closed.is_set():
                return None
            self._reader = self._spawner.spawn_reader(self.paths, self.spec)
            for column in self._wanted:
                self._reader.request_index(column)
            return self._reader

    def _stop_reader(self) -> None:
        with self._lock:
            self._closed.set()
            if self._reader is not None:
                self._reader.stop()

    def request_indexes(self, columns: Iterable[str]) -> None:
        """Ask the reader to index columns that a query uses, by their names in the index."""
        for column in columns:
            if column not in self._wanted:
                with self._lock:
                    self._wanted.add(column)
                    if self._reader is not None:
                        self._reader.request_index(column)

    def _handle(self, event: ReaderEvent) -> None:
        match event:
            case IndexOpened(row, rows, table_tag, refilled):
                self.table_tag = table_tag
                if refilled:
                    self.recent.clear()
                self.problem = None
                self.index.open()
                self.history.reset(rows)
                self._advance(row)
                self._wake(self.new_changes)
            case EpochRead(changes, gone, _):
                self.index.announce(changes, gone)
                self.recent.add(changes)
                self._wake(self.new_changes)
            case EpochIndexed(row):
                self.index.clear_announced()
                self._advance(row)
                if row.kind == "evolve":  # of other views, as this one has the same query
                    self._on_query_changed(self)
            case NothingToFollow(problem):
                self.problem = problem and hide_paths(problem, self.paths.data)
                self._mark_first_read()
            case QueryChanged():
                self.problem = "the table has another query"
                if not self._on_query_changed(self):
                    self._mark_first_read()

    def _mark_first_read(self) -> None:
        if not self.read_once:
            self.read_once = True
            self._wake()

    def _advance(self, row: EpochRow) -> None:
        self.newest = row
        self.read_once = True
        self.history.add_epoch(row)
        counts = row.counts
        self.totals["epochs"] += 1
        self.totals.update({name: getattr(counts, name) for name in _TOTALS.split()})
        if row.commit_latency_ms is not None:
            self.commit_latencies.observe(row.commit_latency_ms / 1_000)
        for latency in counts.publish_latencies_ms.values():
            self.publish_latencies.observe(latency / 1_000)
        pace = (row.committed_at / 1e6, counts.read, counts.changelog_rows)
        self._paces.append(pace)
        while len(self._paces) > 1 and self._paces[0][0] < time.time() - 2 * _RATE_SECONDS:
            self._paces.popleft()
        self._wake(self.new_epochs)

    def _wake(self, *events: StaggeredEvent) -> None:
        """Wake the clients of these events, or of all."""
        if self._loop is None:
            return
        for event in events or (self.new_changes, self.new_epochs):
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(event.set, self._loop)
