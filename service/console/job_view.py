"""A job as its pages show it: its record, the state of its table, and colours.

Pages read the same objects as the routes of the REST API, without HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
from fastapi import Request
from msgspec.structs import replace

from jobs.core.plan.tree import Plan
from jobs.reading.parts import QUARANTINE
from jobs.reading.state_size import StateSize
from schemas.documents.answers import Job
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.view_path import split_part
from schemas.types.moments import now_ms
from service.console.formatting import base_of
from service.console.visitor import Visitor
from service.live.epoch_history import LagPoint
from service.live.table import LiveTable
from service.problems import Problem
from service.runtime import Runtime, runtime_of, view_name
from service.supervision.conditions import make_etag
from service.supervision.register import Actual, Desired, JobRecord

_LAG_MS_MAX = 30_000

# The colour of each state; pages show it as a dot beside the state's name, never alone.
_TONES = {
    Actual.CREATED: "quiet",
    Actual.STARTING: "busy",
    Actual.RUNNING: "good",
    Actual.PAUSED: "quiet",
    Actual.STOPPING: "busy",
    Actual.STOPPED: "quiet",
    Actual.FAILED: "bad",
    Actual.AWAITING_APPROVAL: "warn",
}


RETRYING = "retrying"


def label_state(record: JobRecord) -> str:
    """Return the state as pages write it: awaiting approval, or retrying after a failure."""
    if is_retried(record):
        return RETRYING
    return record.actual.replace("_", " ").lower()


def is_retried(record: JobRecord) -> bool:
    """Return whether the job failed and the service starts it again, now or soon."""
    starts_again = record.actual == Actual.STARTING and record.failures > 0
    return starts_again or (record.actual == Actual.FAILED and record.retry_at is not None)


@dataclass(frozen=True, slots=True)
class Action:
    """A button of a job: the route's name, and whether a dialog confirms first."""

    name: str
    label: str
    kind: str = ""
    confirms: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at the time of the request, with one of its views."""

    record: JobRecord
    view: str  # the view whose results its pages show; "" is the job's own query
    status: Job  # the job's document, of the shown view
    live_table: LiveTable | None
    live_tables: Mapping[str, LiveTable]  # by view, "" is the job's own query
    read_size: Callable[[], StateSize | None]  # reads the table's log: in a thread

    @property
    def refused(self) -> dict[str, int]:
        """The messages in quarantine by view; "" has those that all views share."""
        size = self.read_size()
        parts = () if size is None else size.parts
        counts = [(*split_part(each.part), each.rows) for each in parts]
        return {view: rows for view, part, rows in counts if part == QUARANTINE}

    @property
    def quarantined(self) -> int:
        """The number of messages in quarantine, of all views."""
        return sum(self.refused.values())

    def count_quarantined(self, view: str) -> int:
        """Return the number of messages that the page of a view's quarantine lists."""
        return sum(count for owner, count in self.refused.items() if owner in ("", view))

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def etag(self) -> str:
        """The ETag of the spec, and of the pending one, that the page shows."""
        return make_etag(self.record)

    @property
    def base(self) -> str:
        """The address of the pages of the shown results."""
        return base_of(self.name, self.view)

    @property
    def views(self) -> dict[str, str]:
        """The address of the pages of each view, if the job has views."""
        if not any(self.live_tables):
            return {}
        found = dict.fromkeys([*self.spec.view_specs, *self.live_tables])
        return {view: base_of(self.name, view) for view in found if view in self.live_tables}

    @property
    def spec(self) -> JobSpec:
        """The spec that was put last; parsing takes a millisecond: not for lists of jobs."""
        return load_spec(msgspec.json.decode(self.record.spec))

    @property
    def state(self) -> str:
        return label_state(self.record)

    @property
    def tone(self) -> str:
        if self.retrying or self.impaired:
            return "warn"
        return _TONES[Actual(self.record.actual)]

    @property
    def retrying(self) -> bool:
        return is_retried(self.record)

    @property
    def impaired(self) -> bool:
        """Whether the job runs, but a reason says what it waits for."""
        return self.record.actual == Actual.RUNNING and bool(self.record.reason)

    @property
    def live(self) -> bool:
        """Whether new epochs are to be expected."""
        return self.record.actual == Actual.RUNNING

    @property
    def attempt(self) -> int:
        """The number of the start that runs or comes next, since the last success."""
        return self.record.failures + 1

    @property
    def plan(self) -> Plan | None:
        return None if self.live_table is None else self.live_table.shape.plan

    @property
    def newest(self) -> EpochRow | None:
        return None if self.live_table is None else self.live_table.newest

    @property
    def committed_ms(self) -> int | None:
        return None if self.newest is None else self.newest.committed_at // 1_000

    @property
    def newest_lag(self) -> LagPoint | None:
        """The last measured lag, unless it is too old."""
        lag = None if self.live_table is None else self.live_table.history.lag
        return lag if lag is not None and now_ms() - lag.at_ms < _LAG_MS_MAX else None

    @property
    def lag(self) -> int | None:
        return None if self.newest_lag is None else self.newest_lag.records

    @property
    def has_clock_time(self) -> bool:
        """Whether row times are near the wall clock; a column may have any time."""
        return all(isinstance(each.time, str) for each in self.spec.strategies.values())

    @property
    def running(self) -> bool:
        return self.record.actual in (Actual.STARTING, Actual.RUNNING)

    @property
    def stopped(self) -> bool:
        """Whether operations on a stopped job are allowed; as JobCatalog.require_stopped."""
        retries = self.record.desired == Desired.RUNNING and self.record.retry_at is not None
        inactive = self.record.actual not in (Actual.STARTING, Actual.RUNNING, Actual.STOPPING)
        return inactive and self.record.pid is None and not retries

    @property
    def moving(self) -> bool:
        """Whether the state changes soon by itself, so that each page follows it.

        Retries may go on for hours, in which some pages are expensive to read again and again.
        """
        return not self.retrying and self.record.actual in (Actual.STARTING, Actual.STOPPING)

    def list_actions(self, visitor: Visitor) -> list[Action]:
        """Return what the visitor can do with the job in its state, the likeliest first."""
        record, found = self.record, list[Action]()
        if not visitor.can_operate:
            return found
        if record.pending is not None and record.desired != Desired.RUNNING:
            pass  # the notice about the pending spec asks for a decision first
        elif record.desired == Desired.PAUSED:
            found.append(Action("resume", "Resume", "main"))
        elif record.desired == Desired.STOPPED or (record.retry_at is None and self.stopped):
            found.append(Action("start", "Start", "main"))
        if record.desired == Desired.RUNNING and (self.running or record.retry_at is not None):
            if self.running:
                kind = "main" if self.status.restart_needed else ""
                found.append(Action("restart", "Restart", kind, confirms=True))
            found.append(Action("pause", "Pause"))
        if record.desired != Desired.STOPPED:
            found.append(Action("stop", "Stop", confirms=True))
        if visitor.can_administer and self.stopped:
            found.append(Action("delete", "Delete", "danger", confirms=True))
        return found


def view_job(runtime: Runtime, record: JobRecord, view: str = "") -> JobView:
    """Return a job whose record is known, with one of its views; "" is its query or first view."""
    name = view_name(record.name, view)
    try:
        live_table = runtime.find_live_table(name)
    except Problem:  # deleted since
        live_table = None
    shown = view if live_table is None else live_table.paths.view
    root = runtime.jobs.find_paths(record.name).table
    read_size = partial(runtime.state_sizes.read, root)
    status = runtime.describe_job(replace(record, name=name))
    return JobView(record, shown, status, live_table, runtime.find_views(record.name), read_size)


def find_job(request: Request, name: str) -> JobView:
    """Return the job of a page's address; raise a Problem if there is none."""
    runtime = runtime_of(request)
    job, _, view = name.partition(".")
    record = runtime.jobs.find_record(job)
    if view:
        runtime.find_live_table(name)  # or there is no such view
    return view_job(runtime, record, view)


async def find_followed_job(request: Request, name: str) -> tuple[LiveTable, JobView]:
    """Wait until the job's table was read; return its live table and the job."""
    live_table = await runtime_of(request).wait_until_ready(name)
    return live_table, find_job(request, name)
