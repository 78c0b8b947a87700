"""Watermarks: the time part of a job on a list of steps.

    steps ──► marker (Spark, once, only where it reads columns) ──► JobTime ──► watermarks,
                                                                                status, paused

Time starts at 0 and passes with `clock`; the periodic emission comes with `periodic` and at no
other time, so that a list of steps says all that happens. A partition is a number or a name; one
that begins with a topic and a slash is that topic's, any other is the first topic's. What a step
may be is in docs/time.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.core.formats.row_fields import RefusedError, RowFields
from jobs.core.sql.marker import Marker
from jobs.core.sql.select import QueryError
from jobs.core.time.combine import Signal, Status
from jobs.core.time.job_time import JobTime, Place
from jobs.core.values.change import ColumnGone, Row
from jobs.core.values.json_values import converter
from jobs.core.values.rounding import Failed
from jobs.edge.process.generator_class import GeneratorRefused, maker_of
from jobs.offline.steps import Lines, StepError, only_true, read_steps, whole, whole_number
from schemas.spec.file import Problem, SpecError, load_spec
from schemas.spec.job import JobSpec

Output = dict[str, Any]
Name = int | str  # of a partition

_KEYS = {  # what decides the kind of a step -> what else it may carry
    "add": set[str](),
    "remove": set[str](),
    "event": {"row"},
    "clock": set[str](),
    "pause": set[str](),
    "resume": set[str](),
    "periodic": set[str](),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, to which partition (where it is one's), with what number."""

    kind: str
    place: Place = ("", 0)
    name: Name = ""  # of the partition, as the steps call it
    number: int | None = None  # an event's time, or the milliseconds that pass
    row: Row | None = None  # what the marker reads


def watermarks(spec: JobSpec | Mapping[str, Any] | Path | str, steps: Lines) -> Iterator[Output]:
    """Run the time of a job over steps. `spec` as `load_spec` takes it; a step is a mapping or a
    line of JSON. SpecError, QueryError and StepError are the caller's mistakes."""
    job = spec if isinstance(spec, JobSpec) else load_spec(spec)
    return _Watermarks(job).run(steps)


def main(spec_path: str, steps_path: str = "-") -> int:
    """`retally watermarks SPEC [STEPS]`: JSON lines in, JSON lines out; returns the exit code."""
    try:
        spec = load_spec(Path(spec_path))
        if steps_path == "-":
            _print_all(watermarks(spec, sys.stdin))
        else:
            with open(steps_path, encoding="utf-8") as lines:
                _print_all(watermarks(spec, lines))
    except (SpecError, QueryError, StepError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _print_all(outputs: Iterable[Output]) -> None:
    for output in outputs:
        print(json.dumps(output, ensure_ascii=False))


class _Watermarks:
    """One run: the job's time, and what reads the steps for it."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        try:
            make = maker_of(spec.watermark)
        except GeneratorRefused as refused:
            problem = Problem("watermark.generator.class", str(refused))
            raise SpecError("", [problem]) from refused
        self.time = JobTime(spec.watermark, spec.source.topics, make=make)
        self.marks = Marks(spec)
        self._added = 0
        self._places: dict[Name, Place] = {}

    def run(self, steps: Lines) -> Iterator[Output]:
        names: dict[Place, Name] = {}
        for number, step in read_steps(steps, _KEYS, self._step):
            if step.kind == "add":
                names[step.place] = step.name
            paused = self.time.aligned_out
            try:
                signals = self._take(step)
            except ValueError as error:
                raise StepError(f"step {number}: {error}") from error
            yield from map(_shown, signals)
            if self.time.aligned_out != paused:
                now_paused = (names[place] for place in self.time.aligned_out)
                yield {"paused": sorted(now_paused, key=lambda name: (isinstance(name, str), name))}

    def _take(self, step: Step) -> list[Signal]:
        match step.kind:
            case "add":
                return self.time.add(*step.place)
            case "remove":
                self.time.remove(*step.place)
            case "pause":
                self.time.pause(*step.place)
            case "resume":
                self.time.resume(*step.place)
            case "clock":
                self.time.advance(self.time.now + (step.number or 0))
            case "periodic":
                return self.time.emit()
            case "event":
                marked = step.number if self.marks.marked(step.row) else None
                return self.time.observe(*step.place, step.number, 1, marked)
        return []

    # --- reading ----------------------------------------------------------------------------

    def _step(self, kind: str, step: Mapping[str, Any]) -> Step:
        if kind == "clock":
            return Step(kind, number=whole(step, kind, least=0))
        if kind == "periodic":
            only_true(step, kind)
            return Step(kind)
        if kind == "event":
            return self._event(step)
        name = _name(step[kind])
        place = self._new_place(name) if kind == "add" else self._place(name)
        if kind == "remove":
            del self._places[name]
        return Step(kind, place, name)

    def _event(self, step: Mapping[str, Any]) -> Step:
        event = step["event"]
        if not isinstance(event, list | tuple) or len(event) != 2:
            raise ValueError(f"event is {event!r:.80}; [partition, time] belongs there")
        time = None if event[1] is None else whole_number("time", event[1], least=-(2**63))
        name = _name(event[0])
        return Step("event", self._place(name), name, time, self.marks.row(step.get("row")))

    def _place(self, name: Name) -> Place:
        if name not in self._places:
            raise ValueError(f"partition {name} is not there; add it first")
        return self._places[name]

    def _new_place(self, name: Name) -> Place:
        """A place of its own, also for a name that was there before and was removed."""
        if name in self._places:
            raise ValueError(f"partition {name} is there already")
        topics = self.spec.source.topics
        topic = next((each for each in topics if str(name).startswith(f"{each}/")), topics[0])
        self._places[name] = (topic, self._added)
        self._added += 1
        return self._places[name]


class Marks:
    """Which rows the marker of a punctuated watermark marks. Where a running job goes on without a
    mark, here it is said that the marker fails."""

    def __init__(self, spec: JobSpec) -> None:
        text = spec.watermark.marker
        marker = None if text is None else Marker.of(text, spec.columns)
        self._used = () if marker is None else marker.columns
        self._marks = None if marker is None else marker.marks(self._used)
        self._fields = RowFields(
            self._used,
            self._used,
            lambda each: converter(each, spec.timestamp_format),
            missing_is_null=False,
        )

    def row(self, row: object) -> Row:
        """The columns of a step's row that the marker reads; the others do not matter."""
        if row is not None and not isinstance(row, Mapping):
            raise ValueError("row is an object of column names and values, as strings or null")
        if not self._used:
            return ()
        if row is None:
            raise ValueError("row is missing; the marker reads columns of it")
        try:
            return self._fields.pick(self._fields.row(dict(row), "$.row"))
        except RefusedError as error:
            refused = error.decoded
            if isinstance(refused, ColumnGone):
                raise ValueError(f"row has no {refused.column}, which the marker reads") from None
            raise ValueError(f"{refused.reason} at {refused.path}") from None

    def marked(self, row: Row | None) -> bool:
        try:
            return self._marks is not None and row is not None and self._marks(row)
        except Failed as failed:
            raise ValueError(f"the marker fails: {failed}") from failed


def _name(name: object) -> Name:
    return name if isinstance(name, str) and name else whole_number("partition", name, least=0)


def _shown(signal: Signal) -> Output:
    return {"status": str(signal)} if isinstance(signal, Status) else {"watermark": signal}
