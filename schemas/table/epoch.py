"""The epoch row: offsets, time, counters and files of one commit, to continue from.

It is a row of the table (part=epochs), because Delta deletes the metadata of old commits. Nested
values are JSON text in the table, so that any engine can read them.

    counters, watermarks: as stored, unknown keys kept   ──► counts, time: the same, typed
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import msgspec

from schemas.table.snapshot import SNAPSHOT, SnapshotPart, SnapshotProgress
from schemas.table.view_path import is_seen, name_from, split_part
from schemas.types.json_types import JsonObject

FORMAT_VERSION = 4
OLDEST_FORMAT = 3  # without images; readable as it is
# Epochs of these kinds do not continue the state of the previous one.
RESTART_KINDS = ("rewind", "clone", "evolve")
_COMPUTED_KINDS = ("data", "time")

# The watermark of a drained job, in milliseconds: 9999-12-31 23:59:59.999, the last TIMESTAMP.
END_OF_TIME = 253_402_300_799_999

DUE_WORK = "agenda"  # the key of the due work in stored rows

Offsets = dict[str, dict[str, int]]  # topic -> partition (a JSON key, so text) -> next offset


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class TopicIdentity(msgspec.Struct, frozen=True):
    """Identifies a topic: if it is deleted and created again, its id changes."""

    id: str
    partitions: int


def name_topic(source: str, topic: str) -> str:
    """Return the name of a topic as one source reads it: two sources may read a topic."""
    return f"{source}:{topic}" if source else topic


class SeenMessage(NamedTuple):
    """A message that is recognised if its source sends it again."""

    es: int
    size: int  # without the digits of canal's `id`
    content: int  # see `number_message`


class SourceMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job remembers of the messages of a partition, to notice those that come again."""

    offset: int  # of the last message
    es: int  # the latest
    id: int | None = None  # of the last message
    seen: tuple[SeenMessage, ...] = ()  # the newest is last
    behind: int | None = None  # the offset at which the source went back, if not beyond `es` again
    counted: bool = False  # that it has repeated itself from there


class SourceRepeat(msgspec.Struct, frozen=True):
    """Where a source first began to send messages again, and how often it did so until now."""

    epoch: int
    topic: str
    partition: int
    offset: int
    count: int


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one epoch. A count that is missing in the row is 0, a gauge is None."""

    read: int = 0  # messages: decoded + skipped + filtered + quarantined
    decoded: int = 0
    skipped: int = 0
    filtered: int = 0
    quarantined: int = 0
    scanned: int = 0  # messages that the compiled scanner took; the others were decoded one by one
    rows: int = 0  # decoded rows; an UPDATE has two
    shipped: int = 0  # weighted rows that decode tasks sent, before WHERE
    groups_touched: int = 0  # groups that the epoch's rows or timers are of
    groups_in_arrays: int = 0  # of these, folded in arrays; the others were folded one by one
    rows_folded: int = 0  # weighted rows that tasks with state took: fold, joins, dedupe
    rows_caught_up: int = 0  # rows of state that these tasks read, because other hosts wrote them
    tasks_placed: int = 0  # tasks with state that had a home; 0 with one executor
    tasks_at_home: int = 0  # of these, those that ran there
    changelog_rows: int = 0
    expired_silently: int = 0
    unmatched_retractions: int = 0  # applied, but their values were never added
    dropped_retractions: int = 0  # came before any row of their group
    # In the state without a row, after the epoch: more rows were retracted than added.
    groups_below_zero: int = 0
    failing_rows: int = 0  # joined rows that count for nothing: an expression fails on them
    failing_reason: str | None = None
    duplicates: int = 0
    unknown_retractions: int = 0  # with dedupe: no image of their key was known
    keys_in_several_partitions: int = 0  # with dedupe: their changes have no order
    ambiguous_keys: int = 0  # with dedupe: a change may be a repeat, or from before a TRUNCATE
    doubtful_keys: list[str] = []  # some of both
    truncations: int = 0  # of the source's table, whose rows were retracted
    where_filtered: int = 0
    event_times_missing: int = 0
    damaged_texts: int = 0  # texts of rows with U+FFFD: the source has lost a character
    misfits: int = 0  # results that do not fit their type
    expired: int = 0  # groups
    closed: int = 0  # windows
    late: int = 0  # rows
    late_windows: int = 0  # windows of late rows; a row may be late for several
    begins: bool = False  # history starts with this epoch
    groups: int | None = None  # in the state, after the epoch
    images: int | None = None  # last images of rows, after the epoch
    moved: int | None = None  # the epoch in which an operator moved offsets
    began: Offsets = {}  # the first offsets of topics that the job has not read from its start
    sources: dict[str, tuple[str, ...]] = {}  # the topics of each, since an evolve with others
    rewound_to: int | None = None
    cloned: int | None = None  # the epoch of the old job that was cloned
    published: int | None = None  # the newest epoch in the topic when this one was committed
    event_lag_ms: int | None = None  # from the greatest time of a row to the commit
    appended_ms: int | None = None  # when the oldest record was appended to its topic
    # From there to publication, in milliseconds, by epoch: of epochs published since the last row.
    publish_latencies_ms: dict[str, int] = {}
    compute_seconds: float | None = None  # until the commit, including both of these
    decode_seconds: float | None = None  # the longest decode task
    fold_seconds: float | None = None  # the longest fold task
    phases_ms: dict[str, float] = {}
    dropped_keys: dict[str, int] = {}
    files: dict[str, str] = {}  # by directory: the last line that is read, by file and number
    source_repeats: int = 0  # messages at which the source begins to repeat itself
    source_repeated: SourceRepeat | None = None  # until now, in all epochs of this state
    source_memory: dict[str, SourceMemory] = {}  # by TOPIC/PARTITION
    keys_below_zero: list[str] = []  # groups that came below zero in this epoch
    snapshot: dict[str, SnapshotProgress] = {}  # of each source that has one
    snapshot_part: SnapshotPart | None = None  # that this epoch has read, instead of a topic

    def remember(
        self, source: str, partitions: Iterable[TopicPartition]
    ) -> tuple[SourceMemory | None, ...]:
        """Return what is remembered of the messages of each partition."""
        names = (f"{name_topic(source, each.topic)}/{each.partition}" for each in partitions)
        return tuple(map(self.source_memory.get, names))

    @property
    def messages_one_by_one(self) -> int:
        """The messages that were decoded one by one, not scanned."""
        return self.read - self.scanned


class PartitionSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The time of one partition, to continue from."""

    seen: int | None = None  # the greatest time of a row
    watermark: int | None = None
    own: JsonObject | None = None  # the state of an operator's generator
    silent_ms: int | None = None  # of its idleness timer; None until the first emission
    heard: bool = False  # it had records since the timer last looked
    heard_ms: int | None = None  # milliseconds since its last record
    idle: bool = False
    ahead: bool = False  # paused by alignment
    stopped: bool = False  # paused by an operator
    unread: bool = False  # the broker has unread records
    fresh: bool = False  # it had records since the clock last moved


class AlignmentSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The alignment of one topic."""

    told_ms: int  # milliseconds since the maximum was updated
    allowed: int | None = None  # the maximum that a watermark may have


class TopicSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The time of one topic and its partitions, by number (as text, because JSON keys are)."""

    watermark: int | None = None
    idle: bool = False
    emitted: int | None = None  # when its periodic watermark was emitted last
    alignment: AlignmentSnapshot | None = None
    behind: bool = False  # it does not count, until its watermark is not below the job's
    partitions: dict[str, PartitionSnapshot]


class TimeSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The time of a job, to continue from."""

    now: int
    combined: int | None = None
    status: str
    topics: dict[str, TopicSnapshot]


class HoldingPartition(msgspec.Struct, frozen=True, order=True):
    """A partition that the job's watermark waits for."""

    topic: str
    partition: int


class AssignerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The event clock: which watermark ends the next bundle."""

    current: int | None  # the highest input watermark
    given: int | None  # the last watermark that was emitted
    next: int


class DueWorkSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The driver's snapshot of work that will become due as time passes."""

    now: int = 0  # processing time
    emits: str | None = None  # "final" or "changes" if windows close
    passed: int | None = None  # the watermark up to which windows are emitted
    timers: dict[str, int] | None = None  # the first timer of each clock; None if unknown
    withheld: int = 0  # rows whose results are withheld
    ending: bool = False  # the bundle of the withheld results must end
    released: int | None = None  # the watermark up to which results are released
    assigner: AssignerSnapshot | None = None


class EpochTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time of the job when the epoch was committed; milliseconds since 1970."""

    combined: int | None = None  # the job's watermark
    status: str = "active"
    topics: dict[str, TopicSnapshot] = {}
    event_time_max: dict[str, int] = {}  # by TOPIC/PARTITION
    held_by: list[str] = []  # the partitions that the watermark waits for, as sentences
    holding: list[HoldingPartition] = []  # the same, as values
    due_work: DueWorkSnapshot | None = msgspec.field(name=DUE_WORK, default=None)
    truncations: list[list[int]] = []  # that `on_truncate: apply` must remember

    @property
    def ended(self) -> bool:
        """Whether the job was drained: no row with a time may follow."""
        return self.combined is not None and self.combined >= END_OF_TIME

    @property
    def next_window_at(self) -> int | None:
        """The watermark that the first open window waits for; None if no results wait."""
        if self.due_work is None or self.due_work.emits != "final":
            return None
        return (self.due_work.timers or {}).get("event")

    @property
    def published_watermark(self) -> int | None:
        """The watermark up to which the changelog has every result.

        Under the event clock it waits for withheld results; with windows, for windows that are not
        emitted yet.
        """
        bounds = [self.combined]
        if self.due_work is not None and self.due_work.assigner is not None:
            bounds.append(self.due_work.released)
        if self.due_work is not None and self.due_work.emits is not None:
            bounds.append(self.due_work.passed)
        elif self.due_work is not None and (timers := self.due_work.timers) and "event" in timers:
            bounds.append(timers["event"] - 1)  # of an operator's class, perhaps due
        known = [bound for bound in bounds if bound is not None]
        return min(known) if len(known) == len(bounds) else None


class ViewShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The entry of a view in an epoch row."""

    plan: str
    buckets: int | None = None  # rows of one query do not have it
    counters: JsonObject
    time: JsonObject = {}  # its due work


def store_due_work(due_work: DueWorkSnapshot | None) -> JsonObject:
    """Return due work as it is stored, in the time of a job or of a view."""
    return {} if due_work is None else {DUE_WORK: msgspec.to_builtins(due_work)}


