"""Evolving: the steps of the operation that changes the queries of a job.

    WAITING ──► (replay) `retally evolve --replay --beside`: read the topic again, beside the job
            ──► hold the job: it commits its epoch and stops, whatever is desired
            ──► `retally evolve`: commit one epoch under the new query
            ──► make the spec the job's spec and release the job; it runs again if desired

Each step inspects the table and the processes, so a service that was killed between two steps
continues with the next one. The table decides whether the operation has succeeded, never the exit
of a process. If it has failed, whatever the reason, the job is released with its old spec. The
writer lock prevents two writers.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from deltalake.exceptions import DeltaError

from jobs.core.job.job_evolution import JobEvolution
from jobs.core.job.views import has_state_of
from jobs.reading.files import UNREADABLE, NoTable
from jobs.reading.version import at_newest, newest_whole_row
from schemas.documents.answers import Evolution, ReplayFrom
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets
from service.supervision import job_process
from service.supervision.jobs import JobCatalog, find_spec
from service.supervision.register import ALIVE, Desired, JobRecord, OperationRecord, Register

Outcome = tuple[str | None, str | None]  # the result as JSON, or the reason of the failure
StartCommand = Callable[[OperationRecord, list[str]], None]


class Evolver:
    """Called by the thread of the operations while no command of the operation runs."""

    def __init__(self, register: Register, jobs: JobCatalog, wake: Callable[[], None]) -> None:
        """`wake` starts a tick of the supervisor."""
        self._register = register
        self._jobs = jobs
        self._wake = wake

    def step(
        self,
        record: OperationRecord,
        spec: JobSpec,
        start: StartCommand,
        read_outcome: Callable[[], Outcome],
    ) -> Outcome | None:
        """Take the next step; return the outcome, or None while there are more steps.

        `start` runs a command of the operation, `read_outcome` returns that of the last one.
        """
        job = self._register.find_job(record.job)
        if job is None:
            return None, "the job was deleted"
        paths = self._jobs.find_paths(record.job)
        held, ended = job.held_by == record.id, record.pid is not None
        holder, reader = (job_process.find_writer(each.lock) for each in (paths, paths.shadow))
        try:
            newest = newest_whole_row(paths.table)
        except UNREADABLE as error:  # the next tick tries again
            return self._check_deadline(record, f"the table cannot be read: {error}")
        known = find_spec(paths.spec)
        if newest is not None and has_state_of(newest, spec, known or spec):
            return self._finish(record, spec, known, newest, start, holder)
        if ended and (held or read_outcome()[0] is None):
            if reader is not None or _is_command(holder):
                return None  # a killed service has left the command: wait for its result
            return None, read_outcome()[1] or "the table did not change"
        if held:
            if job.pid is None and job.actual not in ALIVE and holder is reader is None:
                start(record, self._make_arguments(record, beside=False))
            return self._check_deadline(record)
        runs = job.pid is not None or job.desired == Desired.RUNNING
        if not ended and runs and _replays(record):
            if reader is None:
                start(record, self._make_arguments(record, beside=True))
            return None
        with self._register.transaction():  # both or none: a pid of a held job is the command's
            self._register.hold(job.name, record.id)
            self._register.change_operation(record.id, pid=None, pid_born=None)
        self._wake()
        return None

    def release(self, record: OperationRecord) -> None:
        """Return the job of an operation that has failed to its desired state."""
        self._register.release(record.job, record.id)
        self._wake()

    def _finish(
        self,
        record: OperationRecord,
        spec: JobSpec,
        known: JobSpec | None,
        newest: EpochRow,
        start: StartCommand,
        holder: int | None,
    ) -> Outcome | None:
        """Make the new spec the job's spec, because the table has the new query."""
        if _is_command(holder):
            return self._check_deadline(record)  # the command is about to write the spec
        if known is None or not has_state_of(newest, known, known):  # the command was killed before
            start(record, ["evolve"])
            return self._check_deadline(record)
        self._jobs.adopt_spec(record.job, spec, record.id)
        self._wake()
        changed = newest.counts.changelog_rows if newest.kind == "evolve" else None
        result = {"job": record.job, "epoch": newest.epoch, "changelog_rows": changed}
        return msgspec.json.encode(result).decode(), None

    def _make_arguments(self, record: OperationRecord, *, beside: bool) -> list[str]:
        arguments = ["evolve", "--replay"] if _replays(record) else ["evolve"]
        return [*arguments, "--beside"] if beside else arguments

    def _check_deadline(
        self, record: OperationRecord, reason: str = "the job did not stop in time"
    ) -> Outcome | None:
        return (None, reason) if record.is_overdue else None


def _is_command(holder: int | None) -> bool:
    """Return whether a command of an operation holds the lock, and not the job."""
    return holder is not None and not job_process.is_job(holder)


def _replays(record: OperationRecord) -> bool:
    return bool(msgspec.json.decode(record.arguments)["state"] == "replay")


def describe_evolution(jobs: JobCatalog, record: JobRecord, spec: JobSpec) -> Evolution | None:
    """Return the effect of a spec as a document; None if the job has no state yet."""
    found = jobs.compare(record, spec)
    return (
        None if found is None else _make_document(found, spec, _find_start(jobs, record.name, spec))
    )


def _make_document(found: JobEvolution, spec: JobSpec, began_at: Offsets | None) -> Evolution:
    document = spec.document()
    starts = {name: each["start"] for name, each in document.get("sources", {}).items()}
    reads = ReplayFrom(list(spec.topics), starts or document["source"]["start"], began_at)
    return Evolution(
        continues=found.continues,
        replays=found.replays,
        begins=found.begins,
        reasons=[*found.fixed, *found.reasons],
        added=list(found.added),
        dropped=list(found.dropped),
        replay_from=reads if found.replays else None,
    )


def _find_start(jobs: JobCatalog, name: str, spec: JobSpec) -> Offsets | None:
    """Return the offsets from which a replay reads known topics: the first ones of the job."""
    try:
        start = at_newest(jobs.find_paths(name).table, lambda table: table.start)
    except (NoTable, DeltaError):
        return None
    if start is None:
        return None
    return {topic: at for topic, at in start.offsets.items() if topic in spec.topics}
