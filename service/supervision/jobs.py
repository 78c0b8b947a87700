"""Jobs: create, change and delete them; describe one.

    PUT ──► check the spec ──► revision + 1 in the register, spec.yaml beside it ──► supervisor

Equal specs have the same revision, so that PUT is idempotent. A spec that does not fit the state is
kept as pending, at the same revision; the job's ETag has both (service.supervision.conditions).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast
from uuid import uuid4

import msgspec
from msgspec import UNSET

from jobs.core.job.evolution import describe_other_topics, drops_topics
from jobs.core.job.job_evolution import JobEvolution, compare_specs
from jobs.core.job.views import fingerprints_of, has_state_of
from jobs.reading.epoch_rows import newest_of_job
from jobs.reading.files import UNREADABLE, NoTable
from jobs.reading.version import TableVersion, at_newest, newest_whole_row
from schemas import limits
from schemas.directory.documents import replace_file
from schemas.documents.answers import ActualState, DesiredState, Job, JobFailure
from schemas.failures.catalogue import failure_kinds
from schemas.spec.file import SpecError, load_spec, spec_text
from schemas.spec.job import JobSpec
from schemas.spec.unknown_names import find_nearest
from schemas.table.epoch import EpochRow
from schemas.types.moments import format_instant, now_ms
from service.paths import JobPaths, hide_paths
from service.problems import Problem
from service.settings import Settings
from service.supervision.conditions import check_conditions
from service.supervision.register import (
    ALIVE,
    RESTING,
    Actual,
    Desired,
    JobRecord,
    OperationRecord,
    Register,
)
from service.supervision.spec_body import CheckedSpec, read_spec

log = logging.getLogger(__name__)

JOB_NAME = re.compile(rf"[a-z][a-z0-9_-]{{0,{limits.JOB_NAME_CHARACTERS_MAX - 1}}}", re.ASCII)


def make_unknown_job(name: str, known: Iterable[str]) -> Problem:
    """Return the problem of an unknown job or view, with the name that was probably meant."""
    names = tuple(known)
    job, _, view = name.partition(".")
    if view and job in names:
        of_job = [each.partition(".")[2] for each in names if each.startswith(f"{job}.")]
        listed = f"known: {', '.join(of_job)[:200]}" if of_job else "it has none"
        return Problem("job-unknown", f"job {job!r} has no view {view[:80]!r}; {listed}")
    near = find_nearest(name, names)
    meant = f"; did you mean {near!r}?" if near else "; GET /v1/jobs lists them"
    return Problem("job-unknown", f"there is no job {name[:80]!r}{meant}")


class JobCatalog:
    """The jobs of the service and their specs."""

    def __init__(self, settings: Settings, register: Register) -> None:
        self._settings = settings
        self._register = register

    def find_paths(self, name: str) -> JobPaths:
        return self._settings.paths.job(name)

    def find_record(self, name: str) -> JobRecord:
        record = self._register.find_job(name[: limits.JOB_NAME_CHARACTERS_MAX + 1])
        if record is None:
            raise make_unknown_job(name, (each.name for each in self._register.list_jobs()))
        return record

    def list_records(self) -> list[JobRecord]:
        return self._register.list_jobs()

    def parse_spec(self, record: JobRecord) -> JobSpec:
        return _parse_spec(record.spec)

    def check_spec(self, body: bytes, name: str | None = None) -> CheckedSpec:
        settings = self._settings
        return read_spec(body, name, settings.connections, settings.time_defaults)

    # --- create, change -------------------------------------------------------------------------

    def put(
        self,
        name: str,
        body: bytes,
        if_match: str | None,
        if_none_match: str | None,
        *,
        replace: bool = False,
    ) -> tuple[JobRecord, bool]:
        """Create or change a job; return its record, and whether it is new.

        With `replace`, keep a spec that does not fit the job's state as pending.
        """
        checked = self.check_spec(body, name)
        with self._register.transaction():
            known = self._register.find_job(name)
            recorded = self._find_recorded_spec(name, known)
            if recorded is not None:
                checked = checked.with_column_order(recorded)
            document = msgspec.json.encode(checked.spec.document()).decode()
            check_conditions(known, if_match, if_none_match)
            if known is not None and document not in (known.spec, known.pending):
                self._require_no_evolution(name)
            if known is not None and known.spec == document:
                return self._clear_pending(known), False
            try:
                self._check_query(name, checked)
            except Problem as misfit:
                if known is None or not replace or misfit.code != "query-fixed":
                    raise
                return self._keep_pending(known, checked.spec, document), False
            if known is None:
                self._check_room()
                if name in self._list_clone_names():
                    raise Problem("job-exists", f"a clone named {name} is being created")
            self._write_spec(name, checked.spec)
            if known is None:
                self._add(name, document, Actual.CREATED)
            else:
                revision = known.revision + 1
                self._register.change_job(name, revision=revision, spec=document)
                self._clear_pending(known)
        return self.find_record(name), known is None

    def _find_recorded_spec(self, name: str, known: JobRecord | None) -> JobSpec | None:
        """Return the spec of the job, or the spec beside data without a job."""
        if known is not None:
            return self.parse_spec(known)
        spec = self.find_paths(name).spec
        return load_spec(spec) if spec.exists() else None

    # --- a spec that does not fit the state -----------------------------------------------------

    def _keep_pending(self, known: JobRecord, spec: JobSpec, document: str) -> JobRecord:
        """Keep a spec as pending until an admin approves it; a running job continues."""
        if known.pending == document:
            return known
        found = self.compare(known, spec)
        if found is not None and not found.replays:  # the state can only be dropped
            _check_sink(spec, self.parse_spec(known), found.fixed)
        self._register.change_job(known.name, pending=document)
        if known.actual in RESTING and known.desired != Desired.RUNNING:
            self._register.report(
                known.name, Actual(known.desired), "a changed query is pending approval"
            )
        return self.find_record(known.name)

    def _clear_pending(self, known: JobRecord) -> JobRecord:
        """Drop the pending spec, because a spec that fits was put."""
        if known.pending is not None:
            self._require_no_evolution(known.name)
            self._register.change_job(known.name, pending=None)
            if known.actual == Actual.AWAITING_APPROVAL:
                self._register.report(known.name, Actual(known.desired))
        return self.find_record(known.name)

    def compare(self, record: JobRecord, spec: JobSpec) -> JobEvolution | None:
        """Return the effect of another spec on a job's state; None without a state."""
        paths = self.find_paths(record.name)
        try:
            newest, refusing = at_newest(
                paths.table, lambda table: (newest_of_job(table.root, table.files), table.refusing)
            )
            old = None if newest is None else load_spec(paths.spec)
        except NoTable:
            return None
        except (*UNREADABLE, SpecError) as error:
            raise self._make_unreadable_problem(error) from None
        if newest is None or old is None:
            return None
        return compare_specs(old, spec, newest, refusing)

    def require_pending(self, record: JobRecord, if_match: str | None = None) -> JobSpec:
        """Return the pending spec; raise a Problem if there is none."""
        check_conditions(record, if_match, None)
        if record.pending is None:
            raise Problem("nothing-pending", f"job {record.name!r} has no pending spec")
        return _parse_spec(record.pending)

    def _require_no_evolution(self, name: str) -> None:
        other = self._register.find_unfinished(name, "evolve")
        if other is not None:
            raise make_unfinished_problem(other)

    def approve(self, name: str, if_match: str | None) -> list[Path]:
        """Drop the job's state and make the pending spec the job's spec.

        Return what is in the trash; to delete it may take minutes.
        """
        paths = self.find_paths(name)
        with self._register.transaction():
            record = self.require_stopped(name)
            spec = self.require_pending(record, if_match)
            _check_sink(spec, self.parse_spec(record))
            dropped = self._move_to_trash(paths)  # first: it may refuse
            self._write_spec(name, spec)
            self._register.change_job(
                name, spec=record.pending, revision=record.revision + 1, pending=None, failures=0
            )
            self._register.report(name, Actual.STOPPED)
        return dropped

    def adopt(self, name: str) -> JobRecord:
        """Register a job that a command has created in the data directory; it is idempotent."""
        spec = load_spec(self.find_paths(name).spec)
        with self._register.transaction():
            known = self._register.find_job(name)
            if known is not None:
                return known
            self._check_room()
            self._write_spec(name, spec)
            return self._add(name, msgspec.json.encode(spec.document()).decode(), Actual.STOPPED)

    def _add(self, name: str, spec: str, actual: Actual) -> JobRecord:
        stopped = Desired.STOPPED
        record = JobRecord(
            name=name, revision=1, spec=spec, desired=stopped, actual=actual, since=now_ms()
        )
        self._register.add_job(record)
        return record

    def adopt_evolved_spec(self, name: str) -> JobSpec | None:
        """Return the spec beside a table whose queries have changed; None until it is there.

        If a command outside the service has changed the queries, update the register.
        """
        paths = self.find_paths(name)
        newest = newest_whole_row(paths.table)
        known = find_spec(paths.spec)
        found = (find_spec(paths.next_spec), known)
        spec = next((each for each in found if each and _is_state(newest, each, known)), None)
        if spec is None:
            return None
        with self._register.transaction():
            record = self._register.find_job(name)
            by_service = self._register.find_unfinished(name, "evolve") is not None
            if record and not by_service and not _continues(spec, self.parse_spec(record)):
                log.info("job %s: a command has changed its queries", name)
                self._replace_spec(record, spec)
        return spec

    def adopt_spec(self, name: str, spec: JobSpec, operation: str) -> None:
        """Make an operation's spec the job's spec and release the job; it is idempotent."""
        document = msgspec.json.encode(spec.document()).decode()
        with self._register.transaction():
            record = self._register.find_job(name)
            if record is not None:
                if record.spec != document or record.pending is not None:
                    self._replace_spec(record, spec)
                self._register.release(name, operation)

    def _replace_spec(self, record: JobRecord, spec: JobSpec) -> None:
        """Make another spec the job's spec; drop a pending spec with the same query."""
        self._write_spec(record.name, spec)
        pending = record.pending
        if pending is not None and _continues(spec, _parse_spec(pending)):
            pending = None
        document = msgspec.json.encode(spec.document()).decode()
        self._register.change_job(
            record.name, spec=document, revision=record.revision + 1, pending=pending
        )
        if record.actual == Actual.AWAITING_APPROVAL and pending is None:
            self._register.report(record.name, Actual.STOPPED)

    def require_free(self, name: str) -> None:
        """Raise a Problem if a job, its data or a running clone has this name."""
        if (
            self._register.find_job(name) is not None
            or name in self._list_clone_names()
            or self.find_paths(name).has_table
        ):
            raise Problem("job-exists", f"a job {name!r} or its data already exists")
        self._check_room()

    def _list_clone_names(self) -> set[str]:
        """Return the names of jobs that clone operations are creating."""
        unfinished = [each for each in self._register.list_unfinished() if each.kind == "clone"]
        return {msgspec.json.decode(each.arguments)["name"] for each in unfinished}

    def _make_unreadable_problem(self, error: Exception) -> Problem:
        detail = hide_paths(str(error), self._settings.paths.data)
        return Problem("table-unreadable", detail[: limits.REASON_CHARACTERS_MAX])

    def _check_room(self) -> None:
        if len(self._register.list_jobs()) >= limits.JOBS_MAX:
            detail = f"a service has at most {limits.JOBS_MAX} jobs"
            raise Problem("too-many-jobs", detail)

    def _check_query(self, name: str, checked: CheckedSpec) -> None:
        """Raise a Problem if a spec has another query or bucket count than the job's state."""
        paths = self.find_paths(name)
        try:
            newest = newest_whole_row(paths.table)
        except UNREADABLE as error:
            raise self._make_unreadable_problem(error) from None
        if newest is None:
            return
        if newest.plans != {name: plan.fingerprint for name, plan in checked.plans.items()}:
            raise Problem(
                "query-fixed",
                f"the state of job {name!r} is of another query or other column types; use another "
                "job name for the changed query, or add ?replace=true to save it for approval",
                errors={"query": "differs from the query of the job's state"},
            )
        known = load_spec(paths.spec)
        if drops_topics(known, checked.spec):
            reason = describe_other_topics(known, checked.spec)
            raise Problem(
                "query-fixed",
                f"job {name!r}: {reason}; use another job name, or add ?replace=true to save it "
                "for approval, which can read the topics again",
                errors={reason.partition(" ")[0]: reason},
            )
        started = known.view_specs
        for name, own in checked.spec.view_specs.items():
            buckets = started.get(name, own).state.buckets
            if buckets != own.state.buckets:
                path = f"views.{name}.state.buckets" if name else "state.buckets"
                detail = f"{path} of a started job cannot change; it is {buckets}"
                raise Problem("query-fixed", detail, errors={path: f"must be {buckets}"})

    def _write_spec(self, name: str, spec: JobSpec) -> None:
        replace_file(self.find_paths(name).run_spec, spec_text(spec).encode())

    # --- delete ---------------------------------------------------------------------------------

    def require_stopped(self, name: str) -> JobRecord:
        record = self.find_record(name)
        self._require_no_evolution(name)
        if record.pid is not None or record.actual in ALIVE:
            raise Problem("job-not-stopped", f"job {name!r} is {record.actual}; stop it first")
        if record.desired == Desired.RUNNING and record.retry_at is not None:
            detail = f"job {name!r} has failed and will start again; stop it first"
            raise Problem("job-not-stopped", detail)
        return record

    def delete(self, name: str, *, drop_data: bool, if_match: str | None) -> list[Path]:
        """Remove a job; return what is in the trash, as `approve` does."""
        paths = self.find_paths(name)
        with self._register.transaction():
            record = self.require_stopped(name)
            check_conditions(record, if_match, None)
            dropped = self._move_to_trash(paths) if drop_data else []
            shutil.rmtree(paths.service_files, ignore_errors=True)
            self._register.remove_job(name)
        return dropped

    def _move_to_trash(self, paths: JobPaths) -> list[Path]:
        """Move a job's data to the trash at once, under the writer lock; return the new paths."""
        trash = self._settings.paths.trash
        trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        hot_states = _find_hot_states(paths)
        moved = []
        with suppress(FileNotFoundError):
            lock = os.open(paths.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                detail = f"another process writes to job {paths.name!r}"
                raise Problem("job-not-stopped", detail) from None
            else:
                moved.append(paths.home.rename(trash / uuid4().hex))
            finally:
                os.close(lock)
        with suppress(FileNotFoundError):
            moved.append(paths.home.rename(trash / uuid4().hex))
        for each in hot_states:
            with suppress(FileNotFoundError):  # the cache may be on another disk than the trash
                moved.append(each.rename(each.with_name(f"deleted-{uuid4().hex}")))
        return moved


def _find_hot_states(paths: JobPaths) -> list[Path]:
    """Return a job's directories in the cache of this host.

    A cache below the data directory has one directory for each job name. A cache that several data
    directories share has one for each table and view.
    """
    if paths.cache.is_relative_to(paths.data):
        return [paths.cache]
    found: list[Path] = []
    for owner in (paths, paths.shadow):
        with suppress(*UNREADABLE, ValueError):  # without its table's id they cannot be found
            found += owner.list_hot_states(TableVersion(owner.table).id)
    return found


def find_spec(path: Path) -> JobSpec | None:
    """Return the spec in a file, if it is there."""
    try:
        return load_spec(path)
    except (FileNotFoundError, SpecError):
        return None


def _is_state(newest: EpochRow | None, spec: JobSpec, known: JobSpec | None) -> bool:
    return newest is not None and has_state_of(newest, spec, known or spec)


def _continues(old: JobSpec, new: JobSpec) -> bool:
    """Return whether a job can go on with another spec: the same queries over the same rows."""
    return fingerprints_of(old) == fingerprints_of(new) and not drops_topics(old, new)


def _parse_spec(document: str) -> JobSpec:
    return load_spec(msgspec.json.decode(document))


def _check_sink(spec: JobSpec, before: JobSpec, reasons: Sequence[str] = ()) -> None:
    """Raise a Problem if a job without state would continue its old changelog topic."""
    old = {each.sink.topic for each in before.view_specs.values() if each.sink is not None}
    sinks = ((view, each.sink) for view, each in spec.view_specs.items() if each.sink is not None)
    again = [view for view, sink in sinks if sink.topic in old]
    if not again:
        return
    reason = "; ".join(["a changelog cannot start over; use another topic", *reasons])
    path = f"views.{again[0]}.sink.topic" if again[0] else "sink.topic"
    raise Problem("query-fixed", reason, errors={path: reason})


def make_unfinished_problem(operation: OperationRecord) -> Problem:
    detail = f"operation {operation.id} ({operation.kind}) is running; wait until it has ended"
    return Problem("operation-unfinished", detail, operation=operation.id)


def _describe_failure(code: str, record: JobRecord) -> JobFailure:
    known = failure_kinds().get(code)  # of another version there may be none
    return JobFailure(code, record.retry_at is not None, None if known is None else known.text)


def describe_job(record: JobRecord, *, full: bool) -> Job:
    """Return a job's document as long as it has no epoch; without its spec if not `full`."""
    pending = None if record.pending is None else msgspec.json.decode(record.pending)
    return Job(
        name=record.name,
        revision=record.revision,
        desired=cast("DesiredState", record.desired),
        actual=cast("ActualState", record.actual),
        since=format_instant(record.since),
        reason=record.reason,
        failure=None if record.failure is None else _describe_failure(record.failure, record),
        failures=record.failures,
        retry_at=None if record.retry_at is None else format_instant(record.retry_at),
        restart_needed=record.pid is not None
        and record.run_revision not in (None, record.revision),
        spec=msgspec.json.decode(record.spec) if full else UNSET,
        pending=pending if full or pending is not None else UNSET,
        epoch=None,
        watermark=None,
        groups=None,
        lag=None,
        rates=None,
        table=None,
    )