class EpochRow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One epoch: its end offsets, its counters, and the files that it added."""

    epoch: int
    uuid: str
    generation: int
    # "start", "data" (a micro-batch), "time" (only time had passed), "rewind", "clone",
    # "evolve" (another query) or "offsets" (moved by an operator).
    kind: str
    committed_at: int  # microseconds since 1970
    plan: str  # the fingerprint of the state's plan
    offsets: Offsets
    topics: dict[str, TopicIdentity] = {}
    watermarks: JsonObject = {}  # as stored, see `time`
    counters: JsonObject = {}  # as stored, see `counts`
    files: dict[str, list[str]] = {}  # part -> names, relative to the table

    @cached_property
    def counts(self) -> Counters:
        return msgspec.convert(self.counters, Counters, strict=False)

    @cached_property
    def time(self) -> EpochTime:
        return msgspec.convert(self.watermarks, EpochTime)

    def of_view(self, view: str) -> EpochRow:
        """Return the row as of a job with this view only; "" is the job's own query.

        An epoch before the view was added has nothing of it.
        """
        views = self.shares
        if not view and (not views or view not in views):
            return self
        own = views.get(view, ViewShare(plan="", counters={"groups": 0}))
        kept = {name: count for name, count in self.counters.items() if name not in _OF_VIEWS}
        if refused := own.counters.get(REFUSED, 0):  # the other views have decoded them
            kept["quarantined"] = kept.get("quarantined", 0) + refused
            kept["decoded"] = kept.get("decoded", 0) - refused
        time = {name: value for name, value in self.watermarks.items() if name != DUE_WORK}
        files: dict[str, list[str]] = {}
        for part, names in self.files.items():
            owner, name = split_part(part)
            if is_seen(view, owner, name):
                files.setdefault(name, []).extend(name_from(each, view) for each in names)
        return msgspec.structs.replace(
            self,
            plan=own.plan,
            counters=kept | own.counters,
            watermarks=time | own.time,
            files=files,
        )

    def with_topics_of(self, newest: EpochRow) -> EpochRow:
        """Return this row of a job's start with the topics that it has read since."""
        began = newest.counts.began
        if not began:
            return self
        topics = {name: known for name, known in newest.topics.items() if name in began}
        offsets, topics = {**began, **self.offsets}, {**topics, **self.topics}
        return msgspec.structs.replace(self, offsets=offsets, topics=topics)

    @cached_property
    def shares(self) -> dict[str, ViewShare]:
        """The entry of each view; empty for a job with one query."""
        return msgspec.convert(self.counters.get(VIEWS, {}), dict[str, ViewShare])

    @property
    def all_shares(self) -> dict[str, ViewShare]:
        """Return `shares`; for a job with one query, those of this query."""
        if self.shares:
            return self.shares
        own = {name: count for name, count in self.counters.items() if name in _OF_VIEWS}
        # Which of these its expressions refused is not counted: any view might take them.
        refused = self.counts.quarantined + own.get(REFUSED_BEFORE, 0)
        counters = own | ({REFUSED_BEFORE: refused} if refused else {})
        return {"": ViewShare(plan=self.plan, counters=counters)}

    @property
    def refused(self) -> dict[str, int]:
        """The messages that each view has refused and another may have taken; without zeros."""
        names = (REFUSED, REFUSED_BEFORE, "quarantined")
        counted = {
            view: sum(share.counters.get(name, 0) for name in names)
            for view, share in self.all_shares.items()
        }
        return {view: count for view, count in counted.items() if count}

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views; empty for a job with one query."""
        return tuple(self.shares)

    @property
    def plans(self) -> dict[str, str]:
        """The fingerprint of the plan of each view."""
        return {name: own.plan for name, own in self.shares.items()} or {"": self.plan}

    @property
    def buckets(self) -> dict[str, int]:
        """The number of buckets of the state of each view; rows of one query do not have it.

        A view that was removed and added again may have its plan of before in other buckets.
        """
        return {name: own.buckets for name, own in self.shares.items() if own.buckets is not None}

    @property
    def watermark(self) -> int | None:
        return self.time.combined

    @property
    def commit_latency_ms(self) -> int | None:
        """The time from the append of its oldest record to its commit; None without records.

        It is at least 0: the clocks of a producer, a broker and the driver may differ.
        """
        appended = self.counts.appended_ms
        return None if appended is None else max(0, self.committed_at // 1_000 - appended)

    @property
    def groups(self) -> int:
        return self.counts.groups or 0

    @property
    def withholds(self) -> bool:
        """Whether results are withheld until the watermark ends their bundle."""
        return self.time.due_work is not None and self.time.due_work.withheld > 0

    @property
    def begins(self) -> bool:
        """Whether history starts here: the group columns changed, so no changelog leads here."""
        return self.counts.begins

    @property
    def fresh(self) -> bool:
        """Whether nothing was computed yet, so that there is no time to continue from."""
        # Every epoch with data or due work has watermarks; an operation keeps those it found.
        return self.kind == "start" or (self.kind not in _COMPUTED_KINDS and not self.watermarks)

    @property
    def replaces_state(self) -> bool:
        """Whether this epoch replaced the view's state; an audit then uses its counters alone.

        That is so after a replay, and after a rewind to an epoch that retention had removed.
        """
        restarts = self.kind in ("evolve", "rewind")
        return restarts and any(name in self.counters for name in AUDITED_COUNTERS)

    @property
    def moved(self) -> int | None:
        """The epoch in which an operator moved offsets; None if that no longer matters.

        From this epoch on, the results are not the query over the topic.
        """
        return self.counts.moved

    @property
    def repeated_counters(self) -> JsonObject:
        """The counters that every later epoch repeats."""
        names = ("moved", "began", "sources", SNAPSHOT)
        return {name: self.counters[name] for name in names if name in self.counters}

    def view_counters(self, view: str) -> dict[str, int]:
        """Return the counters of a view's state; an epoch that takes over this state repeats them.

        `groups` is not included, because such an epoch counts its groups itself.
        """
        below_zero = self.of_view(view).counts.groups_below_zero
        return {"groups_below_zero": below_zero} if below_zero else {}

    @property
    def state_counters(self) -> JsonObject:
        """The counters of the state of all views; an epoch that takes it over repeats them."""
        names = ("images", "failing_rows", "failing_reason")
        kept = {name: self.counters[name] for name in names if name in self.counters}
        return kept | self.repeated_counters | self.source_counters

    @property
    def source_counters(self) -> JsonObject:
        """What a job must remember of its source, to notice that the source repeats itself."""
        names = ("source_repeated", "source_memory")
        return {name: self.counters[name] for name in names if name in self.counters}


# By view, among the counters: the plan, the counters and the due work that are its own.
VIEWS = "views"
REFUSED = "refused"  # messages on which an expression of the view fails
# The same in epochs that are gone or of another job, and refusals of a job with one query.
REFUSED_BEFORE = "refused_before"
# Counters of errors of the source, which audits report.
RETRACTION_ERRORS = ("dropped_retractions", "unmatched_retractions")
# Counters of keys whose row `dedupe: pk` may have wrong.
DEDUPE_ERRORS = ("keys_in_several_partitions", "ambiguous_keys")
# What an audit must know of all epochs of a state; who takes over a state takes over their sums.
AUDITED_COUNTERS = (*RETRACTION_ERRORS, "late", "late_windows")
# Sums over all views, which a view has for itself.
_SUMS = """shipped where_filtered groups groups_touched groups_in_arrays changelog_rows
dropped_retractions unmatched_retractions groups_below_zero keys_below_zero misfits expired
expired_silently closed late late_windows fold_seconds dropped_keys begins"""
_OF_VIEWS = {VIEWS, REFUSED, REFUSED_BEFORE, *_SUMS.split()}
JSON_FIELDS = ("offsets", "topics", "watermarks", "counters", "files")
