"""Lineage: how jobs feed each other over topics.

    topics that no job writes ──► jobs ──► topics ──► jobs ... ──► topics that no job reads

A node is in the first column after all nodes that feed it; nodes of a cycle stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from schemas.spec.file import SpecError, load_spec
from schemas.spec.job import JobSpec
from schemas.table.changelog import topics_of_sink
from service.supervision.register import JobRecord

_WIDTH, _HEIGHT = 168, 40
_GAP_X, _GAP_Y = 56, 14
_NAME_CHARACTERS = 22
_JOBS_MAX = 60

ConnectedTopic = tuple[str, str]  # connection, topic
Node = tuple[str, ...]  # job and its name; or topic, its connection and its name
Edge = tuple[Node, Node]


@dataclass(frozen=True, slots=True)
class JobTopics:
    """What a job reads and writes, its query and its labels."""

    name: str
    sources: tuple[ConnectedTopic, ...]
    sinks: tuple[ConnectedTopic, ...]
    query: str
    labels: tuple[str, ...] = ()

    @property
    def written(self) -> set[ConnectedTopic]:
        """Its sinks, and the topics of its progress beside them."""
        return {(at, name) for at, topic in self.sinks for name in topics_of_sink(topic)}

    @property
    def text(self) -> str:
        """What a search looks into, in lower case."""
        topics = (topic for _, topic in (*self.sources, *self.sinks))
        return " ".join((self.name, *self.labels, self.query, *topics)).lower()


@dataclass(frozen=True, slots=True)
class LineageNode:
    kind: str  # job or topic
    name: str
    label: str  # cut to the width of the box
    connection: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Lineage:
    jobs: tuple[JobTopics, ...]  # a job after the jobs that feed it
    nodes: tuple[LineageNode, ...]
    arrows: tuple[str, ...]  # paths
    width: int
    height: int
    description: str
    node_width: int = _WIDTH
    node_height: int = _HEIGHT


def list_job_topics(records: Iterable[JobRecord]) -> list[JobTopics]:
    """Return the topics of all jobs; parsing a spec takes a millisecond, so it is cached."""
    found = (_parse(record.name, record.spec) for record in records)
    return [each for each in found if each is not None]


@lru_cache(maxsize=1_000)
def _parse(name: str, text: str) -> JobTopics | None:
    try:
        spec = load_spec(msgspec.json.decode(text))
    except SpecError:  # of another version of retally
        return None
    sinks = [each.sink for each in spec.view_specs.values() if each.sink is not None]
    topics = tuple((sink.connection, sink.topic) for sink in sinks)
    sources = tuple((name, topic) for topic, name in spec.topic_connections.items())
    return JobTopics(name, sources, topics, _summarize(spec), spec.labels or ())


def _summarize(spec: JobSpec) -> str:
    """Return the query of a job in one line, or the names of its views."""
    if spec.views is None:
        return " ".join(spec.query.split())
    return "views: " + ", ".join(name or "query" for name in spec.view_specs)


def draw_lineage(jobs: Sequence[JobTopics]) -> Lineage | None:
    """Draw the jobs and their topics; None for a single job or too many."""
    if not 1 < len(jobs) <= _JOBS_MAX:
        return None
    edges = _list_edges(jobs)
    columns = _column_ofs(edges)
    positions = {
        node: (columns[node] * (_WIDTH + _GAP_X), row * (_HEIGHT + _GAP_Y))
        for node, row in _place_in_rows(columns, edges).items()
    }
    nodes = tuple(
        LineageNode(node[0], node[-1], _cut(node[-1]), node[1] if len(node) > 2 else "", x, y)
        for node, (x, y) in positions.items()
    )
    arrows = tuple(_draw_arrow(positions[start], positions[end]) for start, end in edges)
    text = "; ".join(f"{start[-1]} feeds {end[-1]}" for start, end in edges)
    ordered = tuple(sorted(jobs, key=lambda job: (columns[("job", job.name)], job.name)))
    width = (max(columns.values()) + 1) * (_WIDTH + _GAP_X) - _GAP_X
    height = max(y for _, y in positions.values()) + _HEIGHT
    return Lineage(ordered, nodes, arrows, width, height, text)


def _list_edges(jobs: Sequence[JobTopics]) -> list[Edge]:
    edges: list[Edge] = []
    for job in jobs:
        node = ("job", job.name)
        edges += [(("topic", *topic), node) for topic in job.sources]
        edges += [(node, ("topic", *topic)) for topic in job.sinks]
    return edges


def _column_ofs(edges: Sequence[Edge]) -> dict[Node, int]:
    """Return the column of each node: after all nodes that feed it, but for those of a cycle."""
    feeds: dict[Node, list[Node]] = {node: [] for edge in edges for node in edge}
    for start, end in edges:
        feeds[end].append(start)
    columns: dict[Node, int] = {}

    def column_of(node: Node, path: tuple[Node, ...]) -> int:
        if node not in columns:
            before = [each for each in feeds[node] if each not in path]
            columns[node] = max((column_of(each, (*path, each)) + 1 for each in before), default=0)
        return columns[node]

    for node in sorted(feeds):
        column_of(node, (node,))
    return columns


def _place_in_rows(columns: Mapping[Node, int], edges: Sequence[Edge]) -> dict[Node, int]:
    """Return the row of each node in its column, near the nodes that feed it: fewer crossings."""
    feeds: dict[Node, list[Node]] = {}
    for start, end in edges:
        feeds.setdefault(end, []).append(start)
    rows: dict[Node, int] = {}

    def mean_row(node: Node) -> tuple[float, Node]:
        before = [rows[each] for each in feeds.get(node, ()) if each in rows]
        return (sum(before) / len(before) if before else 0.0), node

    for column in sorted(set(columns.values())):
        nodes = [node for node in columns if columns[node] == column]
        rows.update({node: row for row, node in enumerate(sorted(nodes, key=mean_row))})
    return rows


def _draw_arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0] - 2, end[1] + _HEIGHT // 2
    middle = _GAP_X // 2
    return f"M{x1} {y1}C{x1 + middle} {y1} {x2 - middle} {y2} {x2} {y2}m-5 -4l5 4l-5 4"


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "\u2026"
