"""Documents: what answers look like, as types, for the OpenAPI document and for the client.

A row of results is a plain object: its columns are the job's. Fields that may be missing have a
default. The service writes these documents by hand, and a test holds it to them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Row = dict[str, Any]
Offsets = dict[str, dict[str, int]]
Op = Literal["+I", "-U", "+U", "-D"]


class FailureOf(msgspec.Struct, frozen=True):
    code: str
    retryable: bool


class Lag(msgspec.Struct, frozen=True):
    records: int
    partitions: dict[str, int]


class Rates(msgspec.Struct, frozen=True):
    read_per_second: float
    changes_per_second: float
    epochs_per_second: float


class ReplayFrom(msgspec.Struct, frozen=True):
    topics: list[str]
    start: Any  # as source.start has it
    offsets: Offsets | None  # what that was when the job began


class Evolution(msgspec.Struct, frozen=True):
    """What a pending spec would make of a job's state."""

    continues: bool  # the state answers the new query
    replays: bool  # the topic, read again, would
    begins: bool  # groups are named by other columns: history begins with the change
    reasons: list[str]
    added: list[str]
    dropped: list[str]
    replay_from: ReplayFrom | None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    revision: int
    desired: Literal["RUNNING", "PAUSED", "STOPPED"]
    actual: Literal[
        "CREATED", "STARTING", "RUNNING", "PAUSED", "STOPPING", "STOPPED", "FAILED",
        "AWAITING_APPROVAL",
    ]  # fmt: skip
    since: str
    reason: str | None
    failure: FailureOf | None
    failures: int
    retry_at: str | None
    restart_needed: bool
    epoch: int | None
    watermark: int | None
    groups: int | None
    committed_at: str | None = None
    moved: int | None = None  # since when offsets are others than the topic's: moved by hand
    lag: Lag | None
    rates: Rates | None
    table: str | None  # what is wrong with the table, where that keeps results from being read
    spec: dict[str, Any] | None = None
    pending: dict[str, Any] | None = None  # a spec that waits to be approved
    evolution: Evolution | None = None  # of that spec


class Jobs(msgspec.Struct, frozen=True):
    jobs: list[Job]
    next_cursor: str | None


class ResultColumn(msgspec.Struct, frozen=True):
    name: str
    type: str


class Valid(msgspec.Struct, frozen=True):
    valid: bool
    columns: list[ResultColumn]
    spec: dict[str, Any]


class LogLine(msgspec.Struct, frozen=True):
    time: str | None
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    message: str


class Logs(msgspec.Struct, frozen=True):
    lines: list[LogLine]


class Result(msgspec.Struct, frozen=True):
    epoch: int
    row: Row


class Listing(msgspec.Struct, frozen=True):
    epoch: int
    rows: list[Row]
    next_cursor: str | None


class Change(msgspec.Struct, frozen=True):
    op: Op
    epoch: int
    seq: int
    row: Row


class ChangePage(msgspec.Struct, frozen=True):
    changes: list[Change]
    next: str
    complete: bool
    epoch: int
    watermark: int | None
    newest: int | None


class History(msgspec.Struct, frozen=True):
    epoch: int
    group: Row
    changes: list[Change]
    complete: bool


class OfGroup(msgspec.Struct, frozen=True):
    op: Op
    row: Row


class EpochOfGroup(msgspec.Struct, frozen=True):
    epoch: int
    changes: list[OfGroup]
    offsets: dict[str, dict[str, list[int]]] | None


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    epoch: int
    moved: int | None  # the epoch in which offsets were moved by hand
    group: Row
    row: Row | None
    row_count: int | None
    changed: int | None
    withheld: bool
    hidden: bool  # HAVING does not hold
    closed: bool  # its window has closed: it is as it will be
    late: list[dict[str, Any]]  # rows that came after that
    written_ms: int | None
    arguments: list[dict[str, Any]]
    epochs: list[EpochOfGroup]
    history_complete: bool
    why: list[str] = []  # of MAX and MIN: how they came to be what they are, as far as is known


class Differing(msgspec.Struct, frozen=True):
    key: Row
    before: Row | None
    after: Row | None


class Difference(msgspec.Struct, frozen=True, rename={"first": "from"}):
    first: int
    to: int
    rows: list[Differing]
    next_cursor: str | None


class SentAgain(msgspec.Struct, frozen=True):
    fixed: bool
    topic: str
    partition: int
    offset: int | None
    sent_at: str


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    epoch: int
    topic: str
    partition: int
    offset: int
    time: int | None
    reason: str
    path: str | None
    bytes: int
    cut: bool
    raw: str | None = None
    raw_base64: str | None = None
    replayed: SentAgain | None


class Quarantine(msgspec.Struct, frozen=True):
    messages: list[Quarantined]
    next_cursor: str | None


class Savepoint(msgspec.Struct, frozen=True):
    name: str
    epoch: int
    committed_at: str
    groups: int
    offsets: Offsets


class Savepoints(msgspec.Struct, frozen=True):
    savepoints: list[Savepoint]


class PartitionOffsets(msgspec.Struct, frozen=True):
    next: int
    end: int | None
    lag: int | None


class JobOffsets(msgspec.Struct, frozen=True):
    epoch: int
    moved: int | None  # the epoch in which they were moved by hand, where that still counts
    topics: dict[str, dict[str, PartitionOffsets]]
    lag: Lag | None


class Watermarks(msgspec.Struct, frozen=True, kw_only=True):
    """What else an epoch says of time is in it as well."""

    epoch: int
    committed_at: str
    combined: int | None
    status: str | None
    held_by: list[Any]
    topics: dict[str, Any]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    job: str
    kind: Literal["audit", "rewind", "clone", "quarantine", "evolve", "offsets"]
    state: Literal["WAITING", "RUNNING", "DONE", "FAILED"]
    arguments: dict[str, Any]
    asked_by: str | None
    created_at: str
    began_at: str | None
    ended_at: str | None
    result: dict[str, Any] | None
    reason: str | None


class Operations(msgspec.Struct, frozen=True):
    operations: list[Operation]


class Session(msgspec.Struct, frozen=True):
    who: str
    role: Literal["viewer", "operator", "admin"]
    csrf: str | None
    login: bool


class Ticket(msgspec.Struct, frozen=True):
    ticket: str
    seconds: int


class TrailLine(msgspec.Struct, frozen=True):
    at: str
    who: str | None
    method: str
    path: str
    status: int
    from_: str = msgspec.field(name="from", default="")  # the client's address


class TrailLines(msgspec.Struct, frozen=True):
    lines: list[TrailLine]


class Health(msgspec.Struct, frozen=True):
    status: str
    reason: str | None = None


ALL: tuple[type[msgspec.Struct], ...] = (
    Job, Jobs, Valid, Logs, Result, Listing, ChangePage, History, Explained, Difference,
    Quarantined, Quarantine, Savepoint, Savepoints, JobOffsets, Watermarks, Operation, Operations,
    Session, Ticket, TrailLines, Health,
)  # fmt: skip


def schemas() -> dict[str, Any]:
    """All of them as JSON schemas, by name."""
    _, found = msgspec.json.schema_components(ALL, ref_template="#/components/schemas/{name}")
    return found


def reference(document: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{document.__name__}"}
