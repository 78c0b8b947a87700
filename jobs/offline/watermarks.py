"""Watermarks: the time of a job on a list of steps.

    steps ──► marker (if there is one) ──► JobTime ──► watermarks, status, paused

Time starts at 0 and passes with `clock`, which emits every `emit_every`, as a running job does. If
there is a step `periodic`, only such steps emit. A partition is a number or a name. TOPIC/NAME is a
partition of that topic, any other name a partition of the first topic. docs/time.md has the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from jobs.core.formats.row_fields import RefusedError, RowFields
from jobs.core.job.time_rules import TimeRules
from jobs.core.plan.tree import Column
from jobs.core.rows.row_time import milliseconds_reader
from jobs.core.time.combine import Signal, Status
from jobs.core.values.change import ColumnGone, Row
from jobs.core.values.json_values import converter, renderer
from jobs.core.values.rounding import EvaluationError
from jobs.offline.replay_time import make_time
from jobs.offline.steps import (
    Lines,
    Output,
    StepError,
    check_whole,
    print_run,
    read_steps,
    read_whole,
    require_true,
)
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import TopicPartition
from schemas.types.json_types import JsonObject

Name = int | str  # of a partition

_KEYS = {  # the key of each kind of step -> its other keys
    "add": set[str](),
    "remove": set[str](),
    "event": {"row"},
    "clock": set[str](),
    "pause": set[str](),
    "resume": set[str](),
    "periodic": set[str](),
}
_NO_PARTITION = TopicPartition("", 0)


@dataclass(frozen=True, slots=True)
class Step:
    """One event of the job's time; a field that its kind does not have is empty."""

    kind: str
    topic_partition: TopicPartition = _NO_PARTITION
    name: Name = ""  # of the partition, as the steps call it
    number: int | None = None  # an event's time, or the milliseconds that pass
    row: Row | None = None  # what the marker reads


def watermarks(spec: JobSpec | Mapping[str, Any] | Path | str, steps: Lines) -> Iterator[Output]:
    """Run the time of a job on steps and yield its outputs.

    `spec` is what `load_spec` takes; a step is a mapping or a line of JSON. SpecError, QueryError
    and StepError are mistakes of the caller.
    """
    job = spec if isinstance(spec, JobSpec) else load_spec(spec)
    return _Watermarks(job).run(steps)


def main(spec_path: str, steps_path: str = "-") -> int:
    """Run `retally watermarks SPEC [STEPS]`; return the exit code."""

    def run(spec: JobSpec, lines: Lines) -> Iterator[Output]:
        return watermarks(spec, list(lines))

    return print_run(run, spec_path, steps_path)


def _read_ahead(
    steps: Iterator[tuple[int, Step]],
) -> tuple[list[tuple[int, Step]], Iterator[tuple[int, Step]]]:
    """Return the steps up to the first that cannot be read, and what raises its error."""
    found: list[tuple[int, Step]] = []
    try:
        found.extend(steps)
    except StepError as error:
        problem = error

        def fail() -> Iterator[tuple[int, Step]]:
            raise problem
            yield

        return found, fail()
    return found, iter(())


