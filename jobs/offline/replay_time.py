"""The time of a replayed job: what its `watermark` section makes of the rows of each bundle.

    rows of a bundle ──► the greatest time, or each row in order ──┐ at the end of the bundle
    clock steps ───────────────────────────────────────────────────┴──► JobTime ──► watermarks

A bundle is what an epoch is in a running job, so the same classes get the same calls. Two things
differ: no broker tells whether more records wait, and time starts at 0, so `future_skew` has no
meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jobs.core.job.time_rules import MessagesInOrder, TimeRules
from jobs.core.plan.tree import Plan
from jobs.core.time.job_time import JobTime
from jobs.core.time.watermark_generators import latest_of
from jobs.core.values.change import Changes, Row
from jobs.edge.process.generator_class import ClassRefused, make_allowed, require_allowed
from schemas.spec.file import Problem, SpecError
from schemas.spec.job import JobSpec
from schemas.table.epoch import TopicPartition


@dataclass(slots=True)
class _Read:
    """What a bundle has read of one partition."""

    messages: int = 0
    latest: int | None = None
    in_order: MessagesInOrder | None = None


@dataclass(slots=True)
class _Message:
    """The message whose rows come next."""

    source: str
    topic_partition: TopicPartition
    time: int | None  # of the message, or of the step
    stamp: int | None = None  # of the record
    rows: list[Row] = field(default_factory=list)  # with the columns of times and marks


class _Topic:
    """How the times of a topic are read."""

    def __init__(self, spec: JobSpec, plan: Plan, topic: str) -> None:
        self.rules = TimeRules.of(spec, topic, plan.columns)
        self.row = (*plan.image, *self.rules.columns)
        self.row_time = self.rules.row_time(self.row)
        self.counts = self.rules.counts(self.row)
        self._message_time = replace(self.rules, where=None).message_time(self.row)

    def read_time(self, decoded: Changes, stamp: int | None) -> int | None:
        """Return the time of a message; `stamp` is that of its record."""
        time = None if self._message_time is None else self._message_time(decoded, stamp)
        return stamp if time is None and self.rules.source in ("es", "ts") else time


def has_strategy(spec: JobSpec) -> bool:
    """Return whether the user has written a watermark section."""
    sources = [spec] if spec.sources is None else spec.sources.values()
    return any("watermark" in each.model_fields_set for each in sources) or any(
        alone.source.watermark_of(topic) is not None
        for alone in spec.source_specs.values()
        for topic in alone.source.topics
    )


def make_time(spec: JobSpec) -> JobTime:
    """Return the time of a job; raise SpecError if a generator class is not allowed."""
    for path, section in spec.sections.items():
        try:
            require_allowed(section)
        except ClassRefused as refused:
            problem = Problem(".".join((*path, "generator", "class")), str(refused))
            raise SpecError("", [problem]) from refused
    return JobTime(spec.strategies, make=make_allowed)


class ReplayTime:
    """Follows the rows of a replay; gives the watermarks of a running job."""

    def __init__(
        self, spec: JobSpec, plans: Mapping[str, Plan], partitions: Collection[TopicPartition]
    ) -> None:
        """All partitions are known from the start, as in a running job; each topic has one.

        `plans` are those for decoding the sources."""
        specs = spec.source_specs
        self._topics = {
            (name, topic): _Topic(specs[name], plan, topic)
            for name, plan in plans.items()
            for topic in specs[name].source.topics
        }
        self._time = make_time(spec)
        silent = set(spec.topics) - {partition.topic for partition in partitions}
        for partition in sorted({*partitions, *(TopicPartition(topic, 0) for topic in silent)}):
            self._time.add(*partition)
        self._time.pass_time(0)
        self._read: dict[TopicPartition, _Read] = {}
        self._message = _Message("", TopicPartition("", 0), None)

    def arrive(
        self, source: str, partition: TopicPartition, decoded: Changes, stamp: int | None
    ) -> None:
        """Begin a message; `stamp` is the time of its step, of a record or where it has no own."""
        time = self._topics[source, partition.topic].read_time(decoded, stamp)
        rows = [row for _, row in reversed(decoded.changes)]
        self._message = _Message(source, partition, time, stamp, rows)
        self._observe(partition).messages += 1

    def take(self, sign: int, row: Row) -> int | None:
        """Take the next row of the message; return the watermark before it, if rows have one."""
        message = self._message
        read, topic = (
            self._observe(message.topic_partition),
            self._topics[message.source, message.topic_partition.topic],
        )
        full = message.rows.pop()
        time = message.time if topic.row_time is None else topic.row_time(full, message.stamp)
        if topic.counts is None or topic.counts(full):
            read.latest = latest_of(read.latest, time)
        if not topic.rules.in_order:
            return None
        if read.in_order is None:
            generator = make_allowed(topic.rules.watermark)
            start = self._time.start_of(*message.topic_partition)
            read.in_order = topic.rules.in_row_order(topic.row, generator, start, self._time.now)
        return read.in_order.take(sign, full, message.time, message.stamp)

    def end_bundle(self, now_ms: int) -> Iterator[int]:
        """Yield the watermarks after a bundle, as after an epoch."""
        read, self._read = self._read, {}
        if not read:
            return
        before = self._time.watermark
        for partition in sorted(read):
            found = read[partition]
            order = found.in_order
            state = None if order is None else order.rows.generator.snapshot()
            self._time.observe(*partition, found.latest, found.messages, state)
        self._time.pass_time(now_ms)
        self._time.emit()
        yield from self._list_new(before)

    def pass_time(self, now_ms: int) -> Iterator[int]:
        """Yield the watermarks of the periodic emissions up to now."""
        while (wakes_at := self._time.wakes_at) is not None and wakes_at <= now_ms:
            before = self._time.watermark
            self._time.pass_time(wakes_at)
            yield from self._list_new(before)
        self._time.advance(now_ms)

    def follow(self, topic: str, watermark: int) -> Iterator[int]:
        """Yield the watermarks that follow from that of the job which writes a topic."""
        before = self._time.watermark
        self._time.follow(topic, watermark, idle=False)
        yield from self._list_new(before)

    def _list_new(self, before: int | None) -> Iterator[int]:
        """Yield the watermark if it has changed; readers of a job see no step in between."""
        watermark = self._time.watermark
        if watermark is not None and watermark != before:
            yield watermark

    def _observe(self, partition: TopicPartition) -> _Read:
        return self._read.setdefault(partition, _Read())
