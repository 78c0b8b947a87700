"""Replay: a job on a list of steps, without Kafka and Delta.

    steps ──► decode ──► row expressions (Spark, once, only where there are any)
                  └────► windows ──► cut into bundles ──► Tally ──► changelog rows, watermarks,
                                                                    rejects, late rows

What a step may be is in README; what comes out is one JSON object a line. The way is the one of
the pipeline: the same decoders, the same Columns, the same fold; only the bundles are exact here
(`minibatch.size` rows, -U and +U counted as two), where a running job ends them at records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.in_memory import Bundle, Projected, Projection, Tally, plain_projection
from jobs.core.fold.rules import rules_of
from jobs.core.formats.registry import KeyedDecoder, MessageRules
from jobs.core.formats.row_fields import RefusedError, RowFields
from jobs.core.job.job_plan import plan_of
from jobs.core.job.window_rules import closing_of, window_problems
from jobs.core.plan.tree import Plan
from jobs.core.rows.dedupe import LastImages
from jobs.core.rows.windows import no_window, opened, opener, unopened
from jobs.core.sql.grouping_sets import numbered, numbered_rows
from jobs.core.sql.select import QueryError
from jobs.core.time.bundle_clocks import WATERMARK_MAX, EventTimeAssigner, ProcessingTimeAssigner
from jobs.core.values.change import Changes, ColumnGone, Decoded, Op, Rejected, Row
from jobs.core.values.json_values import Json, converter, renderer
from jobs.offline.steps import StepError, only_true, read_steps, whole
from schemas.spec.file import Problem, SpecError, load_spec
from schemas.spec.job import JobSpec

Output = dict[str, Any]

_KEYS = {  # what decides the kind of a step -> what else it may carry
    "message": {"key", "partition", "offset", "time"},
    "op": {"row", "partition", "offset", "time"},
    "clock": set[str](),
    "watermark": set[str](),
    "flush": set[str](),
}
_ROW = "__row"


class ReplayError(Exception):
    """The job would have stopped here; the message says why."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A decoded message, or a row that came decoded."""

    partition: int
    offset: int
    decoded: Decoded


@dataclass(frozen=True, slots=True)
class Passing:
    """Processing time that passes, in milliseconds."""

    ms: int


@dataclass(frozen=True, slots=True)
class InputWatermark:
    time: int


@dataclass(frozen=True, slots=True)
class Flush:
    pass


Step = Arrival | Passing | InputWatermark | Flush


def replay(
    spec: JobSpec | Mapping[str, Any] | Path | str,
    steps: Iterable[Mapping[str, Any] | str | bytes],
) -> Iterator[Output]:
    """Run a job over steps. `spec` as `load_spec` takes it; a step is a mapping or a line of JSON.

    SpecError, QueryError and StepError are the caller's mistakes; ReplayError means that the job
    itself would have stopped, after what was given out so far.
    """
    job = spec if isinstance(spec, JobSpec) else load_spec(spec)
    return _Replay(job).run(steps)


