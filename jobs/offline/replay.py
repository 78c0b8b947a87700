"""Replay: a job on a list of steps, without Kafka and Delta.

    steps ──► decode ──► InMemoryJob ──► changelog rows, watermarks, rejected messages, late rows

docs/replay.md describes the steps. Each output is one JSON object a line. Decoders, expressions and
the fold are those of a running job.
"""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from jobs.core.formats.registry import MessageRules
from jobs.core.formats.row_fields import RefusedError, RowFields
from jobs.core.job.in_memory import (
    BundleEnd,
    Event,
    InMemoryJob,
    LateRowEvent,
    RejectedMessage,
    RowExpander,
    WatermarkEvent,
    list_evaluated_rows,
)
from jobs.core.job.job_plan import empty_row_problems, plan_of
from jobs.core.job.time_rules import TimeRules
from jobs.core.job.views import find_type_conflicts, plans_of, sources_of
from jobs.core.job.window_rules import window_problems
from jobs.core.plan.relations import list_scans
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Changes, ColumnGone, Decoded, Op, Rejected, Row, Truncated
from jobs.core.values.json_values import renderer
from jobs.edge.process.aggregate_class import require_aggregates
from jobs.edge.process.generator_class import ClassRefused
from jobs.edge.rows.join_inputs import JoinInputs
from jobs.offline.replay_time import ReplayTime, has_strategy
from jobs.offline.steps import Lines, Output, print_run, read_steps, read_whole, require_true
from jobs.reading.row_shape import RowShape
from schemas.spec.file import Problem, SpecError, load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import TopicPartition

_KEYS = {  # the key of each kind of step -> its other keys
    "message": {"key", "source", "topic", "partition", "offset", "time"},
    "op": {"row", "source", "topic", "partition", "offset", "time"},
    "clock": set[str](),
    "watermark": {"topic"},
    "flush": set[str](),
}


class ReplayError(Exception):
    """The job would stop here; the message says why."""


Position = tuple[str, TopicPartition, int]  # source, partition, offset


@dataclass(frozen=True, slots=True)
class Arrival:
    """A decoded message, or a decoded row, of one source."""

    source: str  # its name, if the job has several
    topic_partition: TopicPartition
    offset: int
    decoded: Decoded  # rows of the plan's columns
    timed: Changes | None = None  # the same with the columns of times and marks
    time: int | None = None

    @property
    def position(self) -> Position:
        return self.source, self.topic_partition, self.offset


@dataclass(frozen=True, slots=True)
class PassedTime:
    """Processing time passes, in milliseconds."""

    ms: int


@dataclass(frozen=True, slots=True)
class InputWatermark:
    """The job's watermark, or that of the job which writes a topic."""

    time: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Flush:
    pass


Step = Arrival | PassedTime | InputWatermark | Flush


def replay(spec: JobSpec | Mapping[str, Any] | Path | str, steps: Lines) -> Iterator[Output]:
    """Run a job on steps and yield its outputs.

    `spec` is what `load_spec` takes; a step is a mapping or a line of JSON. SpecError, QueryError
    and StepError are mistakes of the caller. ReplayError means that the job itself would stop after
    the outputs so far.
    """
    job = spec if isinstance(spec, JobSpec) else load_spec(spec)
    if job.views is None:
        return _Replay(job).run(steps)
    return _replay_views(job, list(steps))


def _replay_views(spec: JobSpec, steps: list[Any]) -> Iterator[Output]:
    """Yield the outputs of each view, one view after the other; the job's own query has view ""."""
    conflicts = find_type_conflicts(plans_of(spec))
    if conflicts:
        raise SpecError("", [Problem(f"views.{name}", why) for name, why in conflicts.items()])
    replays = {name: _Replay(view) for name, view in spec.view_specs.items()}
    joins = any(each.joins for each in replays.values())
    shared = {name for name, each in spec.source_specs.items() if joins or each.dedupe}
    if shared:  # views that share rows refuse the same messages
        found = (each.list_refused(name, steps, shared) for name, each in replays.items())
        refused = ChainMap(*found)
        for each in replays.values():
            each.refused = refused
    for name, each in replays.items():
        for output in each.run(steps):
            yield {"view": name, **output}


