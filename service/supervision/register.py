"""The register: the jobs that the service keeps, as it wants them and as it last saw them.

One SQLite file, written in small transactions that are on the disk when they return: what was
asked for by REST survives whatever happens to the service. `desired` is what people want;
`actual`, with `since` and `reason`, is what the supervisor saw last.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from service.moments import now_ms
from service.transaction import transaction


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
    AWAITING_APPROVAL = "AWAITING_APPROVAL"  # a pending spec would begin the state anew


ALIVE = (Actual.STARTING, Actual.RUNNING, Actual.STOPPING)
RESTING = (Actual.CREATED, Actual.PAUSED, Actual.STOPPED)


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times are milliseconds since 1970; `spec` is its document as JSON."""

    name: str
    revision: int
    spec: str
    desired: str
    actual: str
    since: int
    reason: str | None = None
    failure: str | None = None  # the code of the failure that it has FAILED with
    failures: int = 0  # in a row
    retry_at: int | None = None
    pid: int | None = None
    pid_born: str | None = None  # tells a process from a later one with the same number
    began_at: int | None = None  # when that process was started
    run_revision: int | None = None  # the revision that it runs
    pending: str | None = None  # a spec that does not fit the state, until somebody approves it
    held_by: str | None = None  # the operation for which the job stands still, whatever is desired


class OperationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes a while, with what came of it."""

    id: str
    job: str
    kind: str  # audit, rewind, clone, quarantine, evolve
    state: str  # WAITING, RUNNING, DONE, FAILED
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


def _columns(record: type[msgspec.Struct]) -> str:
    kinds = {"int": "INTEGER", "int | None": "INTEGER"}
    return ", ".join(f"{name} {kinds.get(str(kind), 'TEXT')}"
                     for name, kind in record.__annotations__.items())  # fmt: skip


class Register:
    """The file, shared by all threads of the service."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        path.chmod(0o600)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            f"CREATE TABLE IF NOT EXISTS jobs ({_columns(JobRecord)}, PRIMARY KEY (name))",
            f"CREATE TABLE IF NOT EXISTS operations "
            f"({_columns(OperationRecord)}, PRIMARY KEY (id))",
            "CREATE INDEX IF NOT EXISTS of_job ON operations (job, created_at)",
        ):
            self._connection.execute(statement)
        self._bring_up("jobs", JobRecord)
        self._bring_up("operations", OperationRecord)

    def _bring_up(self, table: str, record: type[msgspec.Struct]) -> None:
        """Columns that a register of before does not have yet; what is new has a default."""
        known = {row["name"] for row in self._read(f"PRAGMA table_info({table})")}
        for column in _columns(record).split(", "):
            if column.split()[0] not in known:
                self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several looks and changes as one."""
        with self._lock, transaction(self._connection):
            yield

    # --- jobs -----------------------------------------------------------------------------------

    def job(self, name: str) -> JobRecord | None:
        rows = self._read("SELECT * FROM jobs WHERE name = ?", name)
        return JobRecord(**dict(rows[0])) if rows else None

    def jobs(self) -> list[JobRecord]:
        return [JobRecord(**dict(row)) for row in self._read("SELECT * FROM jobs ORDER BY name")]

    def add_job(self, record: JobRecord) -> None:
        self._insert("jobs", record)

    def change_job(self, name: str, **fields: Any) -> None:
        self._change("jobs", "name", name, fields)

    def tell(self, name: str, actual: Actual, reason: str | None = None, **fields: Any) -> None:
        """What is seen of a job; `since` moves only with the state."""
        with self._lock:
            known = self.job(name)
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
        """The job is to stand still until `let_go`; what is desired of it is remembered."""
        self.change_job(name, held_by=operation)

    def let_go(self, name: str, operation: str) -> None:
        """The job is as it is desired again; nothing where the operation does not hold it."""
        with self._lock:
            record = self.job(name)
            if record is None or record.held_by != operation:
                return
            self.change_job(name, held_by=None, retry_at=None, failures=0)
            if record.pid is None:
                wanted = Desired(record.desired)
                running = wanted is Desired.RUNNING
                self.tell(name, Actual.STARTING if running else Actual(wanted))

    def remove_job(self, name: str) -> None:
        with self._lock:
            self._connection.execute("DELETE FROM jobs WHERE name = ?", [name])

    # --- operations -----------------------------------------------------------------------------

    def add_operation(self, record: OperationRecord) -> None:
        self._insert("operations", record)

    def change_operation(self, identity: str, **fields: Any) -> None:
        self._change("operations", "id", identity, fields)

    def operation(self, identity: str) -> OperationRecord | None:
        rows = self._read("SELECT * FROM operations WHERE id = ?", identity)
        return OperationRecord(**dict(rows[0])) if rows else None

    def operations(self, job: str | None = None, limit: int = 100) -> list[OperationRecord]:
        """The newest first."""
        rows = self._read(
            "SELECT * FROM operations WHERE ?1 IS NULL OR job = ?1 "
            "ORDER BY created_at DESC, id LIMIT ?2",
            job,
            limit,
        )
        return [OperationRecord(**dict(row)) for row in rows]

    def unfinished(self) -> list[OperationRecord]:
        rows = self._read("SELECT * FROM operations WHERE state IN ('WAITING', 'RUNNING')")
        return [OperationRecord(**dict(row)) for row in rows]

    def at_work(self, job: str, kind: str) -> OperationRecord | None:
        """An operation of a kind that has not ended."""
        found = (each for each in self.unfinished() if (each.job, each.kind) == (job, kind))
        return next(found, None)

    def operation_of_request(self, job: str, request_key: str) -> OperationRecord | None:
        rows = self._read(
            "SELECT * FROM operations WHERE job = ? AND request_key = ?", job, request_key
        )
        return OperationRecord(**dict(rows[0])) if rows else None

    # --- rows -----------------------------------------------------------------------------------
    # Names of tables and columns are ours; values are parameters.

    def _read(self, statement: str, *values: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def _insert(self, table: str, record: msgspec.Struct) -> None:
        fields = msgspec.structs.asdict(record)
        marks = ", ".join("?" for _ in fields)
        with self._lock:
            self._connection.execute(
                f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})",  # noqa: S608
                list(fields.values()),
            )

    def _change(self, table: str, key: str, value: str, fields: dict[str, Any]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in fields)
        with self._lock:
            self._connection.execute(
                f"UPDATE {table} SET {assignments} WHERE {key} = ?",  # noqa: S608
                [*fields.values(), value],
            )
