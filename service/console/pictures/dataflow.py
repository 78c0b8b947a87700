"""Topology: the way of a row through a job, drawn from its plan.

    topic ──► decode ──► last images ──► filter ──► window ──► group and fold ──► having ──► table
                                                                                  topic ◄──────┘

Each step is a box with what it does in the words of the query, and each arrow has what went over it
in the newest epoch, where that was counted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.aggregates import FUNCTIONS, Reading
from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.sql.printer import aggregate_sql, expression_sql, window_sql
from schemas.spec.job import JobSpec
from service.console import words

WIDTH = 350
_TEXT_CHARACTERS = 44  # of a box's line: as wide as the box in the font of the style sheet
_TEXT_LINES_MAX = 4
_STEP_LINES_MAX = 12
_LINE = 17
_HEAD = 27
_FOOT = 9
_ARROW = 34


@dataclass(frozen=True, slots=True)
class TextLine:
    y: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A box. `said` are its lines, cut to its width; `whole` is all of it."""

    kind: str  # for its colour: source, work, state, sink
    title: str
    whole: str
    y: int
    height: int
    said: tuple[TextLine, ...]
    flow: str  # what came over the arrow above it

    @property
    def arrow(self) -> int:
        """Where that arrow begins."""
        return self.y - _ARROW


@dataclass(frozen=True, slots=True)
class Topology:
    steps: tuple[Step, ...]
    height: int

    @property
    def told(self) -> str:
        """The same for who does not see it."""
        return "; then ".join(f"{step.title}: {step.whole}" for step in self.steps)


def topology(spec: JobSpec, plan: Plan, counters: Mapping[str, Any]) -> Topology:
    steps: list[Step] = []
    y = 0
    for kind, title, lines, flow in _steps(spec, plan, counters):
        lines = [line for line in lines if line]
        cut = _cut(lines)
        height = _HEAD + _LINE * len(cut) + (_FOOT if cut else 0)
        said = tuple(TextLine(y + _HEAD + _LINE * (i + 1) - 5, text) for i, text in enumerate(cut))
        steps.append(Step(kind, title, ", ".join(lines), y, height, said, flow))
        y += height + _ARROW
    return Topology(tuple(steps), y - _ARROW)


def _cut(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        pieces = textwrap.wrap(line, _TEXT_CHARACTERS, subsequent_indent="  ") or [""]
        if len(pieces) > _TEXT_LINES_MAX:
            pieces = [*pieces[: _TEXT_LINES_MAX - 1], f"  {words.ELLIPSIS}"]
        found += pieces
    if len(found) > _STEP_LINES_MAX:
        found = [*found[: _STEP_LINES_MAX - 1], words.ELLIPSIS]
    return found


_Told = tuple[str, str, list[str], str]


def _steps(spec: JobSpec, plan: Plan, counters: Mapping[str, Any]) -> list[_Told]:
    def flow(name: str, one: str) -> str:
        return words.plural(int(counters[name]), one) if name in counters else ""

    source = spec.source
    used = ", ".join(f"{column.name} {column.type}" for column in plan.image)
    told: list[_Told] = [
        ("source", "Topic", [", ".join(source.topics), f"connection {source.connection}"], ""),
        ("work", f"Decode {source.format}", [used], flow("read", "message")),
    ]
    rows = flow("rows", "row")
    if plan.primary_key:
        key = ", ".join(column.name for column in plan.primary_key)
        told.append(("state", "Keep the last image of each row", [f"by {key}"], rows))
        rows = ""
    if plan.where is not None:
        told.append(("work", "Filter", [expression_sql(plan.where)], rows))
        rows = ""
    if plan.window is not None:
        told.append(("work", "Window", [window_sql(plan.window), f"told on {spec.emit}"], rows))
        rows = ""
    told.append(("state", "Fold", _folded(spec, plan), rows))
    if plan.computes:
        told.append(("work", "Compute", _computed(plan), ""))
    changes = flow("changelog_rows", "changelog row")
    told.append(("state", "Table", ["changelog, accumulators, multisets, epochs"], changes))
    if spec.sink is not None:
        sink = spec.sink
        lines = [sink.topic, f"{sink.format}, {sink.delivery.replace('_', ' ')}"]
        told.append(("sink", "Topic", lines, changes))
    return told


def _folded(spec: JobSpec, plan: Plan) -> list[str]:
    bounds = [each for each in plan.group if not isinstance(each.expression, WindowBound)]
    keys = ", ".join(expression_sql(each.expression) for each in bounds)
    windowed = "window" if plan.window is not None else ""
    group = ", ".join(filter(None, [keys, windowed]))
    lines = [f"group by {group}" if group else "one group for all rows"]
    for each in plan.aggregates:
        keeps = FUNCTIONS[each.function].reading is not Reading.CELLS or each.distinct
        more = " (keeps its values)" if keeps else ""
        lines.append(f"{aggregate_sql(plan, each)} AS {each.name}{more}")
    return [*lines, words.plural(spec.state.buckets, "bucket")]


def _computed(plan: Plan) -> list[str]:
    lines = [f"{expression_sql(each.expression, plan)} AS {each.name}" for each in plan.computed]
    if plan.having is not None:
        lines.append(f"having {expression_sql(plan.having, plan)}")
    return lines
