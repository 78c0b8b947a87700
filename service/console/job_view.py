"""A job as its pages show it: what the register and the table say of it, in words and tones.

Pages ask the same objects as the routes do; nothing here goes over HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Request

from jobs.core.plan.tree import Plan
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.live.epoch_history import Behind
from service.live.follower import Follower
from service.moments import now_ms
from service.problems import Problem
from service.runtime import Runtime, runtime_of
from service.supervision.register import Actual, Desired, JobRecord

_LAG_MS_MAX = 30_000

# How a state looks: a dot of this tone beside its word, never the tone alone.
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


def state_words(record: JobRecord) -> str:
    return record.actual.replace("_", " ").lower()


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at the moment of the request."""

    record: JobRecord
    standing: dict[str, Any]  # as in the job's document
    follower: Follower | None

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def spec(self) -> JobSpec:
        """As it was put last; reading it takes a millisecond, so a list of jobs leaves it alone."""
        return load_spec(msgspec.json.decode(self.record.spec))

    @property
    def state(self) -> str:
        return state_words(self.record)

    @property
    def tone(self) -> str:
        return _TONES[Actual(self.record.actual)]

    @property
    def plan(self) -> Plan | None:
        return None if self.follower is None else self.follower.shape.plan

    @property
    def newest(self) -> EpochRow | None:
        return None if self.follower is None else self.follower.newest

    @property
    def committed_ms(self) -> int | None:
        return None if self.newest is None else self.newest.committed_at // 1_000

    @property
    def watermark(self) -> int | None:
        found: int | None = self.standing["watermark"]
        return found

    @property
    def behind(self) -> Behind | None:
        """The lag as it was looked at last, where that is not long ago."""
        lag = None if self.follower is None else self.follower.course.lag
        return lag if lag is not None and now_ms() - lag.at_ms < _LAG_MS_MAX else None

    @property
    def lag(self) -> int | None:
        return None if self.behind is None else self.behind.records

    @property
    def by_the_clock(self) -> bool:
        """Whether the time of its rows is when something happened in the world of clocks, and no
        column, which may be of any time."""
        return isinstance(self.spec.watermark.time, str)

    @property
    def running(self) -> bool:
        return self.record.actual in (Actual.STARTING, Actual.RUNNING)

    @property
    def stopped(self) -> bool:
        """Whether what needs a job that stands still can be done; as Jobs.require_stopped."""
        waits = self.record.desired == Desired.RUNNING and self.record.retry_at is not None
        still = self.record.actual not in (Actual.STARTING, Actual.RUNNING, Actual.STOPPING)
        return still and self.record.pid is None and not waits

    @property
    def restart_needed(self) -> bool:
        record = self.record
        return record.pid is not None and record.run_revision not in (None, record.revision)


def view_of(runtime: Runtime, record: JobRecord) -> JobView:
    try:
        follower = runtime.follower(record.name)
    except Problem:  # deleted since
        follower = None
    return JobView(record, runtime.standing(record.name), follower)


def job_view(request: Request, name: str) -> JobView:
    """The job of a page's address; a Problem where there is none."""
    runtime = runtime_of(request)
    return view_of(runtime, runtime.jobs.record(name))


async def followed_job(request: Request, name: str) -> tuple[Follower, JobView]:
    """The same once its table was looked at, and who follows that."""
    follower = await runtime_of(request).ready(name)
    return follower, job_view(request, name)
