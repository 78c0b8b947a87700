"""Evolving: the operation that lets a job go on under a changed query, in steps.

    WAITING ──► (replay) `retally evolve --replay --beside`: the topic is read again, beside the job
            ──► the job is held: it ends its epoch, and stands still whatever is desired
            ──► `retally evolve`, which commits one epoch under the new query
            ──► the spec is the job's; the job is let go, and runs again if it is to

Each step looks at what is there, so that a service that was killed between two goes on with the
next. Whether it has succeeded is what the table says, never how a process ended. Where it has not,
the job is let go with the spec that it had. The writer's lock is what keeps two writers apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jobs.core.job.job_plan import plan_of
from schemas.limits import OPERATION_SECONDS_MAX
from schemas.spec.file import SpecError, load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.moments import now_ms
from service.places import JobPlaces
from service.supervision import job_process
from service.supervision.jobs import Jobs
from service.supervision.register import ALIVE, Desired, JobRecord, OperationRecord, Register
from service.table.job_table import newest_row

Outcome = tuple[str | None, str | None]  # the result as JSON, or the reason of the failure
Start = Callable[[OperationRecord, list[str]], None]


class Evolving:
    """Called by the thread of the operations, whenever no command of the operation runs."""

    def __init__(self, register: Register, jobs: Jobs, wake: Callable[[], None]) -> None:
        """`wake` makes the supervisor look."""
        self._register = register
        self._jobs = jobs
        self._wake = wake

    def step(
        self, record: OperationRecord, spec: JobSpec, start: Start, said: Callable[[], Outcome]
    ) -> Outcome | None:
        """The next step; None while there are more. `start` begins a command of the operation,
        `said` is what the last one came to."""
        job = self._register.job(record.job)
        if job is None:
            return None, "the job is not there any more"
        places = self._jobs.places(record.job)
        held = job.held_by == record.id
        outcome = self._next(record, spec, job, places, start, said)
        if outcome is not None and outcome[0] is None and held:
            self._register.let_go(job.name, record.id)
            self._wake()
        return outcome

    def _next(
        self,
        record: OperationRecord,
        spec: JobSpec,
        job: JobRecord,
        places: JobPlaces,
        start: Start,
        said: Callable[[], Outcome],
    ) -> Outcome | None:
        held, ended = job.held_by == record.id, record.pid is not None
        holder, reader = (job_process.writer(each.lock) for each in (places, places.shadow))
        newest = newest_row(places.table)
        if newest is not None and newest.plan == plan_of(spec).fingerprint:
            return self._take(record, spec, places, newest, start, holder)
        if ended and (held or said()[0] is None):
            if reader is not None or _is_ours(holder):
                return None  # a killed service has left it: what it comes to is what counts
            return None, said()[1] or "the table is as it was"
        if held:
            if job.pid is None and job.actual not in ALIVE and holder is reader is None:
                start(record, self._arguments(record, beside=False))
            return self._in_time(record)
        runs = job.pid is not None or job.desired == Desired.RUNNING
        if not ended and runs and _replays(record):
            if reader is None:
                start(record, self._arguments(record, beside=True))
            return None
        with self._register.transaction():  # as one: a pid beside a held job is a take-over's
            self._register.hold(job.name, record.id)
            self._register.change_operation(record.id, pid=None, pid_born=None)
        self._wake()
        return None

    def _take(
        self,
        record: OperationRecord,
        spec: JobSpec,
        places: JobPlaces,
        newest: EpochRow,
        start: Start,
        holder: int | None,
    ) -> Outcome | None:
        """The table is of the new query: so is the job."""
        if _is_ours(holder):
            return self._in_time(record)  # it is about to write the spec
        if _plan_at(places) != newest.plan:  # killed before it did
            start(record, ["evolve"])
            return self._in_time(record)
        self._jobs.take(record.job, spec, record.id)
        self._wake()
        changed = newest.counters["changelog_rows"] if newest.kind == "evolve" else None
        result: dict[str, Any] = {"job": record.job, "epoch": newest.epoch}
        return msgspec.json.encode(result | {"changelog_rows": changed}).decode(), None

    def _arguments(self, record: OperationRecord, *, beside: bool) -> list[str]:
        arguments = ["evolve", "--replay"] if _replays(record) else ["evolve"]
        return [*arguments, "--beside"] if beside else arguments

    def _in_time(self, record: OperationRecord) -> Outcome | None:
        if now_ms() - (record.began_at or 0) > OPERATION_SECONDS_MAX * 1_000:
            return None, "the job did not stand still in time"
        return None


def _is_ours(holder: int | None) -> bool:
    """Whether a command of an operation holds the job's lock, and not a job."""
    return holder is not None and not job_process.runs_a_job(holder)


def _replays(record: OperationRecord) -> bool:
    return bool(msgspec.json.decode(record.arguments)["state"] == "replay")


def _plan_at(places: JobPlaces) -> str | None:
    """Of the spec beside the table."""
    try:
        return plan_of(load_spec(places.spec)).fingerprint
    except (FileNotFoundError, SpecError):
        return None
