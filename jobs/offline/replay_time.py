"""The time of a replayed job: what its `watermark` section makes of the rows of each bundle.

    rows of a bundle ──► the greatest time, or each row in order ──┐ at the end of the bundle
    clock steps ───────────────────────────────────────────────────┴──► JobTime ──► watermarks

A bundle is what an epoch is in a running job, so the same classes get the same calls. Two things
differ: no broker tells whether more records wait, and time starts at 0, so `future_skew` has no
meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from jobs.core.job.time_rules import MessagesInOrder, TimeRules
from jobs.core.plan.tree import Plan
from jobs.core.time.combine import Status
from jobs.core.time.job_time import JobTime
from jobs.core.time.watermark_generators import latest_of
from jobs.core.values.change import Changes, Row
from jobs.edge.process.generator_class import GeneratorRefused, load_maker, make_in_task
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

    place: TopicPartition
    time: int | None  # of the message, or of the step
    rows: list[Row] = field(default_factory=list)  # with the columns of times and marks


class ReplayTime:
    """Follows the rows of a replay; gives the watermarks of a running job."""

    def __init__(self, spec: JobSpec, plan: Plan, partitions: Collection[int]) -> None:
        """All partitions are known from the start, as they are in a running job."""
        try:
            make_custom = load_maker(spec.watermark)
        except GeneratorRefused as refused:
            problem = Problem("watermark.generator.class", str(refused))
            raise SpecError("", [problem]) from refused
        self.rules = TimeRules.of(spec, plan.columns)
        self._row = (*plan.image, *self.rules.columns)
        self._row_time = self.rules.row_time(self._row)
        self._message_time = self.rules.message_time(self._row)
        self._topic = spec.source.topics[0]
        self._time = JobTime(spec.watermark, (self._topic,), make_custom=make_custom)
        for partition in sorted(partitions):
            self._time.add(self._topic, partition)
        self._time.pass_time(0)
        self._read: dict[TopicPartition, _Read] = {}
        self._message = _Message(TopicPartition(self._topic, 0), None)

    def arrive(self, partition: int, decoded: Changes, stamp: int | None) -> None:
        """Begin a message; `stamp` is the time of its step, of a record or where it has no own."""
        place = TopicPartition(self._topic, partition)
        read = self._message_time
        if self.rules.source == "kafka":
            time = stamp
        else:
            time = None if read is None else read(decoded, None)
            if time is None and self.rules.source in ("es", "ts"):
                time = stamp
        self._message = _Message(place, time, [row for _, row in reversed(decoded.changes)])
        self._observe(place).messages += 1

    def take(self, sign: int, row: Row) -> int | None:
        """Take the next row of the message; return the watermark before it, if rows have one."""
        message = self._message
        read = self._observe(message.place)
        full = message.rows.pop()
        time = message.time if self._row_time is None else self._row_time(full)
        read.latest = latest_of(read.latest, time)
        if not self.rules.in_order:
            return None
        if read.in_order is None:
            generator = make_in_task(self.rules.watermark)
            start = self._time.start_of(*message.place)
            read.in_order = self.rules.in_row_order(self._row, generator, start, self._time.now)
        return read.in_order.take(sign, full, message.time)

    def end_bundle(self, now_ms: int) -> Iterator[int]:
        """Yield the watermarks after a bundle, as after an epoch."""
        read, self._read = self._read, {}
        if not read:
            return
        before = self._time.watermark
        for place in sorted(read):
            found = read[place]
            order = found.in_order
            state = None if order is None else order.rows.generator.snapshot()
            self._time.observe(*place, found.latest, found.messages, state)
        self._time.pass_time(now_ms)
        self._time.emit()
        after = self._time.watermark
        if after is not None and after != before:
            yield after

    def pass_time(self, now_ms: int) -> Iterator[int]:
        """Yield the watermarks of the periodic emissions up to now."""
        while (wakes_at := self._time.wakes_at) is not None and wakes_at <= now_ms:
            for signal in self._time.pass_time(wakes_at):
                if not isinstance(signal, Status):
                    yield signal
        self._time.advance(now_ms)

    def _observe(self, place: TopicPartition) -> _Read:
        return self._read.setdefault(place, _Read())