def main(spec_path: str, steps_path: str = "-") -> int:
    """Run `retally replay SPEC [STEPS]`; return the exit code."""
    try:
        return print_run(replay, spec_path, steps_path)
    except ReplayError as error:
        print(error, file=sys.stderr)
        return 1


class _Replay:
    """One run: gives steps to an in-memory job, and converts its events to outputs."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.plan = plan_of(spec)
        if wrong := window_problems(spec, self.plan) | empty_row_problems(spec, self.plan):
            problems = [Problem(".".join(keys), reason) for keys, reason in wrong.items()]
            raise SpecError("", problems)
        try:
            require_aggregates(spec)
        except ClassRefused as refused:
            raise SpecError("", [Problem("functions", str(refused))]) from refused
        self.rows = RowExpander(self.plan)
        self._time: ReplayTime | None = None
        self.refused: Mapping[Position, Rejected] = {}  # by another view
        self._plans, relation = sources_of(spec, self.plan), self.plan.relation
        self.joins = None if relation is None else JoinInputs(self.plan, self._plans)
        self._reads = {self.plan.source}
        if relation is not None:
            self._reads = {scan.source for scan in list_scans(relation)}
        self._shape = RowShape(self.plan)
        self._columns = [(column.name, renderer(column.type)) for column in self.plan.used]

    def run(self, steps: Lines) -> Iterator[Output]:
        arrived: Iterable[Step] = StepReader(self.spec, self._plans).read(steps)
        time = None
        if has_strategy(self.spec):
            arrived = list(arrived)
            time = self._time = _make_time(self.spec, self._plans, arrived)
        job = InMemoryJob(
            self.spec,
            self.plan,
            self.rows,
            joins=self.joins,
            bundle_rows=self.spec.minibatch.size,
            time=time,
        )
        for step in arrived:
            yield from map(self._convert, self._take(job, step))
        yield from map(self._convert, job.end())

    def _take(self, job: InMemoryJob, step: Step) -> Iterator[Event]:
        match step:
            case Arrival():
                if self._time is not None and step.timed is not None:
                    self._time.arrive(step.source, step.topic_partition, step.timed, step.time)
                is_read = step.source in self._reads
                why = self._find_reason(step) if is_read else None
                if is_read and why is None:
                    decoded, at = step.decoded, (step.topic_partition, step.offset)
                    if isinstance(decoded, Truncated) and decoded.es is not None:
                        return job.truncate(*at, decoded.es, decoded.ts, step.source)
                    source_time = decoded.es if isinstance(decoded, Changes) else None
                    return job.take(*at, _list_changes(step), source_time, step.source)
                if why is not None and self.spec.on_error == "fail":
                    raise ReplayError(
                        f"{_name_message(step)}: {why.reason} at {why.path}. The job stops "
                        "(on_error: fail)"
                    )
                if self._time is not None:  # a message that was decoded counts for the time
                    for sign, row in _list_changes(step):
                        self._time.take(sign, row)
                if why is not None:
                    job.reject(step.topic_partition, step.offset, why, step.source)
                return iter(())
            case PassedTime():
                return job.pass_time(step.ms)
            case InputWatermark():
                if step.topic is None:
                    return job.observe_watermark(step.time)
                return self._follow(job, step.topic, step.time)
            case Flush():
                return job.end_bundle()

    def _follow(self, job: InMemoryJob, topic: str, watermark: int) -> Iterator[Event]:
        """Take the watermark of the job that writes a topic, after the rows that it covers."""
        yield from job.end_bundle()
        assert self._time is not None
        for time in self._time.follow(topic, watermark):
            yield from job.observe_watermark(time)

    def _find_reason(self, step: Arrival) -> Rejected | None:
        """Return why a message is rejected, or None. It is rejected or taken as a whole."""
        if isinstance(step.decoded, ColumnGone):
            self._stop_without(step.decoded, step)
        if isinstance(step.decoded, Truncated):
            rule = self.spec.source_specs[step.source].on_truncate
            if rule == "quarantine":
                return step.decoded.rejected
            if rule == "stop":
                raise ReplayError(step.decoded.why_stopped(_name_message(step)))
            if step.decoded.es is None:
                raise ReplayError(step.decoded.why_untimed(_name_message(step)))
            return None
        if isinstance(step.decoded, Rejected):
            return step.decoded
        known = self.refused.get(step.position)
        return known or self._find_failure(step)

    def list_refused(
        self, view: str, steps: list[Any], sources: Collection[str]
    ) -> dict[Position, Rejected]:
        """Return the messages of sources on whose rows an expression fails, with the reasons."""
        arrived = StepReader(self.spec, self._plans).read(steps)
        arrivals = (each for each in arrived if isinstance(each, Arrival))
        found = ((each, self._find_failure(each)) for each in arrivals if each.source in sources)
        named = f"view {view}: " if view else ""
        return {
            step.position: Rejected(named + why.reason) for step, why in found if why is not None
        }

    def _find_failure(self, step: Arrival) -> Rejected | None:
        """Return why an expression fails on a row of a message, or None."""
        if step.source not in self._reads:
            return None
        plan, joins = self._plans[step.source], self.joins
        for row in list_evaluated_rows(plan, _list_changes(step)):
            reason = self.rows.failure(row) if joins is None else joins.failure(step.source, row)
            if reason is not None:
                named = zip(plan.used, row, strict=True)
                shown = ", ".join(f"{column.name} = {value!r}" for column, value in named)
                return Rejected(f"{reason}; the row is {shown}")
        return None

    def _stop_without(self, column: ColumnGone, step: Arrival) -> None:
        if self.spec.on_schema_change == "stop":
            raise ReplayError(
                f"column {column.column}: {column.why} ({_name_message(step)}). The job stops "
                "(on_schema_change: stop); correct the source or the columns of the job, or set "
                "on_schema_change: continue"
            )

    def _locate(self, event: RejectedMessage | LateRowEvent) -> dict[str, str | int]:
        """Return where a message is; with its topic if the job reads several."""
        topic = {"topic": event.topic_partition.topic} if len(self.spec.topics) > 1 else {}
        return {**topic, "partition": event.topic_partition.partition, "offset": event.offset}

    def _convert(self, event: Event) -> Output:
        """Return an event as the JSON object of a line."""
        match event:
            case WatermarkEvent():
                return {"watermark": event.time}
            case BundleEnd():
                return {"flushed": event.rows}
            case RejectedMessage():
                reason = {"reason": event.why.reason, "path": event.why.path}
                source = {"source": event.source} if event.source else {}
                return {"rejected": {**reason, **source, **self._locate(event)}}
            case LateRowEvent():
                named = zip(self._columns, event.row, strict=True)
                row = {name: render(value) for (name, render), value in named}
                return {"late": {"row": row, "weight": event.weight, **self._locate(event)}}
        op, key, result = event
        return {"op": str(op), "row": self._shape.row(key, result)}


def _make_time(spec: JobSpec, plans: Mapping[str, Plan], steps: list[Step]) -> ReplayTime | None:
    """Return the time of a replay; None if the steps themselves give the watermarks."""
    if any(isinstance(step, InputWatermark) and step.topic is None for step in steps):
        return None
    return ReplayTime(
        spec, plans, {step.topic_partition for step in steps if isinstance(step, Arrival)}
    )


def _name_message(step: Arrival) -> str:
    return f"partition {step.topic_partition.partition} offset {step.offset}"


def _list_changes(step: Step) -> list[tuple[int, Row]]:
    if isinstance(step, Arrival) and isinstance(step.decoded, Changes):
        return step.decoded.changes
    return []


# --- steps ----------------------------------------------------------------------------------


class StepReader:
    """Reads steps: checks keys and values, decodes messages and rows.

    A message is one step for each source of its topic; `plans` are those for decoding the sources.
    """

    def __init__(self, spec: JobSpec, plans: Mapping[str, Plan]) -> None:
        self._spec, self._strategies = spec, spec.strategies
        self._columns = {name: len(plan.image) for name, plan in plans.items()}
        specs = spec.source_specs
        self._readers = {
            (name, topic): _TopicReader(specs[name], plan, topic)
            for name, plan in plans.items()
            for topic in specs[name].source.topics
        }
        self._next_offsets: dict[TopicPartition, int] = {}

    def read(self, steps: Lines) -> Iterator[Step]:
        found = (found for _, found in read_steps(steps, _KEYS, self._read_step))
        return chain.from_iterable(found)

    def _read_step(self, kind: str, step: Mapping[str, Any]) -> Sequence[Step]:
        if kind == "clock":
            return [PassedTime(read_whole(step, "clock", least=0))]
        if kind == "watermark":
            watermark = read_whole(step, "watermark", least=-(2**63))
            return [InputWatermark(watermark, self._read_followed(step))]
        if kind == "flush":
            require_true(step, "flush")
            return [Flush()]
        time = step.get("time")
        if time is not None:
            time = read_whole(step, "time", least=-(2**63))
        topic = self._read_topic(step)
        partition = TopicPartition(topic, read_whole(step, "partition", least=0, default=0))
        offset = read_whole(step, "offset", least=0, default=self._next_offsets.get(partition, 0))
        self._next_offsets[partition] = offset + 1
        arrivals = []
        for source in self._read_sources(step, topic, kind):
            reader = self._readers[source, topic]
            decoded = reader.decode_message(step) if kind == "message" else reader.decode_row(step)
            if not isinstance(decoded, Changes):
                arrivals.append(Arrival(source, partition, offset, decoded))
                continue
            columns = self._columns[source]
            changes = [(sign, row[:columns]) for sign, row in decoded.changes]
            own = Changes(changes, decoded.es, decoded.ts)
            arrivals.append(Arrival(source, partition, offset, own, decoded, time))
        return arrivals

    def _read_topic(self, step: Mapping[str, Any]) -> str:
        """Return the topic of a step; if it names none, the first one of its source or the job."""
        topics, source = self._spec.topics, step.get("source")
        if source is not None:
            of_sources = self._spec.topics_by_source
            if source not in of_sources or not source:
                known = ", ".join(of_sources) or "no source, because the job has one"
                raise ValueError(
                    f"source is {source!r:.80}, which the job does not have; use {known}"
                )
            topics = of_sources[source]
        topic = step.get("topic", topics[0])
        if topic not in topics:
            known = ", ".join(topics)
            raise ValueError(f"topic is {topic!r:.80}, which the job does not read; use {known}")
        return str(topic)

    def _read_sources(self, step: Mapping[str, Any], topic: str, kind: str) -> Sequence[str]:
        """Return the sources of a step: the one that it names, or all of its topic."""
        if (source := step.get("source")) is not None:
            return [source]
        sources = self._spec.sources_of(topic)
        if kind == "op" and len(sources) > 1:
            raise ValueError(f"the row is of one source of topic {topic}; add source: {sources[0]}")
        return sources

    def _read_followed(self, step: Mapping[str, Any]) -> str | None:
        """Return the topic whose job has the watermark of a step; None if it is the job's own."""
        if "topic" not in step:
            return None
        topic = self._read_topic(step)
        if self._strategies[topic].follows is None:
            raise ValueError(
                f"topic {topic} has a watermark of its own; remove the step's topic, or write "
                "from: progress in its watermark section"
            )
        return topic


