"""Dataflow: the nodes of a job's plan as boxes and arrows.

    topic ──► watermark ──► mini-batch ──► ... ──► fold ──► having ──► table ──► topic

Each box shows attributes of its node. Each arrow shows how many messages or rows passed it in the
newest epoch, if the epoch counted them. The sources of a join are chains below each other; a line
beside the boxes leads from the end of one chain to the join. A long picture is in parts, which are
beside each other where there is room.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import Formatter
from typing import Any

from jobs.core.job.plan_nodes import list_nodes
from jobs.core.plan.tree import Plan
from schemas.documents.answers import PlanNode
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
_ASIDE = 10  # how far left of the boxes a line goes around them
_PARTS = 3  # beside each other, on a wide screen
_PART_MIN = 260  # the height below which a part is not ended


@dataclass(frozen=True, slots=True)
class Box:
    """How nodes of one type are drawn; a line is left out if an attribute in it is not used."""

    kind: str  # source, work, state or sink: its colour
    title: str
    lines: tuple[str, ...]


_BOXES = {
    "TableSourceScan": Box(
        "source",
        "Topic",
        (
            "{source} AS {alias}",
            "{topics}",
            "connection {connection}",
            "{format}: {fields}",
            "database {database}",
            "table {table}",
        ),
    ),
    "WatermarkAssigner": Box(
        "work",
        "Watermark",
        (
            "{topics}",
            "{strategy}",
            "a partition is idle after {idle_after}",
            "aligned in group {align_group}, up to {max_drift} apart",
        ),
    ),
    "Join": Box("state", "Join", ("{join_type}", "on {where}")),
    "MiniBatchAssigner": Box(
        "work", "Mini-batch", ("{mode}", "ends at the first of: {ends_bundle}")
    ),
    "LocalGroupAggregate": Box("work", "Add up equal rows", ("{group_by}",)),
    "ChangelogNormalize": Box("state", "Keep the last image of each row", ("by {key}",)),
    "WindowAssigner": Box(
        "work",
        "Window",
        (
            "{window} over {time}",
            "size {size}",
            "slide {slide}",
            "step {step}",
            "offset {offset}",
            "gap {gap}",
            "emit: {emit}",
            "open for {allowed_lateness} after its end",
        ),
    ),
    "Expand": Box("work", "Grouping sets", ("{sets}",)),
    "Calc": Box("work", "Compute", ("{select}", "where {where}")),
    "Exchange": Box("work", "Shuffle", ("{distribution}, {buckets} buckets",)),
    "GlobalGroupAggregate": Box("state", "Fold", ("group by {group_by}", "expires after {ttl}")),
    "DeltaTable": Box("state", "Table", ("history of {retention}", "mirror every {mirror}")),
    "Sink": Box("sink", "Topic", ("{topic}", "{format}, {delivery}")),
}
_FLOWS = {  # the counter of an epoch that is the label of the arrow to a node
    "watermark": ("read", "message"),
    "local": ("rows", "row"),
    "key-exchange": ("rows", "row"),
    "aggregate": ("shipped", "row"),
    "table": ("changelog_rows", "changelog row"),
    "sink": ("changelog_rows", "changelog row"),
}


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
    arrows: str  # the path of the arrows to the box
    flow: str  # the label of the arrow above the box


@dataclass(frozen=True, slots=True)
class Part:
    """Boxes below each other."""

    nodes: tuple[Node, ...]

    @property
    def height(self) -> int:
        return self.nodes[-1].y + self.nodes[-1].height


@dataclass(frozen=True, slots=True)
class Dataflow:
    parts: tuple[Part, ...]

    @property
    def nodes(self) -> list[Node]:
        return [node for part in self.parts for node in part.nodes]

    @property
    def description(self) -> str:
        """The picture as text, for screen readers."""
        return "; then ".join(f"{node.title}: {node.text}" for node in self.nodes)


def draw_dataflow(spec: JobSpec, plan: Plan, counters: Mapping[str, Any]) -> Dataflow:
    """Draw the dataflow of a job; `counters` are those of its newest epoch."""
    # Nodes that read the same ones, the strategies of several topics, share a box.
    chains = groupby(list_nodes(spec, plan), key=lambda each: each.predecessors)
    groups = [list(group) for _, group in chains]
    lines = [[line for each in group for line in _list_lines(each)] for group in groups]
    cut = [_cut_lines(each) for each in lines]
    heights = [_HEAD + _LINE * len(each) + (_FOOT if each else 0) for each in cut]
    wanted = max(sum(heights) + _ARROW * len(heights), _PARTS * _PART_MIN) / _PARTS
    ends = _find_ends(groups)
    drawn: list[Node] = []
    parts: list[list[Node]] = [[]]
    boxes: dict[str, Node] = {}  # by the ids of their nodes
    y = 0
    for at, (node, *others) in enumerate(groups):
        if at in ends and y + heights[at] / 2 > wanted and len(parts) < _PARTS:
            parts.append([])
            y = _ARROW
        texts = tuple(TextLine(y + _HEAD + _LINE * i + 12, text) for i, text in enumerate(cut[at]))
        box, flow = _BOXES[node.type], _label_flow(node, counters)
        before = {boxes[each].y: boxes[each] for each in node.predecessors}
        arrows = "".join(_draw_arrow(each, y, drawn[-1]) for each in before.values())
        text, height = ", ".join(lines[at]), heights[at]
        drawn.append(Node(box.kind, box.title, text, y, height, texts, arrows, flow))
        parts[-1].append(drawn[-1])
        boxes |= dict.fromkeys((each.id for each in (node, *others)), drawn[-1])
        y += height + _ARROW
    return Dataflow(tuple(Part(tuple(each)) for each in parts))


def _find_ends(groups: Sequence[Sequence[PlanNode]]) -> set[int]:
    """Return the boxes that may begin a part: no other arrow than theirs is cut."""
    places = {node.id: at for at, group in enumerate(groups) for node in group}
    spans = [
        (places[name], at) for at, (first, *_) in enumerate(groups) for name in first.predecessors
    ]
    return {
        at
        for at in range(1, len(groups))
        if {span for span in spans if span[0] < at <= span[1]} == {(at - 1, at)}
    }


def _draw_arrow(start: Node, y: int, above: Node) -> str:
    """Return the path of an arrow to a box at `y`: from the box above it, or beside the boxes."""
    if start is above:
        return f"M{WIDTH // 2} {y - _ARROW + 3}V{y - 5}m-4 -5l4 5l4 -5"
    return f"M0 {start.y + _HEAD // 2}H-{_ASIDE}V{y + _HEAD // 2}H-1m-5 -4l5 4l-5 4"


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


def _list_lines(node: PlanNode) -> list[str]:
    """Return the lines of a node's box: its templates, filled from attributes that it uses."""
    known = {
        name: ", ".join(value) if isinstance(value, list) else value
        for name, value in node.attributes.items()
        if value not in (None, [], False) and name != "aggregates"
    }
    lines = [
        template.format_map(known)
        for template in _BOXES[node.type].lines
        if all(name in known for _, name, _, _ in Formatter().parse(template) if name)
    ]
    for each in node.attributes.get("aggregates", ()):
        keeps = " (keeps all values)" if each["keeps_values"] else ""
        lines.append(f"{each['call']} AS {each['name']}{keeps}")
    return lines


def _label_flow(node: PlanNode, counters: Mapping[str, Any]) -> str:
    """Return the label of the arrow to a node: how many messages or rows passed it."""
    name = "watermark" if node.predecessors == ["source"] else node.id
    counter, one = _FLOWS.get(name, ("", ""))
    return count_of(int(counters[counter]), one) if counter in counters else ""
