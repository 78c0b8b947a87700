"""Answers: what the service answers, in JSON.

    struct ──► JSON, the OpenAPI document with its examples, and the types of the client

A field with a default may be missing. A result row is a plain object with the columns of the job;
pages of rows are joined from rows that are JSON already, and tests compare them with the types.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from schemas.directory.quarantine import Quarantined
from schemas.documents.explanation import Change, DifferingGroup
from schemas.table.epoch import Offsets, SourceRepeat
from schemas.types.json_types import JsonObject

Row = JsonObject
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
DesiredState = Literal["RUNNING", "PAUSED", "STOPPED"]
ActualState = Literal[
    "CREATED",
    "STARTING",
    "RUNNING",
    "PAUSED",
    "STOPPING",
    "STOPPED",
    "FAILED",
    "AWAITING_APPROVAL",
]
OperationKind = Literal["audit", "rewind", "clone", "quarantine", "evolve", "offsets"]
OperationState = Literal["WAITING", "RUNNING", "DONE", "FAILED"]


class Problem(msgspec.Struct, frozen=True):
    """A refused request; some codes have fields of their own."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    retryable: bool  # the same request may succeed later
    advice: str  # what a person does
    errors: list[JsonObject] | UnsetType = UNSET


class JobFailure(msgspec.Struct, frozen=True):
    code: str
    retryable: bool
    advice: str | None = None  # what the code means and what to do


class Lag(msgspec.Struct, frozen=True, omit_defaults=True):
    records: int
    partitions: dict[str, int]
    sources: dict[str, int] | None = None  # of a job with several


class Rates(msgspec.Struct, frozen=True):
    read_per_second: float
    changes_per_second: float
    epochs_per_second: float


class ReplayFrom(msgspec.Struct, frozen=True):
    topics: list[str]
    start: Any  # source.start, or that of each source by name
    offsets: Offsets | None  # its offsets when the job started


class Evolution(msgspec.Struct, frozen=True):
    """The effect of a pending spec on the job's state."""

    continues: bool  # the state can answer the new query
    replays: bool  # the topic, read again, can
    begins: bool  # the group columns change, so history starts with the change
    reasons: list[str]
    added: list[str]
    dropped: list[str]
    replay_from: ReplayFrom | None


class Mirror(msgspec.Struct, frozen=True):
    """The plain table for BI tools."""

    epoch: int
    refreshed_at: str
    age_ms: int  # 0 if it has the newest epoch


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job; the fields of its results are null, or missing, until it has an epoch."""

    name: str
    revision: int
    desired: DesiredState
    actual: ActualState
    since: str
    reason: str | None
    failure: JobFailure | None
    failures: int
    retry_at: str | None
    restart_needed: bool
    spec: JsonObject | UnsetType = UNSET
    pending: JsonObject | UnsetType | None = UNSET  # a spec pending approval
    epoch: int | None
    watermark: int | None
    groups: int | None
    groups_below_zero: int = 0  # kept without a row: more of their rows were retracted than added
    committed_at: str | UnsetType = UNSET
    moved: int | UnsetType | None = UNSET  # the epoch in which offsets were moved manually
    # The source sends messages again after a crash.
    source_repeats: SourceRepeat | UnsetType | None = UNSET
    lag: Lag | None
    rates: Rates | None
    mirror: Mirror | None = None
    table: str | None  # why the table cannot be read
    evolution: Evolution | UnsetType | None = UNSET  # the effect of the pending spec


class Jobs(msgspec.Struct, frozen=True):
    jobs: list[Job]
    next_cursor: str | None


class ResultColumn(msgspec.Struct, frozen=True):
    name: str
    type: str


class SpecNote(msgspec.Struct, frozen=True):
    path: str
    message: str
    line: int | None
    column: int | None


class Valid(msgspec.Struct, frozen=True, kw_only=True):
    valid: bool
    columns: list[ResultColumn]  # of the job's own query
    views: dict[str, list[ResultColumn]] = {}
    notes: list[SpecNote]  # what may surprise in a valid spec
    evolution: Evolution | None = None  # of the job of this name, if it has a state
    spec: JsonObject


class SqlAnswer(msgspec.Struct, frozen=True):
    epochs: dict[str, int]  # of each table that the statement read
    columns: list[ResultColumn]
    rows: list[Row]


class PlanNode(msgspec.Struct, frozen=True):
    """One operator. An attribute is None if the job does not use it."""

    id: str
    type: str
    predecessors: list[str]
    attributes: JsonObject


class JobPlan(msgspec.Struct, frozen=True):
    nodes: list[PlanNode]  # of the job's own query
    views: dict[str, list[PlanNode]] = {}


class LogLine(msgspec.Struct, frozen=True):
    time: str | None
    level: Level
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


class Listings(msgspec.Struct, frozen=True):
    """A listing; or one of each view, if `views` asks for them."""

    epoch: int
    rows: list[Row] | UnsetType = UNSET
    next_cursor: str | UnsetType | None = UNSET
    views: dict[str, Listing] | UnsetType = UNSET


class View(msgspec.Struct, frozen=True):
    name: str
    query: str
    columns: list[str]
    sink: str | None
    epoch: int | None
    groups: int | None


class Views(msgspec.Struct, frozen=True):
    views: list[View]


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


class Difference(msgspec.Struct, frozen=True, rename={"first": "from"}):
    first: int
    to: int
    rows: list[DifferingGroup]
    next_cursor: str | None


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


class JobOffsets(msgspec.Struct, frozen=True, omit_defaults=True):
    epoch: int
    moved: int | None  # the epoch in which they were moved manually, if that still matters
    topics: dict[str, dict[str, PartitionOffsets]]
    lag: Lag | None
    sources: dict[str, list[str]] | None = None  # topics by source, of a job with several


class TopicPartition(msgspec.Struct, frozen=True):
    first: int
    next: int
    rate: float | None


class Topic(msgspec.Struct, frozen=True):
    name: str
    records: int  # at most: compaction leaves gaps
    rate: float | None  # records per second; None until there are two readings
    partitions: dict[str, TopicPartition]


class Topics(msgspec.Struct, frozen=True):
    connection: str
    known: int
    topics: list[Topic]


class SuggestedSpec(msgspec.Struct, frozen=True):
    topic: str
    connection: str
    spec: str  # YAML


class Watermarks(msgspec.Struct, frozen=True, kw_only=True):
    """The watermarks of an epoch; other fields of its time state follow."""

    epoch: int
    committed_at: str
    combined: int | None
    status: str | None
    held_by: list[str]
    topics: JsonObject


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    job: str
    kind: OperationKind
    state: OperationState
    arguments: JsonObject
    asked_by: str | None
    created_at: str
    began_at: str | None
    ended_at: str | None
    result: JsonObject | None
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


class AuditLogLine(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    who: str | None
    from_: str = msgspec.field(name="from", default="")  # the client's address
    method: str
    path: str
    status: int


class AuditLogLines(msgspec.Struct, frozen=True):
    lines: list[AuditLogLine]


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    status: str
    leads: bool | None = None  # /readyz: whether it takes changes; another service may lead
    reason: str | None = None