class _TopicReader:
    """Decodes the messages and rows of one topic, with the columns of their times and marks."""

    def __init__(self, spec: JobSpec, plan: Plan, topic: str) -> None:
        rules = MessageRules.of(spec)
        row = (*plan.image, *TimeRules.of(spec, topic, plan.columns).columns)
        self._decoder = rules.decoder(plan.columns, row)
        self._fields = RowFields(
            tuple(dict.fromkeys((*plan.columns, *plan.image))),  # the latter with metadata
            row,
            rules.text_converter(),
            missing_is_null=rules.missing_is_null,
        )

    def decode_message(self, step: Mapping[str, Any]) -> Decoded:
        value = _encode(step, "message", "the raw value of a record")
        key = _encode(step, "key", "the raw key of a record")
        return self._decoder.decode(value, key)

    def decode_row(self, step: Mapping[str, Any]) -> Decoded:
        """Convert the values of a row as the decoder of a message does."""
        try:
            weight = Op(step["op"]).weight
        except ValueError:
            raise ValueError(f"op is {step['op']!r}; write one of {', '.join(Op)}") from None
        row = step.get("row")
        if not isinstance(row, Mapping):
            raise ValueError("row is missing; write an object of column names and values")
        try:
            values = self._fields.parse_row(dict(row), "$.row")
        except RefusedError as error:
            return error.decoded
        return Changes([(weight, self._fields.pick(values))])


def _encode(step: Mapping[str, Any], name: str, what: str) -> bytes | None:
    value = step.get(name)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if value is not None and not isinstance(value, bytes):
        raise ValueError(f"{name} is {what}, as a string (or null)")
    return value
