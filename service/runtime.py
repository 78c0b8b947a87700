"""Runtime: the parts of a running service."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from msgspec.structs import replace

from jobs.core.job.job_plan import plan_of
from jobs.core.suggestion.spec_text import Suggestion, suggest_spec
from jobs.reading.files import UNREADABLE
from jobs.reading.state_size import read_state_size
from jobs.reading.version import TableVersion
from jobs.topics.schema_registry import finders_of
from schemas.directory.documents import read_document
from schemas.directory.reports import MirrorReport
from schemas.documents.answers import Job, Mirror
from schemas.limits import (
    INDEX_POLL_SECONDS,
    LOOKBACK_SECONDS,
    REGISTER_POLL_SECONDS,
    SETTLE_SECONDS_MAX,
    STATE_SIZE_SECONDS,
)
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.types.moments import format_instant, now_ms
from service.access.audit_log import AuditLog
from service.access.requirements import Access
from service.access.tokens import Tokens
from service.answers.group_snapshots import GroupSnapshots
from service.answers.history import find_oldest_epoch
from service.answers.results import Results, TableReads
from service.answers.samples import Samples
from service.answers.topics import Topics
from service.attempts import Attempts
from service.limits.stream_slots import StreamSlots
from service.live.epoch_history import LagPoint
from service.live.reader_process import ReaderSpawner
from service.live.table import LiveTable
from service.paths import try_discard
from service.problems import Problem
from service.recent_values import RecentValues
from service.request_counts import PostgresCounts, RequestCounts
from service.settings import Settings
from service.sql.answering import SqlAnswers
from service.supervision.evolving import Evolver
from service.supervision.jobs import JobCatalog, describe_job, make_unknown_job
from service.supervision.lags import Lags
from service.supervision.operations import Operations
from service.supervision.register import Desired, JobRecord, OperationRecord, Register
from service.supervision.spec_body import CheckedSpec, read_spec
from service.supervision.supervisor import Supervisor

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Runtime:
    """All parts of one service. `start` and `close` enclose its requests; jobs outlive it.

    A service that does not lead has `find_leader`: it reads, and changes nothing.
    """

    def __init__(
        self,
        settings: Settings,
        spawner: ReaderSpawner,
        find_leader: Callable[[], str | None] | None = None,
    ) -> None:
        self._spawner = spawner
        self.find_leader = find_leader
        paths = settings.paths
        paths.own.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.settings = settings
        self.tokens = Tokens(paths.tokens)
        self.access = Access(self.tokens, settings.host, paths.own)
        self.audit_log = AuditLog(paths.home / "trail.log")
        self.register = Register(paths.register, reads_only=not self.leads)
        self.jobs = JobCatalog(settings, self.register)
        self.supervisor = Supervisor(
            self.register, paths, settings.job_arguments, settings.running_max
        )
        self.table_reads = TableReads()
        self.results = Results(self.table_reads)
        self.group_snapshots = GroupSnapshots(self.table_reads)
        self.oldest_epochs = RecentValues(LOOKBACK_SECONDS, find_oldest_epoch)
        evolver = Evolver(self.register, self.jobs, self.supervisor.wake)
        self.operations = Operations(self.register, settings, evolver, self._apply_result)
        self.lags = Lags(paths.data, settings.connections, self._list_lag_targets, self._record_lag)
        self.state_sizes = RecentValues(STATE_SIZE_SECONDS, read_state_size)
        self.topics = Topics(settings.connections)
        self.attempts = Attempts(self._spawner.spawn_attempt)
        # Of their own, so that brokers that do not answer delay no check of a spec.
        self._broker_reads = Attempts(self._spawner.spawn_attempt, at_once=1)
        self.samples = Samples(settings.connections, self._broker_reads)
        self.request_counts = RequestCounts()
        self.requests_at_work = 0  # with those that have a stream slot
        self.postgres_counts = PostgresCounts()
        self.stream_slots = StreamSlots(settings.capacity.followers)
        self.sql_answers = SqlAnswers(paths.data)
        self._lock = threading.Lock()
        # A job that is created while one of its name is deleted begins after that.
        self._changing = threading.Lock()
        self._live_tables: dict[str, LiveTable] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = threading.Event()
        self._follower = threading.Thread(
            target=self._follow_register, name="register", daemon=True
        )

    @property
    def leads(self) -> bool:
        return self.find_leader is None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start all threads; `loop` is the event loop of the requests."""
        self._loop = loop
        if self.leads:
            self._start_leading()
        else:
            self._follower.start()
        self.lags.start()
        loop.call_soon_threadsafe(self.sql_answers.workers.warm)

    def _start_leading(self) -> None:
        self.register.lead()
        trash = self.settings.paths.trash
        for path in trash.iterdir() if trash.is_dir() else ():
            try_discard(path)
        for record in self.register.list_jobs():
            adopted = self._adopt_views(record)
            self._discard_dropped(adopted)
            self._follow(adopted)
        self.supervisor.start()
        self.operations.start()

    def _follow_register(self) -> None:
        """Follow the jobs that the leader changes; the thread of a service that only reads."""
        known: dict[str, int] = {}
        while not self._closed.is_set():
            try:
                found = {each.name: each for each in self.register.list_jobs()}
                for name in known.keys() - found:
                    del known[name]
                    for live_table in self._take_live_tables(name):
                        live_table.close()
                for name, record in found.items():
                    if known.get(name) != record.revision:
                        self._follow(record)
                        known[name] = record.revision
            except Exception:  # the leader is writing, or another version of it
                log.exception("cannot follow the register, trying again")
            self._closed.wait(REGISTER_POLL_SECONDS)

    def close(self) -> None:
        self.sql_answers.workers.close()
        self.attempts.close()
        self._broker_reads.close()
        self.lags.close()
        self._closed.set()
        if self.leads:
            self.operations.close()
            self.supervisor.close()
        else:
            self._follower.join()
        with self._lock:
            live_tables, self._live_tables = self._live_tables, {}
        for live_table in live_tables.values():
            live_table.close()
        self.register.close()
        self._spawner.close()

    def _adopt_views(self, record: JobRecord) -> JobRecord:
        """Return the record of a job with the views that a command has given it meanwhile."""
        if self.jobs.find_paths(record.name).view_specs.is_dir():
            try:
                self.jobs.adopt_evolved_spec(record.name)
            except UNREADABLE as error:
                log.warning("cannot read the table of job %s: %s", record.name, error)
        return self.jobs.find_record(record.name)

    # --- jobs -----------------------------------------------------------------------------------

    async def check_spec(self, body: bytes, name: str | None = None) -> CheckedSpec:
        """Return the spec in a body, parsed in a child process."""
        settings = self.settings
        read = partial(read_spec, body, name, settings.connections, settings.time_defaults)
        return await self.attempts.run(read)

    async def suggest_spec(self, connection: str, topic: str) -> Suggestion:
        """Return a spec for a topic, from its newest messages, which a child process parses."""
        found = await self.samples.read_newest(connection, [topic])
        messages = [(each.key, each.value) for each in found]
        finders = finders_of(self.settings.connections)
        work = partial(suggest_spec, topic, connection, messages, None, finders)
        return await self.attempts.run(work)

    def put(
        self,
        name: str,
        body: bytes,
        if_match: str | None,
        if_none_match: str | None,
        *,
        replace: bool,
    ) -> tuple[JobRecord, bool]:
        put = self.jobs.put
        with self._changing:
            record, created = put(name, body, if_match, if_none_match, replace=replace)
            self._follow(record)
        return record, created

    def approve(self, name: str, if_match: str | None) -> JobRecord:
        """Drop a job's table and approve its pending spec; follow the new query."""
        with self._changing:
            dropped = self.jobs.approve(name, if_match)
            for live_table in self._take_live_tables(name):
                live_table.close()
            shutil.rmtree(self.jobs.find_paths(name).index, ignore_errors=True)
            record = self.jobs.find_record(name)
            self._follow(record)
        for path in dropped:
            try_discard(path)
        return record

    def delete(self, name: str, *, drop_data: bool, if_match: str | None) -> None:
        with self._changing:
            dropped = self.jobs.delete(name, drop_data=drop_data, if_match=if_match)
            for live_table in self._take_live_tables(name):
                live_table.close()
            # The live table may have created the index directory again meanwhile.
            shutil.rmtree(self.jobs.find_paths(name).service_files, ignore_errors=True)
        for path in dropped:
            try_discard(path)

    def _apply_result(self, operation: OperationRecord, result: str) -> None:
        """Apply the result of an operation to jobs and live tables, before it is reported DONE.

        So a client that reads DONE reads the new results too.
        """
        if operation.kind == "clone":  # register the new job
            name = msgspec.json.decode(operation.arguments)["name"]
            self._follow(self.jobs.adopt(name))
        elif operation.kind == "evolve":
            self._follow(self.jobs.find_record(operation.job))
        document = msgspec.json.decode(result)
        if isinstance(document, dict) and document.get("epoch") is not None:
            self._await_epoch(document.get("job", operation.job), document["epoch"])

    def _await_epoch(self, job: str, epoch: int) -> None:
        """Wait until all views of a job show an epoch, but not forever.

        An unreadable table must not block others.
        """
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while time.monotonic() < deadline:
            newest = [each.newest for each in self._list_live_tables(job)]
            if all(row is not None and row.epoch >= epoch for row in newest):
                return
            time.sleep(INDEX_POLL_SECONDS)

    def _follow(self, record: JobRecord) -> None:
        """Follow the job's query and its views."""
        with self._lock:
            self._follow_views(record.name, self.jobs.parse_spec(record))

    def _follow_views(self, job: str, spec: JobSpec) -> None:
        """Follow these views and no others; the job itself is its first view."""
        specs, known = spec.view_specs, self._live_tables.get(job)
        for view, own in specs.items():
            self._follow_view(job, view, own)
        if "" not in specs:
            if known is not None and not known.paths.view:
                known.retire()
            self._live_tables[job] = self._live_tables[view_name(job, next(iter(specs)))]
        wanted = {job, *(view_name(job, view) for view in specs)}
        for name in self._find_live_tables(job).keys() - wanted:
            self._live_tables.pop(name).retire()

    def _follow_view(self, job: str, view: str, spec: JobSpec) -> None:
        name = view_name(job, view)
        known = self._live_tables.get(name)
        if known is None or known.paths.view != view:
            paths = self.jobs.find_paths(job).at_view(view)
            live_table = LiveTable(
                paths, spec, self._spawner, self._loop, self._replace_live_table, self._end_retired
            )
            live_table.start()
            self._live_tables[name] = live_table
        elif known.shape.plan == plan_of(spec):
            known.spec = spec
        else:
            self._live_tables[name] = known.replace(spec)

    def _take_live_tables(self, job: str) -> list[LiveTable]:
        """Remove and return the live tables of a job and its views."""
        with self._lock:
            taken = self._find_live_tables(job)
            for name in taken:
                del self._live_tables[name]
        return _distinct(taken.values())

    def _list_live_tables(self, name: str) -> list[LiveTable]:
        with self._lock:
            return _distinct(self._find_live_tables(name).values())

    def _find_live_tables(self, name: str) -> dict[str, LiveTable]:
        """Return the live tables of a job and its views, or of a view; the caller has the lock."""
        known = self._live_tables.items()
        return {at: each for at, each in known if at == name or at.startswith(f"{name}.")}

    def _replace_live_table(self, live_table: LiveTable) -> bool:
        """Follow the queries that a job has after `retally evolve`.

        Return whether this replaced the live table, which has another query.
        """
        job = live_table.paths.name
        if not self.leads:  # the leader adopts it, and the register has it then
            return False
        try:
            spec = self.jobs.adopt_evolved_spec(job)
        except UNREADABLE as error:
            log.warning("cannot read the table of job %s: %s", job, error)
            return False
        if spec is None:
            return False
        with self._lock:
            self._follow_views(job, spec)
        return live_table.closed

    def _end_retired(self, live_table: LiveTable) -> None:
        """Remove the files of a view that is gone, unless it has come back meanwhile."""
        with self._lock:
            of_job = self._find_live_tables(live_table.paths.name).values()
            if live_table.paths.view not in [each.paths.view for each in of_job]:
                live_table.paths.discard_index()

    def _discard_dropped(self, record: JobRecord) -> None:
        """Remove the files of views that the job no longer has."""
        paths = self.jobs.find_paths(record.name)
        for view in paths.list_indexed_views() - self.jobs.parse_spec(record).view_specs.keys():
            paths.at_view(view).discard_index()

    def find_live_table(self, name: str) -> LiveTable:
        """Return the live table of a job; every job has one, so the register is not read."""
        live_table = self._live_tables.get(name)
        if live_table is None:
            raise make_unknown_job(name, list(self._live_tables))
        return live_table

    async def wait_until_ready(self, name: str) -> LiveTable:
        """Return a job's live table once it has read the table.

        So a service that has just started does not report a missing table.
        """
        live_table = self.find_live_table(name)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not live_table.read_once and not live_table.closed:
            share = live_table.new_epochs.share()
            left = deadline - time.monotonic()
            if left <= 0:
                detail = f"the results of job {name!r} are being read from its table; try again"
                raise Problem("job-not-ready", detail, headers={"Retry-After": "2"})
            if not live_table.read_once:
                await live_table.wait_for_epoch(min(left, 0.05), share)
        return live_table

    async def read_table(
        self, live_table: LiveTable, work: Callable[[TableVersion], Answer]
    ) -> Answer:
        """Return what `work`, in a thread, returns for the newest version of a job's table."""
        return await run_in_threadpool(self.table_reads.read, live_table, work)

    # --- streams --------------------------------------------------------------------------------

    def end_streams(self) -> None:
        """End all streams, so that their clients reconnect to the next service promptly."""
        with self._lock:
            live_tables = list(self._live_tables.values())
        for live_table in live_tables:
            live_table.end_streams()

    # --- status ---------------------------------------------------------------------------------

    def list_newest_epochs(self) -> list[tuple[str, LiveTable, EpochRow]]:
        with self._lock:
            live_tables = sorted(self._live_tables.items())
        return [
            (name, each, each.newest)
            for name, each in live_tables
            if each.newest is not None and "." not in name
        ]

    def find_views(self, job: str) -> dict[str, LiveTable]:
        """Return the live tables of a job by view; the job's own query is the view "".

        While `evolve` changes the views of a job, they differ from those of its spec.
        """
        with self._lock:
            live_tables = self._find_live_tables(job)
        named = ((name.partition(".")[2], each) for name, each in live_tables.items())
        return {view: each for view, each in named if each.paths.view == view}

    def _list_lag_targets(self) -> list[tuple[str, JobSpec, EpochRow]]:
        """Return the jobs whose lag to measure: those that should run."""
        wanted = {job.name for job in self.register.list_jobs() if job.desired == Desired.RUNNING}
        found = self.list_newest_epochs()
        return [(name, each.spec, newest) for name, each, newest in found if name in wanted]

    def _record_lag(self, name: str) -> None:
        """Record a new lag in the history of a job."""
        for live_table in self._list_live_tables(name):
            newest = live_table.newest
            lag = newest and self.lags.compute_lag(name, live_table.spec, newest)
            if lag:
                live_table.history.record_lag(LagPoint(now_ms(), lag.records, lag.partitions))

    def describe_job(self, record: JobRecord, *, full: bool = False) -> Job:
        """Return the document of a job or of a view; a job has the groups of all its views."""
        document, name = describe_job(record, full=full), record.name
        with self._lock:
            live_table = self._live_tables.get(name)
        if live_table is None:
            return document
        if (newest := live_table.newest) is None:
            return replace(document, table=live_table.problem)
        return replace(
            document,
            epoch=newest.epoch,
            watermark=newest.watermark,
            groups=self.count_groups(name),
            groups_below_zero=self.count_groups_below_zero(name),
            committed_at=format_instant(newest.committed_at // 1_000),
            moved=newest.moved,
            source_repeats=newest.counts.source_repeated,
            lag=self.lags.compute_lag(name.partition(".")[0], live_table.spec, newest),
            rates=live_table.compute_rates(),
            mirror=describe_mirror(live_table.paths.mirror, newest.epoch),
            table=live_table.problem,
        )

    def count_groups_below_zero(self, name: str) -> int:
        """Return the number of groups that are kept without a row, of a job or of a view."""
        newest = [each.newest for each in self._list_live_tables(name)]
        return sum(each.counts.groups_below_zero for each in newest if each is not None)

    def count_groups(self, name: str) -> int | None:
        """Return the number of groups of a job or of a view; None if no view has counted."""
        newest = [each.newest for each in self._list_live_tables(name)]
        counts = [each.counts.groups for each in newest if each is not None]
        known = [each for each in counts if each is not None]
        return sum(known) if known else None


def describe_mirror(path: Path, newest_epoch: int) -> Mirror | None:
    """Return the epoch and the age of a mirror; None if there is none."""
    report = read_document(path, MirrorReport)
    if report is None:
        return None
    age_ms = report.age_ms(newest_epoch, now_ms())
    return Mirror(report.epoch, format_instant(report.refreshed_at), age_ms)


def view_name(job: str, view: str) -> str:
    """Return the name of a view among the live tables; no job has such a name."""
    return f"{job}.{view}" if view else job


def runtime_of(request: Request) -> Runtime:
    """Return the runtime of the service that handles a request."""
    runtime: Runtime = request.app.state.runtime
    return runtime


def _distinct(live_tables: Iterable[LiveTable]) -> list[LiveTable]:
    """Return each live table once: that of a job's first view has the name of the job as well."""
    return list({id(each): each for each in live_tables}.values())
