"""Made by setup/client_types.py; do not change it by hand."""

from typing import Any, Literal

OPTIONAL: frozenset[str]

class Document(dict[str, Any]): ...

def parse_document(content: bytes) -> Any: ...

class JobFailure(Document):
    code: str
    retryable: bool
    advice: str | None

class SourceRepeat(Document):
    """Where a source first began to send messages again, and how often it did so until now."""

    epoch: int
    topic: str
    partition: int
    offset: int
    count: int

class Lag(Document):
    records: int
    partitions: dict[str, int]
    sources: dict[str, int] | None

class Rates(Document):
    read_per_second: float
    changes_per_second: float
    epochs_per_second: float

class Mirror(Document):
    """The plain table for BI tools."""

    epoch: int
    refreshed_at: str
    age_ms: int

class ReplayFrom(Document):
    topics: list[str]
    start: Any
    offsets: dict[str, dict[str, int]] | None

class Evolution(Document):
    """The effect of a pending spec on the job's state."""

    continues: bool
    replays: bool
    begins: bool
    reasons: list[str]
    added: list[str]
    dropped: list[str]
    replay_from: ReplayFrom | None

class Job(Document):
    """A job; the fields of its results are null, or missing, until it has an epoch."""

    name: str
    revision: int
    desired: Literal["RUNNING", "PAUSED", "STOPPED"]
    actual: Literal[
        "CREATED",
        "STARTING",
        "RUNNING",
        "PAUSED",
        "STOPPING",
        "STOPPED",
        "FAILED",
        "AWAITING_APPROVAL",
    ]
    since: str
    reason: str | None
    failure: JobFailure | None
    failures: int
    retry_at: str | None
    restart_needed: bool
    spec: dict[str, Any] | None
    pending: dict[str, Any] | None
    epoch: int | None
    watermark: int | None
    groups: int | None
    groups_below_zero: int | None
    committed_at: str | None
    moved: int | None
    source_repeats: SourceRepeat | None
    lag: Lag | None
    rates: Rates | None
    mirror: Mirror | None
    table: str | None
    evolution: Evolution | None

class ResultColumn(Document):
    name: str
    type: str

class SpecNote(Document):
    path: str
    message: str
    line: int | None
    column: int | None

class Valid(Document):
    valid: bool
    columns: list[ResultColumn]
    views: dict[str, list[ResultColumn]] | None
    notes: list[SpecNote]
    evolution: Evolution | None
    spec: dict[str, Any]

class PartitionOffsets(Document):
    next: int
    end: int | None
    lag: int | None

class JobOffsets(Document):
    epoch: int
    moved: int | None
    topics: dict[str, dict[str, PartitionOffsets]]
    lag: Lag | None
    sources: dict[str, list[str]] | None

class Watermarks(Document):
    """The watermarks of an epoch; other fields of its time state follow."""

    epoch: int
    committed_at: str
    combined: int | None
    status: str | None
    held_by: list[str]
    topics: dict[str, Any]

class LogLine(Document):
    time: str | None
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    message: str

class PlanNode(Document):
    """One operator. An attribute is None if the job does not use it."""

    id: str
    type: str
    predecessors: list[str]
    attributes: dict[str, Any]

class View(Document):
    name: str
    query: str
    columns: list[str]
    sink: str | None
    epoch: int | None
    groups: int | None

class Result(Document):
    epoch: int
    row: dict[str, Any]

class Listing(Document):
    epoch: int
    rows: list[dict[str, Any]]
    next_cursor: str | None

class LateRow(Document):
    """A row that was too late for the group, so that its result lacks the row."""

    epoch: int
    topic: str
    partition: int
    offset: int
    weight: int
    time_ms: int
    watermark_ms: int
    row: dict[str, Any]
    became: dict[str, Any] | None

class GroupChange(Document):
    op: Literal["+I", "-U", "+U", "-D"]
    row: dict[str, Any]

class GroupEpoch(Document):
    epoch: int
    changes: list[GroupChange]
    offsets: dict[str, dict[str, list[int]]] | None
    snapshot: str | None

class SideRow(Document):
    """A row of a side of a join, as the query reads it."""

    row: dict[str, Any]
    epoch: int
    offsets: dict[str, dict[str, list[int]]] | None

class JoinedRow(Document):
    """A joined row of a group: a row of each side, or of one if the other has no match."""

    weight: int
    rows: list[SideRow]

class Explained(Document):
    job: str
    epoch: int
    moved: int | None
    group: dict[str, Any]
    row: dict[str, Any] | None
    row_count: int | None
    changed: int | None
    withheld: bool
    hidden: bool
    closed: bool
    late: list[LateRow]
    written_ms: int | None
    arguments: list[dict[str, Any]]
    epochs: list[GroupEpoch]
    history_complete: bool
    why: list[str] | None
    joined: list[JoinedRow] | None
    joined_complete: bool | None

class Change(Document):
    op: Literal["+I", "-U", "+U", "-D"]
    epoch: int
    seq: int
    row: dict[str, Any]

class History(Document):
    epoch: int
    group: dict[str, Any]
    changes: list[Change]
    complete: bool

class DifferingGroup(Document):
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None

class Savepoint(Document):
    name: str
    epoch: int
    committed_at: str
    groups: int
    offsets: dict[str, dict[str, int]]

class Resent(Document):
    fixed: bool
    topic: str
    partition: int
    offset: int | None
    sent_at: str

class Quarantined(Document):
    id: str
    epoch: int
    source: str | None
    topic: str
    partition: int
    offset: int
    time: str | None
    reason: str
    path: str | None
    bytes: int
    cut: bool
    raw: str | None
    raw_base64: str | None
    replayed: Resent | None

class Operation(Document):
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

class AuditLogLine(Document):
    at: str
    who: str | None
    method: str
    path: str
    status: int

class TopicPartition(Document):
    first: int
    next: int
    rate: float | None

class Topic(Document):
    name: str
    records: int
    rate: float | None
    partitions: dict[str, TopicPartition]

class Topics(Document):
    connection: str
    known: int
    topics: list[Topic]
