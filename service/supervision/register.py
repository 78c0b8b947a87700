"""The register: jobs and operations of the service, with desired and actual states.

One SQLite file, written in small transactions that are on disk when they return: a request that was
answered survives a crash of the service. Users set `desired`; the supervisor reports `actual` with
`since` and `reason`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from schemas.documents.answers import OperationKind, OperationState
from schemas.limits import FAILURES_KEPT, OPERATION_SECONDS_MAX
from schemas.types.moments import now_ms
from service.transaction import transaction

Record = TypeVar("Record", bound=msgspec.Struct)


class Desired(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class Actual(StrEnum):
    CREATED = "CREATED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    AWAITING_APPROVAL = "AWAITING_APPROVAL"  # a pending spec does not fit the state


ALIVE = (Actual.STARTING, Actual.RUNNING, Actual.STOPPING)
RESTING = (Actual.CREATED, Actual.PAUSED, Actual.STOPPED)


class _Labelled(msgspec.Struct):
    """A spec, of which lists of jobs need no more."""

    labels: tuple[str, ...] = ()


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times are milliseconds since 1970; `spec` is its document as JSON."""

    name: str
    revision: int
    spec: str
    desired: str
    actual: str
    since: int
    reason: str | None = None
    failure: str | None = None  # the code of the failure, while FAILED
    failures: int = 0  # consecutive ones
    retry_at: int | None = None
    pid: int | None = None
    pid_born: str | None = None  # distinguishes a process from a later one with the same pid
    began_at: int | None = None  # when that process was started
    run_revision: int | None = None  # the revision of the running process
    pending: str | None = None  # a spec that does not fit the state, until an admin approves it
    held_by: str | None = None  # the operation that keeps the job stopped, whatever is desired

    @property
    def labels(self) -> tuple[str, ...]:
        return msgspec.json.decode(self.spec, type=_Labelled).labels

    @property
    def waits(self) -> bool:
        """Whether the job runs, but its cluster gives it no cores; the reason says so."""
        running = self.desired == Desired.RUNNING and self.actual == Actual.RUNNING
        return running and self.reason is not None


class OperationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A long-running request, with its result."""

    id: str
    job: str
    kind: OperationKind
    state: OperationState
    arguments: str  # as JSON
    created_at: int
    began_at: int | None = None
    ended_at: int | None = None
    pid: int | None = None
    pid_born: str | None = None
    result: str | None = None  # as JSON
    reason: str | None = None
    request_key: str | None = None  # the client's Idempotency-Key
    asked_by: str | None = None  # the name of the token

    @property
    def is_overdue(self) -> bool:
        """Whether it has been running for longer than any operation may."""
        ran = 0 if self.began_at is None else now_ms() - self.began_at
        return ran > OPERATION_SECONDS_MAX * 1_000


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One failed run of a job."""

    job: str
    failed_at: int
    began_at: int | None
    attempt: int  # since the last success
    code: str
    reason: str
    stack: str  # the stack of the exception, or the last lines of the log
    retry_at: int | None


def _define_columns(record: type[msgspec.Struct]) -> str:
    kinds = {"int": "INTEGER", "int | None": "INTEGER"}
    return ", ".join(
        f"{name} {kinds.get(str(kind), 'TEXT')}" for name, kind in record.__annotations__.items()
    )


class Deposed(Exception):
    """Another service leads since, so this one writes nothing."""


def read_term(path: Path) -> int:
    """Return the term of the newest leader."""
    with closing(_connect(path, "ro")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def replace_term(path: Path, term: int) -> bool:
    """End a term; return False if it has ended already."""
    with closing(_connect(path, "rw")) as connection, transaction(connection):
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found == term:
            connection.execute(f"PRAGMA user_version = {term + 1}")
    return found == term


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)


