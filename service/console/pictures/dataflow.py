"""Dataflow: the operators of a job as boxes and arrows, drawn from its plan.

    topic ──► decode ──► last images ──► filter ──► window ──► group and fold ──► having ──► table
                                                                                  topic ◄──────┘

Each box shows the SQL of its operator. Each arrow shows how many messages or rows passed it in the
newest epoch, if the epoch counted them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.aggregates import FUNCTIONS, ReadCost
from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.sql.printer import aggregate_sql, expression_sql, window_sql
from schemas.spec.job import JobSpec
from service.console.formatting import ELLIPSIS, count_of

WIDTH = 350
_TEXT_CHARACTERS = 44  # of a box's line: as wide as the box in the font of the style sheet
_TEXT_LINES_MAX = 4
_NODE_LINES_MAX = 12
_LINE = 17
_HEAD = 27
_FOOT = 9
_ARROW = 34


@dataclass(frozen=True, slots=True)
class TextLine:
    y: int
    text: str


@dataclass(frozen=True, slots=True)
class Node:
    """A box with its title and lines."""

    kind: str  # source, work, state or sink: its colour
    title: str
    text: str  # all lines, uncut
    y: int
    height: int
    lines: tuple[TextLine, ...]  # cut to the width of the box
    flow: str  # the label of the arrow above the box

    @property
    def arrow(self) -> int:
        """The y of the start of the arrow above the box."""
        return self.y - _ARROW


@dataclass(frozen=True, slots=True)
class Dataflow:
    nodes: tuple[Node, ...]
    height: int

    @property
    def description(self) -> str:
        """The picture as text, for screen readers."""
        return "; then ".join(f"{node.title}: {node.text}" for node in self.nodes)


def draw_dataflow(spec: JobSpec, plan: Plan, counters: Mapping[str, Any]) -> Dataflow:
    """Draw the dataflow of a job; `counters` are those of its newest epoch."""
    nodes: list[Node] = []
    y = 0
    for kind, title, lines, flow in _list_operators(spec, plan, counters):
        lines = [line for line in lines if line]
        cut = _cut_lines(lines)
        height = _HEAD + _LINE * len(cut) + (_FOOT if cut else 0)
        texts = tuple(TextLine(y + _HEAD + _LINE * (i + 1) - 5, text) for i, text in enumerate(cut))
        nodes.append(Node(kind, title, ", ".join(lines), y, height, texts, flow))
        y += height + _ARROW
    return Dataflow(tuple(nodes), y - _ARROW)


def _cut_lines(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        pieces = textwrap.wrap(line, _TEXT_CHARACTERS, subsequent_indent="  ") or [""]
        if len(pieces) > _TEXT_LINES_MAX:
            pieces = [*pieces[: _TEXT_LINES_MAX - 1], f"  {ELLIPSIS}"]
        found += pieces
    if len(found) > _NODE_LINES_MAX:
        found = [*found[: _NODE_LINES_MAX - 1], ELLIPSIS]
    return found


_Operator = tuple[str, str, list[str], str]  # kind, title, lines, flow


def _list_operators(spec: JobSpec, plan: Plan, counters: Mapping[str, Any]) -> list[_Operator]:
    def count(name: str, one: str) -> str:
        return count_of(int(counters[name]), one) if name in counters else ""

    source = spec.source
    used = ", ".join(f"{column.name} {column.type}" for column in plan.image)
    found: list[_Operator] = [
        ("source", "Topic", [", ".join(source.topics), f"connection {source.connection}"], ""),
        ("work", f"Decode {source.format}", [used], count("read", "message")),
    ]
    rows = count("rows", "row")
    if plan.primary_key:
        key = ", ".join(column.name for column in plan.primary_key)
        found.append(("state", "Keep the last image of each row", [f"by {key}"], rows))
        rows = ""
    if plan.where is not None:
        found.append(("work", "Filter", [expression_sql(plan.where)], rows))
        rows = ""
    if plan.window is not None:
        found.append(("work", "Window", [window_sql(plan.window), f"emits on {spec.emit}"], rows))
        rows = ""
    found.append(("state", "Fold", _describe_fold(spec, plan), rows))
    if plan.has_computed:
        found.append(("work", "Compute", _describe_compute(plan), ""))
    changes = count("changelog_rows", "changelog row")
    found.append(("state", "Table", ["changelog, accumulators, multisets, epochs"], changes))
    if spec.sink is not None:
        sink = spec.sink
        lines = [sink.topic, f"{sink.format}, {sink.delivery.replace('_', ' ')}"]
        found.append(("sink", "Topic", lines, changes))
    return found


def _describe_fold(spec: JobSpec, plan: Plan) -> list[str]:
    bounds = [each for each in plan.group if not isinstance(each.expression, WindowBound)]
    keys = ", ".join(expression_sql(each.expression) for each in bounds)
    windowed = "window" if plan.window is not None else ""
    group = ", ".join(filter(None, [keys, windowed]))
    lines = [f"group by {group}" if group else "one group for all rows"]
    for each in plan.aggregates:
        keeps = FUNCTIONS[each.function].read_cost is not ReadCost.CELLS or each.distinct
        more = " (keeps all values)" if keeps else ""
        lines.append(f"{aggregate_sql(plan, each)} AS {each.name}{more}")
    return [*lines, count_of(spec.state.buckets, "bucket")]


def _describe_compute(plan: Plan) -> list[str]:
    lines = [f"{expression_sql(each.expression, plan)} AS {each.name}" for each in plan.computed]
    if plan.having is not None:
        lines.append(f"having {expression_sql(plan.having, plan)}")
    return lines
