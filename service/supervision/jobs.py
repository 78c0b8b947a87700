"""Jobs: creating, changing and deleting them; what is said of one.

    PUT ──► spec checked ──► revision + 1 in the register, spec.yaml beside it ──► the supervisor
                                                                                   acts on it
A job's revision is its ETag. Equal specs are the same revision, so that PUT may be repeated.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from deltalake.exceptions import DeltaError

from jobs.core.job.evolution import Evolution, Planned, compared
from jobs.core.job.job_plan import plan_of
from schemas import limits
from schemas.spec.file import SpecError, load_spec, spec_text
from schemas.spec.job import JobSpec
from service.moments import instant, now_ms
from service.places import JobPlaces, discarded
from service.problems import Problem
from service.settings import Settings
from service.supervision.register import (
    RESTING,
    Actual,
    Desired,
    JobRecord,
    OperationRecord,
    Register,
)
from service.supervision.spec_body import CheckedSpec, read_spec
from service.table.job_table import FormatUnknown, NoTable, Table, newest_row

log = logging.getLogger(__name__)

JOB_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{limits.JOB_NAME_CHARACTERS_MAX - 1}}}", re.ASCII)


class Jobs:
    """The jobs of the service, above the register."""

    def __init__(self, settings: Settings, register: Register) -> None:
        self._settings = settings
        self._register = register

    def places(self, name: str) -> JobPlaces:
        return self._settings.places.job(name)

    def record(self, name: str) -> JobRecord:
        record = self._register.job(name[: limits.JOB_NAME_CHARACTERS_MAX + 1])
        if record is None:
            raise Problem("job-unknown", 404, f"there is no job {name[:80]!r}")
        return record

    def records(self) -> list[JobRecord]:
        return self._register.jobs()

    def spec(self, record: JobRecord) -> JobSpec:
        return _spec_of(record.spec)

    def check(self, body: bytes, name: str | None = None) -> CheckedSpec:
        return read_spec(body, name, self._settings.connections)

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
        """The job as it is now, and whether it is new. With `replace` a spec that does not fit the
        job's state is kept as pending."""
        checked = self.check(body, name)
        with self._register.transaction():
            known = self._register.job(name)
            recorded = self._recorded(name, known)
            if recorded is not None:
                checked = checked.ordered_as(recorded)
            document = msgspec.json.encode(checked.spec.document()).decode()
            _check_conditions(known, if_match, if_none_match)
            if known is not None and document not in (known.spec, known.pending):
                self._require_no_evolution(name)
            if known is not None and known.spec == document:
                return self._settled(known), False
            try:
                self._check_query(name, checked)
            except Problem as misfit:
                if known is None or not replace or misfit.code != "query-fixed":
                    raise
                return self._pend(known, checked.spec, document), False
            if known is None:
                self._check_room()
                if name in self._clones():
                    raise Problem("job-exists", 409, f"a clone of that name is being made: {name}")
            self._write_spec(name, checked.spec)
            if known is None:
                self._register.add_job(
                    JobRecord(
                        name=name,
                        revision=1,
                        spec=document,
                        desired=Desired.STOPPED,
                        actual=Actual.CREATED,
                        since=now_ms(),
                    )
                )
            else:
                revision = known.revision + 1
                self._register.change_job(name, revision=revision, spec=document)
                self._settled(known)
        return self.record(name), known is None

    def _recorded(self, name: str, known: JobRecord | None) -> JobSpec | None:
        """The spec that the job has, or the one that its data was made with."""
        if known is not None:
            return self.spec(known)
        spec = self.places(name).spec
        return load_spec(spec) if spec.exists() else None

    # --- a spec that does not fit the state -----------------------------------------------------

    def _pend(self, known: JobRecord, spec: JobSpec, document: str) -> JobRecord:
        """Keep a spec until somebody says what becomes of the state; a job that runs goes on."""
        if known.pending == document:
            return known
        found = self.difference(known, spec)
        if found is not None and not found.replays:  # so only a new beginning is left
            _check_sink(spec, self.spec(known), found.fixed)
        self._register.change_job(known.name, pending=document)
        if known.actual in RESTING and known.desired != Desired.RUNNING:
            self._register.tell(
                known.name, Actual(known.desired), "a changed query waits to be approved"
            )
        return self.record(known.name)

    def _settled(self, known: JobRecord) -> JobRecord:
        """A spec that fits was put: nothing is pending any more."""
        if known.pending is not None:
            self._require_no_evolution(known.name)
            self._register.change_job(known.name, pending=None)
            if known.actual == Actual.AWAITING_APPROVAL:
                self._register.tell(known.name, Actual(known.desired))
        return self.record(known.name)

    def difference(self, record: JobRecord, spec: JobSpec) -> Evolution | None:
        """What another spec would make of a job, as its table stands; None where it has none."""
        places = self.places(record.name)
        try:
            newest = newest_row(places.table)
            old = None if newest is None else load_spec(places.spec)
        except (FormatUnknown, FileNotFoundError, SpecError) as error:
            raise Problem("table-unreadable", 409, str(error)[:300]) from None
        if newest is None or old is None:
            return None
        return compared(Planned(old, plan_of(old)), Planned(spec, plan_of(spec)), newest)

    def pending(self, record: JobRecord, if_match: str | None = None) -> JobSpec:
        """The spec that waits to be approved."""
        _check_conditions(record, if_match, None)
        if record.pending is None:
            raise Problem("nothing-pending", 409, f"job {record.name!r} has no pending spec")
        return _spec_of(record.pending)

    def _require_no_evolution(self, name: str) -> None:
        other = self._register.at_work(name, "evolve")
        if other is not None:
            raise at_work(other)

    def approve(self, name: str, if_match: str | None) -> JobRecord:
        """Drop the job's state, and take the pending spec: the job begins anew with it."""
        places = self.places(name)
        with self._register.transaction():
            record = self.require_stopped(name)
            spec = self.pending(record, if_match)
            _check_sink(spec, self.spec(record))
            self._write_spec(name, spec)
            dropped = self._moved_away(places)
            self._register.change_job(
                name, spec=record.pending, revision=record.revision + 1, pending=None, failures=0
            )
            self._register.tell(name, Actual.STOPPED)
        for path in dropped:
            discarded(path)
        return self.record(name)

    def take_up(self, name: str) -> JobRecord:
        """A job that a command has made in the data directory; taking it up again is no error."""
        spec = load_spec(self.places(name).spec)
        with self._register.transaction():
            known = self._register.job(name)
            if known is not None:
                return known
            self._check_room()
            self._write_spec(name, spec)
            record = JobRecord(
                name=name,
                revision=1,
                spec=msgspec.json.encode(spec.document()).decode(),
                desired=Desired.STOPPED,
                actual=Actual.STOPPED,
                since=now_ms(),
            )
            self._register.add_job(record)
        return record

    def evolved(self, name: str) -> JobSpec | None:
        """The spec of a table whose query has been changed, as its command left it beside the
        table; None until it is there. The register follows what was done without us."""
        places = self.places(name)
        newest = newest_row(places.table)
        try:
            spec = load_spec(places.spec)
        except (FileNotFoundError, SpecError):
            return None
        plan = plan_of(spec).fingerprint
        if newest is None or newest.plan != plan:
            return None
        with self._register.transaction():
            record = self._register.job(name)
            ours = self._register.at_work(name, "evolve") is not None
            if record and not ours and plan_of(self.spec(record)).fingerprint != plan:
                log.info("job %s: its query was changed by a command", name)
                self._take(record, spec)
        return spec

    def take(self, name: str, spec: JobSpec, operation: str) -> None:
        """A job whose table an operation has put under another query goes on with its spec; told
        again, it is let go and nothing else."""
        document = msgspec.json.encode(spec.document()).decode()
        with self._register.transaction():
            record = self._register.job(name)
            if record is not None:
                if record.spec != document or record.pending is not None:
                    self._take(record, spec)
                self._register.let_go(name, operation)

    def _take(self, record: JobRecord, spec: JobSpec) -> None:
        """Another spec is the job's from now on; one that was pending and fits it is settled."""
        self._write_spec(record.name, spec)
        pending = record.pending
        if pending is not None and plan_of(_spec_of(pending)) == plan_of(spec):
            pending = None
        document = msgspec.json.encode(spec.document()).decode()
        self._register.change_job(
            record.name, spec=document, revision=record.revision + 1, pending=pending
        )
        if record.actual == Actual.AWAITING_APPROVAL and pending is None:
            self._register.tell(record.name, Actual.STOPPED)

    def require_free(self, name: str) -> None:
        """Refused where there is a job of that name, or data of one, or one is being made."""
        if (
            self._register.job(name) is not None
            or name in self._clones()
            or self.places(name).begun
        ):
            raise Problem("job-exists", 409, f"there is a job {name!r} already, or data of one")
        self._check_room()

    def _clones(self) -> set[str]:
        """Names of jobs that are being made."""
        unfinished = [each for each in self._register.unfinished() if each.kind == "clone"]
        return {msgspec.json.decode(each.arguments)["name"] for each in unfinished}

    def _check_room(self) -> None:
        if len(self._register.jobs()) >= limits.JOBS_MAX:
            detail = f"a service keeps at most {limits.JOBS_MAX} jobs"
            raise Problem("too-many-jobs", 409, detail)

    def _check_query(self, name: str, checked: CheckedSpec) -> None:
        """The state in a job's table is that of one query; a changed one is a new job."""
        places = self.places(name)
        try:
            newest = newest_row(places.table)
        except FormatUnknown as error:
            raise Problem("table-unreadable", 409, str(error)) from None
        if newest is None:
            return
        if newest.plan != checked.plan.fingerprint:
            raise Problem(
                "query-fixed",
                409,
                f"job {name!r} keeps the state of another query or other column types; give the "
                "changed query a new job name, or let it wait for approval with ?replace=true",
                errors=[{"path": "query", "message": "is not the query of the job's state"}],
            )
        buckets = load_spec(places.spec).state.buckets
        if buckets != checked.spec.state.buckets:
            raise Problem(
                "query-fixed",
                409,
                f"state.buckets is fixed for the life of a job: it is {buckets}",
                errors=[{"path": "state.buckets", "message": f"must be {buckets}"}],
            )

    def _write_spec(self, name: str, spec: JobSpec) -> None:
        places = self.places(name)
        places.own.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = places.own_spec.with_suffix(".new")
        fresh.write_text(spec_text(spec))
        fresh.chmod(0o600)
        fresh.replace(places.own_spec)

    # --- delete ---------------------------------------------------------------------------------

    def require_stopped(self, name: str) -> JobRecord:
        record = self.record(name)
        self._require_no_evolution(name)
        if record.pid is not None or record.actual not in (
            Actual.CREATED,
            Actual.STOPPED,
            Actual.PAUSED,
            Actual.FAILED,
            Actual.AWAITING_APPROVAL,
        ):
            raise Problem("job-not-stopped", 409, f"job {name!r} is {record.actual}; stop it first")
        if record.desired == Desired.RUNNING and record.retry_at is not None:
            detail = f"job {name!r} has failed and will be started again; stop it first"
            raise Problem("job-not-stopped", 409, detail)
        return record

    def delete(self, name: str, *, drop_data: bool, if_match: str | None) -> None:
        places = self.places(name)
        with self._register.transaction():
            record = self.require_stopped(name)
            _check_conditions(record, if_match, None)
            dropped = self._moved_away(places) if drop_data else []
            shutil.rmtree(places.own, ignore_errors=True)
            self._register.remove_job(name)
        for path in dropped:
            discarded(path)

    def _moved_away(self, places: JobPlaces) -> list[Path]:
        """Out of the way in one step, under the writer's lock, so that no job runs meanwhile."""
        trash = self._settings.places.trash
        trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        hot_state = _hot_state(places)
        moved = []
        with suppress(FileNotFoundError):
            lock = os.open(places.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                detail = f"another process writes to job {places.name!r}"
                raise Problem("job-not-stopped", 409, detail) from None
            else:
                moved.append(places.home.rename(trash / uuid4().hex))
            finally:
                os.close(lock)
        with suppress(FileNotFoundError):
            moved.append(places.home.rename(trash / uuid4().hex))
        with suppress(FileNotFoundError):  # the cache may be on another disk than the trash
            moved.append(hot_state.rename(hot_state.with_name(f"deleted-{uuid4().hex}")))
        return moved


def _hot_state(places: JobPlaces) -> Path:
    """Return what a job has of its host's cache: below the data directory all of its name, in a
    cache that other data directories may share the hot state of its own table."""
    if places.cache.is_relative_to(places.data):
        return places.cache
    try:
        return places.hot_state(Table(places.table).id)
    except (NoTable, FormatUnknown, DeltaError):  # without a table nobody can tell which it was
        return places.hot_state("")


def _spec_of(document: str) -> JobSpec:
    return load_spec(msgspec.json.decode(document))


def _check_sink(spec: JobSpec, before: JobSpec, further: Sequence[str] = ()) -> None:
    """A job that begins anew cannot do so in the middle of its old changelog."""
    if spec.sink is None or before.sink is None or spec.sink.topic != before.sink.topic:
        return
    reason = "; ".join(["a changelog cannot begin anew; name another topic", *further])
    errors = [{"path": "sink.topic", "message": reason}]
    raise Problem("query-fixed", 409, reason, errors=errors)


def _check_conditions(
    known: JobRecord | None, if_match: str | None, if_none_match: str | None
) -> None:
    """RFC 9110's conditions over the revision."""
    tag = None if known is None else etag(known)
    if if_none_match is not None and known is not None:
        wanted = _tags(if_none_match)
        if "*" in wanted or tag in wanted:
            detail = f"job {known.name!r} is there, at revision {known.revision}"
            raise Problem("job-exists", 412, detail, headers={"ETag": str(tag)})
    if if_match is not None:
        wanted = _tags(if_match)
        if tag is None or ("*" not in wanted and tag not in wanted):
            detail = "there is no such job" if tag is None else f"it is at revision {tag}"
            headers = {} if tag is None else {"ETag": tag}
            raise Problem("revision-mismatch", 412, detail, headers=headers)


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


def at_work(operation: OperationRecord) -> Problem:
    detail = (
        f"operation {operation.id} ({operation.kind}) is at work on it; wait until it has ended"
    )
    return Problem("operation-unfinished", 409, detail, operation=operation.id)


def etag(record: JobRecord) -> str:
    return f'"{record.revision}"'


def described(record: JobRecord, *, full: bool = True) -> dict[str, Any]:
    """What the register says of a job; what its table says is added by the caller."""
    document: dict[str, Any] = {
        "name": record.name,
        "revision": record.revision,
        "desired": record.desired,
        "actual": record.actual,
        "since": instant(record.since),
        "reason": record.reason,
        "failure": None
        if record.failure is None
        else {"code": record.failure, "retryable": record.retry_at is not None},
        "failures": record.failures,
        "retry_at": None if record.retry_at is None else instant(record.retry_at),
        "restart_needed": record.pid is not None
        and record.run_revision is not None
        and record.run_revision != record.revision,
    }
    if full:
        document["spec"] = msgspec.json.decode(record.spec)
        document["pending"] = (
            None if record.pending is None else msgspec.json.decode(record.pending)
        )
    return document