class Register:
    """The file; thread-safe. `reads_only` is for a service that does not lead."""

    def __init__(self, path: Path, *, reads_only: bool = False) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._connection = _connect(path, "ro" if reads_only else "rwc")
        self._connection.row_factory = sqlite3.Row
        self._term: int | None = None
        if reads_only:
            return
        path.chmod(0o600)
        for statement in (
            # Not WAL, whose readers share memory: a standby may be on another host.
            "PRAGMA journal_mode = DELETE",
            "PRAGMA synchronous = FULL",
            f"CREATE TABLE IF NOT EXISTS jobs ({_define_columns(JobRecord)}, PRIMARY KEY (name))",
            f"CREATE TABLE IF NOT EXISTS operations "
            f"({_define_columns(OperationRecord)}, PRIMARY KEY (id))",
            "CREATE INDEX IF NOT EXISTS of_job ON operations (job, created_at)",
            f"CREATE TABLE IF NOT EXISTS failures ({_define_columns(FailureRecord)})",
            "CREATE INDEX IF NOT EXISTS failures_of_job ON failures (job, failed_at)",
        ):
            self._connection.execute(statement)
        self._add_missing_columns("jobs", JobRecord)
        self._add_missing_columns("operations", OperationRecord)

    def _add_missing_columns(self, table: str, record: type[msgspec.Struct]) -> None:
        """Add the columns that an older register lacks; new columns have defaults."""
        known = {row["name"] for row in self._query(f"PRAGMA table_info({table})")}
        for column in _define_columns(record).split(", "):
            if column.split()[0] not in known:
                self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")

    def lead(self) -> None:
        """Begin a new term: from now on the writes of all earlier leaders fail."""
        with self.transaction():
            self._term = self._read_term() + 1
            self._connection.execute(f"PRAGMA user_version = {self._term}")

    def is_deposed(self) -> bool:
        with self._lock:
            return self._term is not None and self._read_term() != self._term

    def _read_term(self) -> int:
        return int(self._query("PRAGMA user_version")[0][0])

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run several reads and writes as one transaction; raise Deposed in another's term."""
        with self._lock:
            if self._connection.in_transaction:  # of a caller
                yield
                return
            with transaction(self._connection):
                if self.is_deposed():
                    raise Deposed("another service leads since; this one writes nothing")
                yield

    # --- jobs -----------------------------------------------------------------------------------

    def find_job(self, name: str) -> JobRecord | None:
        return next(self._read(JobRecord, "SELECT * FROM jobs WHERE name = ?", name), None)

    def list_jobs(self) -> list[JobRecord]:
        return list(self._read(JobRecord, "SELECT * FROM jobs ORDER BY name"))

    def add_job(self, record: JobRecord) -> None:
        self._insert("jobs", record)

    def change_job(self, name: str, **fields: Any) -> None:
        self._change("jobs", "name", name, fields)

    def report(self, name: str, actual: Actual, reason: str | None = None, **fields: Any) -> None:
        """Record the actual state of a job; `since` changes only with the state."""
        with self.transaction():
            known = self.find_job(name)
            if known is None:
                return
            if known.pending is not None and known.held_by is None and actual in RESTING:
                actual = Actual.AWAITING_APPROVAL
            if known.actual != actual:
                fields["since"] = now_ms()
            if actual is not Actual.FAILED:
                fields["failure"] = None
            self.change_job(name, actual=str(actual), reason=reason, **fields)

    def hold(self, name: str, operation: str) -> None:
        """Keep a job stopped until `release`; its desired state does not change."""
        self.change_job(name, held_by=operation)

    def release(self, name: str, operation: str) -> None:
        """Return a held job to its desired state; do nothing if another operation holds it."""
        with self.transaction():
            record = self.find_job(name)
            if record is None or record.held_by != operation:
                return
            self.change_job(name, held_by=None, retry_at=None, failures=0)
            if record.pid is None:
                wanted = Desired(record.desired)
                running = wanted is Desired.RUNNING
                self.report(name, Actual.STARTING if running else Actual(wanted))

    def remove_job(self, name: str) -> None:
        with self.transaction():
            self._connection.execute("DELETE FROM jobs WHERE name = ?", [name])
            self._connection.execute("DELETE FROM failures WHERE job = ?", [name])

    # --- failures -------------------------------------------------------------------------------

    def add_failure(self, record: FailureRecord) -> None:
        """Add a failure; forget the oldest of the job beyond the limit."""
        with self.transaction():
            self._insert("failures", record)
            self._connection.execute(
                "DELETE FROM failures WHERE job = ?1 AND failed_at <= (SELECT failed_at FROM "
                "failures WHERE job = ?1 ORDER BY failed_at DESC LIMIT 1 OFFSET ?2)",
                [record.job, FAILURES_KEPT],
            )

    def list_failures(self, job: str, limit: int) -> list[FailureRecord]:
        """Return the failures of a job, newest first."""
        statement = "SELECT * FROM failures WHERE job = ? ORDER BY failed_at DESC LIMIT ?"
        return list(self._read(FailureRecord, statement, job, limit))

    # --- operations -----------------------------------------------------------------------------

    def add_operation(self, record: OperationRecord) -> None:
        self._insert("operations", record)

    def change_operation(self, identity: str, **fields: Any) -> None:
        self._change("operations", "id", identity, fields)

    def find_operation(self, identity: str) -> OperationRecord | None:
        statement = "SELECT * FROM operations WHERE id = ?"
        return next(self._read(OperationRecord, statement, identity), None)

    def list_operations(
        self, job: str | None = None, limit: int = 100, state: str | None = None
    ) -> list[OperationRecord]:
        """Return the operations of a job or of all jobs, newest first; only those in `state`."""
        statement = (
            "SELECT * FROM operations WHERE (?1 IS NULL OR job = ?1) "
            "AND (?3 IS NULL OR state = ?3) ORDER BY created_at DESC, id LIMIT ?2"
        )
        return list(self._read(OperationRecord, statement, job, limit, state))

    def list_unfinished(self) -> list[OperationRecord]:
        statement = "SELECT * FROM operations WHERE state IN ('WAITING', 'RUNNING')"
        return list(self._read(OperationRecord, statement))

    def find_unfinished(self, job: str, kind: OperationKind) -> OperationRecord | None:
        """Return an operation of a kind that has not ended."""
        found = (each for each in self.list_unfinished() if (each.job, each.kind) == (job, kind))
        return next(found, None)

    def find_operation_by_key(self, job: str, request_key: str) -> OperationRecord | None:
        statement = "SELECT * FROM operations WHERE job = ? AND request_key = ?"
        return next(self._read(OperationRecord, statement, job, request_key), None)

    # --- rows -----------------------------------------------------------------------------------
    # Tables and columns are constants; values are parameters.

    def _query(self, statement: str, *values: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def _read(self, record: type[Record], statement: str, *values: object) -> Iterator[Record]:
        return (record(**dict(row)) for row in self._query(statement, *values))

    def _insert(self, table: str, record: msgspec.Struct) -> None:
        fields = msgspec.structs.asdict(record)
        marks = ", ".join("?" for _ in fields)
        with self.transaction():
            self._connection.execute(
                f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})",  # noqa: S608
                list(fields.values()),
            )

    def _change(self, table: str, key: str, value: str, fields: dict[str, object]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in fields)
        with self.transaction():
            self._connection.execute(
                f"UPDATE {table} SET {assignments} WHERE {key} = ?",  # noqa: S608
                [*fields.values(), value],
            )