class _Watermarks:
    """One run: gives steps to the job's time, and converts its signals to outputs."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.time = make_time(spec)
        self.marks = {
            topic: Marks(alone, topic)
            for alone in spec.source_specs.values()
            for topic in alone.source.topics
        }
        self._emits_by_itself = False
        self._added = 0
        self._partitions: dict[Name, TopicPartition] = {}

    def run(self, steps: Lines) -> Iterator[Output]:
        names: dict[TopicPartition, Name] = {}
        read: Iterator[tuple[int, Step]] = read_steps(steps, _KEYS, self._read_step)
        if isinstance(steps, Sequence):  # an iterator may have to be answered step by step
            found, problem = _read_ahead(read)
            self._emits_by_itself = all(step.kind != "periodic" for _, step in found)
            read = chain(found, problem)
        if self._emits_by_itself:
            self.time.pass_time(0)
        for number, step in read:
            if step.kind == "add":
                names[step.topic_partition] = step.name
            paused = self.time.paused_by_alignment
            try:
                signals = self._take(step)
            except ValueError as error:
                raise StepError(f"step {number}: {error}") from error
            yield from map(_convert, signals)
            if self.time.paused_by_alignment != paused:
                now_paused = (names[partition] for partition in self.time.paused_by_alignment)
                yield {"paused": sorted(now_paused, key=lambda name: (isinstance(name, str), name))}

    def _take(self, step: Step) -> list[Signal]:
        match step.kind:
            case "add":
                return self.time.add(*step.topic_partition)
            case "remove":
                self.time.remove(*step.topic_partition)
            case "pause":
                self.time.pause(*step.topic_partition)
            case "resume":
                self.time.resume(*step.topic_partition)
            case "clock":
                return self._pass_time(self.time.now + (step.number or 0))
            case "periodic":
                return self.time.emit()
            case "event":
                marks = self.marks[step.topic_partition.topic]
                if not marks.counts(step.row):
                    return self.time.observe(*step.topic_partition, None, 1)
                marked, mark = marks.read_mark(step.row, step.number)
                row = marks.show(step.row)
                return self.time.observe_row(
                    *step.topic_partition, step.number, row, mark, marked=marked
                )
        return []

    def _pass_time(self, until: int) -> list[Signal]:
        """Let time pass; unless the steps say when to emit, emit as a running job does."""
        signals: list[Signal] = []
        if self._emits_by_itself:
            while (wakes_at := self.time.wakes_at) is not None and wakes_at <= until:
                signals += self.time.pass_time(wakes_at)
        self.time.advance(until)
        return signals

    # --- reading ----------------------------------------------------------------------------

    def _read_step(self, kind: str, step: Mapping[str, Any]) -> Step:
        if kind == "clock":
            return Step(kind, number=read_whole(step, kind, least=0))
        if kind == "periodic":
            require_true(step, kind)
            return Step(kind)
        if kind == "event":
            return self._read_event(step)
        name = _read_name(step[kind])
        partition = self._add_partition(name) if kind == "add" else self._find_partition(name)
        if kind == "remove":
            del self._partitions[name]
        return Step(kind, partition, name)

    def _read_event(self, step: Mapping[str, Any]) -> Step:
        event = step["event"]
        if not isinstance(event, list | tuple) or len(event) != 2:
            raise ValueError(f"event is {event!r:.80}; write [partition, time]")
        time = None if event[1] is None else check_whole("time", event[1], least=-(2**63))
        name = _read_name(event[0])
        partition = self._find_partition(name)
        row = self.marks[partition.topic].read_row(step.get("row"))
        return Step("event", partition, name, time, row)

    def _find_partition(self, name: Name) -> TopicPartition:
        if name not in self._partitions:
            raise ValueError(f"there is no partition {name}; add it first")
        return self._partitions[name]

    def _add_partition(self, name: Name) -> TopicPartition:
        """Return a new partition, also for a name that was removed before."""
        if name in self._partitions:
            raise ValueError(f"partition {name} was added before; remove it first")
        topics = self.spec.topics
        topic = next((each for each in topics if str(name).startswith(f"{each}/")), topics[0])
        self._partitions[name] = TopicPartition(topic, self._added)
        self._added += 1
        return self._partitions[name]


class Marks:
    """The marker of a topic with a punctuated watermark: which rows it marks.

    A running job takes a row on which the marker fails as unmarked; here that is an error.
    """

    def __init__(self, spec: JobSpec, topic: str) -> None:
        declared = tuple(Column(name, kind) for name, kind in spec.columns.items())
        rules = TimeRules.of(spec, topic, declared)
        parts = (rules.marker, rules.mark_time, rules.where)
        read = (column for part in parts if part is not None for column in part.columns)
        self._used = rules.declared or tuple(dict.fromkeys(read))
        self._marks = None if rules.marker is None else rules.marker.predicate(self._used)
        mark_time = rules.mark_time
        self._mark_time = None if mark_time is None else mark_time.reader(self._used)
        self._milliseconds = None if mark_time is None else milliseconds_reader(mark_time.type)
        self._counts = rules.counts(self._used)
        self._by_class = bool(rules.declared)
        self._fields = RowFields(
            self._used,
            self._used,
            lambda each: converter(each, spec.timestamp_format),
            missing_is_null=False,
        )

    def read_row(self, row: object) -> Row | None:
        """Return the columns of a step's row that the marker reads."""
        if row is not None and not isinstance(row, Mapping):
            raise ValueError("row is not an object of column names and values (strings or null)")
        if not self._used:
            return ()
        if row is None and self._marks is None and self._counts is None:
            return None  # a generator class may do without rows
        if row is None:
            what = "watermark.where" if self._marks is None else "the marker"
            raise ValueError(f"row is missing; {what} reads its columns")
        try:
            return self._fields.pick(self._fields.parse_row(dict(row), "$.row"))
        except RefusedError as error:
            refused = error.decoded
            if isinstance(refused, ColumnGone):
                raise ValueError(f"row has no {refused.column}, which the marker reads") from None
            raise ValueError(f"{refused.reason} at {refused.path}") from None

    def counts(self, row: Row | None) -> bool:
        """Return whether a row is for the generator."""
        return self._counts is None or row is None or self._counts(row)

    def show(self, row: Row | None) -> JsonObject:
        """Return a row as a generator class sees it."""
        if row is None or not self._by_class:
            return {}
        named = zip(self._used, row, strict=True)
        return {column.name: renderer(column.type)(value) for column, value in named}

    def read_mark(self, row: Row | None, time: int | None) -> tuple[bool, int | None]:
        """Return whether a row is a mark, and the time that the mark carries."""
        try:
            if self._marks is None or row is None or not self._marks(row):
                return False, None
            if self._mark_time is None or self._milliseconds is None:
                return True, time
            value = self._mark_time(row)
        except EvaluationError as failed:
            raise ValueError(f"the marker fails: {failed}") from failed
        return True, None if value is None else self._milliseconds(value)


def _read_name(name: object) -> Name:
    return name if isinstance(name, str) and name else check_whole("partition", name, least=0)


def _convert(signal: Signal) -> Output:
    return {"status": str(signal)} if isinstance(signal, Status) else {"watermark": signal}