def main(spec_path: str, steps_path: str = "-") -> int:
    """`retally replay SPEC [STEPS]`: JSON lines in, JSON lines out; returns the exit code."""
    try:
        spec = load_spec(Path(spec_path))
        if steps_path == "-":
            _print_all(replay(spec, sys.stdin))
        else:
            with open(steps_path, encoding="utf-8") as lines:
                _print_all(replay(spec, lines))
    except (SpecError, QueryError, StepError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except ReplayError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _print_all(outputs: Iterable[Output]) -> None:
    for output in outputs:
        print(json.dumps(output, ensure_ascii=False))


class _Replay:
    """One run: what has arrived since the last cut, and where time stands."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.plan = plan_of(spec)
        if wrong := window_problems(spec, self.plan):
            problems = [Problem(".".join(keys), reason) for keys, reason in wrong.items()]
            raise SpecError("", problems)
        self.rows = _Rows(self.plan)
        self.images = LastImages(self.plan) if self.plan.primary_key else None
        self.closing = closing_of(spec, self.plan)
        self.bundle = Bundle()
        self.arrived = 0  # rows in the bundle; one row may be in several windows
        self.rejects: list[tuple[int, int, Rejected]] = []
        self.late: list[tuple[int, int, tuple[int, Row]]] = []
        self.now_ms = 0
        self.watermark: int | None = None
        self.clock = ProcessingTimeAssigner(spec.minibatch.latency_ms)
        interval = spec.minibatch.interval_ms
        self.event_clock = None if interval is None else EventTimeAssigner(interval)
        self._shown = _row_renderer(self.plan)

    def run(self, steps: Iterable[Mapping[str, Any] | str | bytes]) -> Iterator[Output]:
        arrived: Iterable[Step] = StepReader(self.spec, self.plan).read(steps)
        plan = self.rows.plan
        evaluated = Evaluated(plain_projection(plan))
        if evaluated.projection is None:
            arrived = list(arrived)
            changed = (row for step in arrived for row in self._evaluated(step))
            rows = dict.fromkeys(each for row in changed for each in self.rows.open(row))
            evaluated = evaluated_by_spark(self.spec.name, plan, rows)
        assert evaluated.projection is not None
        # The event clock's bundle is kept as rows here, so nothing in the state is withheld.
        rules = rules_of(self.spec.state, closing=self.closing)
        tally = Tally(self.plan, evaluated.projection, rules=rules)
        for step in arrived:
            match step:
                case Arrival():
                    yield from self._arrive(tally, step, evaluated)
                case Passing():
                    yield from self._pass(tally, step.ms)
                case InputWatermark():
                    yield from self._hear(tally, step.time)
                case Flush():
                    yield from self._end_bundle(tally)
        yield from self._end(tally)

    def _arrive(self, tally: Tally, step: Arrival, evaluated: Evaluated) -> Iterator[Output]:
        """Take a message whole or reject it whole; its rows may still end up in two bundles."""
        decoded = step.decoded
        if isinstance(decoded, ColumnGone):
            self._stop_without(decoded, step)
        elif isinstance(decoded, Rejected):
            self._reject(step, decoded)
        for row in self._evaluated(step):
            if (reason := self.rows.failure(row, evaluated)) is not None:
                named = zip(self.plan.used, row, strict=True)
                shown = ", ".join(f"{column.name} = {value!r}" for column, value in named)
                self._reject(step, Rejected(f"{reason}; the row is {shown}"))
                return
        assert evaluated.projection is not None
        for weight, row in self._derived(step):
            opened_rows = self.rows.open(row)
            if evaluated.projection(opened_rows[0]) is None:
                continue  # WHERE comes before the bundle, so its rows do not fill one
            if self.closing is not None:
                opened_rows = self.closing.still_open(opened_rows, self.watermark)
                if not opened_rows:
                    self.late.append((step.partition, step.offset, (weight, row)))
                    continue
            self.bundle.add(step.partition, step.offset, [(weight, each) for each in opened_rows])
            self.arrived += 1
            if self.arrived == self.spec.minibatch.size:
                yield from self._end_bundle(tally)

    def _evaluated(self, step: Step) -> Iterator[Row]:
        """The rows of a message that expressions are evaluated on: with dedupe, of a row that goes
        only the key may be there."""
        for sign, row in _changes(step):
            if self.images is None:
                yield row
            elif sign > 0:
                yield row[: len(self.plan.used)]

    def _derived(self, step: Step) -> Iterator[tuple[int, Row]]:
        """The signed rows that are folded."""
        for sign, row in _changes(step):
            if self.images is None:
                yield sign, row
            else:
                yield from self.images.derive(sign, row)

    def _pass(self, tally: Tally, ms: int) -> Iterator[Output]:
        """On the processing clock a mark ends the bundle, when it is due and not later; on the
        event clock time alone does nothing to it. Groups expire on the way."""
        until = self.now_ms + ms
        if self.event_clock is None and self.clock.next_timer <= until:
            yield from self._expire(tally, self.clock.next_timer)
            if self.clock.pass_time(self.now_ms) is not None:
                yield from self._end_bundle(tally)
        yield from self._expire(tally, until)
        if self.event_clock is None:
            self.clock.pass_time(until)

    def _expire(self, tally: Tally, until: int) -> Iterator[Output]:
        """Let time come to `until`, and groups end whose TTL passes on the way."""
        while (wakes_at := tally.wakes_at) is not None and wakes_at <= until:
            self.now_ms = max(self.now_ms, wakes_at)
            yield from self._told(tally.pass_time(self.now_ms).changelog)
        self.now_ms = until

    def _hear(self, tally: Tally, time: int) -> Iterator[Output]:
        """An input watermark. The event clock swallows those below its boundary, and with them
        the bundle goes on: its results are withheld."""
        on = time if self.event_clock is None else self.event_clock.watermark(time)
        if on is not None:
            yield from self._forward(tally, on)

    def _end(self, tally: Tally) -> Iterator[Output]:
        """The end of the input: what the event clock held back goes on before the maximum."""
        held = None if self.event_clock is None else self.event_clock.finish()
        if held is not None:
            yield from self._forward(tally, held)
        yield from self._forward(tally, WATERMARK_MAX)

    def _forward(self, tally: Tally, time: int) -> Iterator[Output]:
        """Results first, the watermark after; a lower one than the last goes no further."""
        yield from self._end_bundle(tally)
        if self.watermark is None or time > self.watermark:
            self.watermark = time
            if self.closing is not None:
                yield from self._told(tally.pass_time(self.now_ms, watermark=time).changelog)
            yield {"watermark": time}

    def _end_bundle(self, tally: Tally) -> Iterator[Output]:
        bundle, self.bundle = self.bundle, Bundle()
        arrived, self.arrived = self.arrived, 0
        rejects, self.rejects = self.rejects, []
        late, self.late = self.late, []
        for partition, offset, why in sorted(rejects, key=lambda reject: reject[:2]):
            place = {"partition": partition, "offset": offset}
            yield {"rejected": {"reason": why.reason, "path": why.path, **place}}
        for partition, offset, (weight, row) in sorted(late, key=lambda each: each[:2]):
            place = {"partition": partition, "offset": offset}
            yield {"late": {"row": self.rows.shown(row), "weight": weight, **place}}
        if arrived == 0:
            return
        folded = tally.fold(bundle.ranges(), self.now_ms, self.watermark)
        yield from self._told(folded.changelog)
        yield {"flushed": arrived}

    def _told(self, changelog: Iterable[ChangelogRow]) -> Iterator[Output]:
        for op, key, result in changelog:
            yield {"op": str(op), "row": self._shown(key, result)}

    def _reject(self, step: Arrival, why: Rejected) -> None:
        if self.spec.on_error == "fail":
            place = f"partition {step.partition} offset {step.offset}"
            raise ReplayError(
                f"{place}: {why.reason} at {why.path}. The job stops (on_error: fail)"
            )
        self.rejects.append((step.partition, step.offset, why))

    def _stop_without(self, gone: ColumnGone, step: Arrival) -> None:
        if self.spec.on_schema_change == "stop":
            place = f"partition {step.partition} offset {step.offset}"
            raise ReplayError(
                f"column {gone.column}: {gone.why} ({place}). The job stops (on_schema_change: "
                "stop); correct the source or the columns of the job, or say "
                "on_schema_change: continue"
            )


class _Rows:
    """Rows of used columns, and what they are to the Tally: with windows each is opened, and a row
    without any fails, unless WHERE removes it."""

    def __init__(self, plan: Plan) -> None:
        self.used = plan.used
        self._numbered = None if plan.grouping_sets == 1 else numbered_rows(plan)
        plan = plan if self._numbered is None else numbered(plan)
        self.window = window = plan.window
        self.plan = plan if window is None else opened(plan, window)
        self._windows_of = None if window is None else opener(plan, window)
        self._renderers = [(column.name, renderer(column.type)) for column in self.used]

    def open(self, row: Row) -> list[Row]:
        """The row once for each of its grouping sets and windows; once without one, too."""
        rows = [row] if self._numbered is None else self._numbered(row)
        if self._windows_of is None:
            return rows
        return [each for one in rows for each in self._windows_of(one) or [unopened(one)]]

    def failure(self, row: Row, evaluated: Evaluated) -> str | None:
        """Why the row fails, if it does."""
        opened_rows = self.open(row)
        for each in opened_rows:
            if each in evaluated.failures:
                return evaluated.failures[each]
        assert evaluated.projection is not None
        if self.window is None or opened_rows[0][-1] is not None:
            return None
        if evaluated.projection(opened_rows[0]) is None:
            return None
        is_null, out_of_range = no_window(self.window)
        return is_null if row[self.used.index(self.window.time)] is None else out_of_range

    def shown(self, row: Row) -> dict[str, Json]:
        """The row by its columns, as typed JSON."""
        named = zip(self._renderers, row, strict=True)
        return {name: render(value) for (name, render), value in named}


def _changes(step: Step) -> list[tuple[int, Row]]:
    if isinstance(step, Arrival) and isinstance(step.decoded, Changes):
        return step.decoded.changes
    return []


def _row_renderer(plan: Plan) -> Callable[[Row, Row], dict[str, Json]]:
    """How a changelog row is shown: the SELECT columns by name, as typed JSON."""
    places: dict[str, tuple[bool, int, Callable[[Any], Json]]] = {}
    for index, column in enumerate(plan.group):
        places[column.name] = (True, index, renderer(column.type))
    for index, (name, kind) in enumerate(plan.results):
        places[name] = (False, index, renderer(kind))
    picked = [(name, *places[name]) for name in plan.output]

    def shown(key: Row, result: Row) -> dict[str, Json]:
        return {
            name: render((key if of_group else result)[index])
            for name, of_group, index, render in picked
        }

    return shown


# --- steps ----------------------------------------------------------------------------------


class StepReader:
    """Reads steps: JSON, keys and values checked, messages and rows decoded."""

    def __init__(self, spec: JobSpec, plan: Plan) -> None:
        rules = MessageRules.of(spec)
        self._decoder = rules.decoder(plan.columns, plan.image)
        self._fields = RowFields(
            plan.columns,
            plan.image,
            lambda sql_type: converter(sql_type, spec.timestamp_format),
            missing_is_null=rules.missing_is_null,
        )
        self._next_offsets: dict[int, int] = {}

    def read(self, steps: Iterable[Mapping[str, Any] | str | bytes]) -> Iterator[Step]:
        return (step for _, step in read_steps(steps, _KEYS, self._step))

    def _step(self, kind: str, step: Mapping[str, Any]) -> Step:
        if kind == "clock":
            return Passing(whole(step, "clock", least=0))
        if kind == "watermark":
            return InputWatermark(whole(step, "watermark", least=-(2**63)))
        if kind == "flush":
            only_true(step, "flush")
            return Flush()
        if step.get("time") is not None:
            whole(step, "time", least=-(2**63))
        partition = whole(step, "partition", least=0, default=0)
        offset = whole(step, "offset", least=0, default=self._next_offsets.get(partition, 0))
        self._next_offsets[partition] = offset + 1
        decoded = self._message(step) if kind == "message" else self._row(step)
        return Arrival(partition, offset, decoded)

    def _message(self, step: Mapping[str, Any]) -> Decoded:
        value = _raw(step, "message", "the raw value of a record")
        key = _raw(step, "key", "the raw key of a record")
        if isinstance(self._decoder, KeyedDecoder):
            return self._decoder.decode_keyed(value, key)
        return self._decoder.decode(value)

    def _row(self, step: Mapping[str, Any]) -> Decoded:
        """A row that came decoded: its values are converted as those of a message are."""
        try:
            weight = Op(step["op"]).weight
        except ValueError:
            raise ValueError(f"op is {step['op']!r}; known are {', '.join(Op)}") from None
        row = step.get("row")
        if not isinstance(row, Mapping):
            raise ValueError("row is missing; an object of column names and values belongs there")
        try:
            values = self._fields.row(dict(row), "$.row")
        except RefusedError as error:
            return error.decoded
        return Changes([(weight, self._fields.pick(values))])


def _raw(step: Mapping[str, Any], name: str, what: str) -> bytes | None:
    value = step.get(name)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if value is not None and not isinstance(value, bytes):
        raise ValueError(f"{name} is {what}, as a string (or null)")
    return value


# --- row expressions ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What the row expressions give: the projection, and why some rows fail."""

    projection: Projection | None
    failures: Mapping[Row, str] = field(default_factory=dict)


def evaluated_by_spark(name: str, plan: Plan, rows: Iterable[Row]) -> Evaluated:
    """Evaluate distinct rows of used columns in one Spark job. Row expressions know nothing of
    other rows, so when and in which bundle a row comes does not matter."""
    import pyarrow as pa
    from pyspark.sql import types as T

    from jobs.edge.rows.columns import to_arrow
    from jobs.edge.spark.expressions import fallible, project, spark_type
    from jobs.edge.spark.session import session
    from schemas.types.arrow_values import from_arrow

    distinct = list(rows)
    if not distinct:
        return Evaluated(dict[Row, Projected | None]().__getitem__)
    columns = list(zip(*distinct, strict=True))
    arrays = [
        to_arrow(values, column.type) for values, column in zip(columns, plan.used, strict=True)
    ]
    numbers = pa.array(range(len(distinct)), pa.int64())
    table = pa.Table.from_arrays([numbers, *arrays], [_ROW, *(c.name for c in plan.used)])
    schema = T.StructType([T.StructField(_ROW, T.LongType())])
    for column in plan.used:
        schema.add(column.name, spark_type(column.type))
    frame = session(name).createDataFrame(table, schema)
    result = project(frame, plan, [_ROW]).toArrow()

    numbers_back = result[_ROW].to_pylist()
    group = [from_arrow(result[f"g{i}"], named.type) for i, named in enumerate(plan.group)]
    arguments = [from_arrow(result[f"a{i}"], named.type) for i, named in enumerate(plan.arguments)]
    failures = {}
    if fallible(plan):  # the reasons are the last column
        reasons = result.column(result.num_columns - 1).to_pylist()
        failing = zip(numbers_back, reasons, strict=True)
        failures = {distinct[number]: reason for number, reason in failing if reason is not None}
    projected: dict[Row, Projected | None] = dict.fromkeys(distinct)
    for at, number in enumerate(numbers_back):
        key = tuple(values[at] for values in group)
        projected[distinct[number]] = (key, tuple(values[at] for values in arguments))
    return Evaluated(projected.__getitem__, failures)
