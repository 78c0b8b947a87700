"""The sources of a running job, and the joins between its sources and its views.

    source ─► decode, dedupe ─┬─► views that read this source alone
                              └─► sides of joins ─► joins ─► views

Whoever reads rows has a number: the views first, then the sides of joins, then the images of each
source with `dedupe`. The number is in the target of each parcel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from jobs.core.fold.state import Stamp
from jobs.core.homes import Placement
from jobs.core.job.views import JobInputs
from jobs.core.join.stages import Reader, Side, subtable_of
from jobs.core.plan.tree import Column, Plan
from jobs.core.time.followed import FollowedProgress
from jobs.edge.files.log import FileLog
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.offset_ranges import OffsetRange, split_ranges
from jobs.edge.kafka.progress import ProgressReader, open_followed
from jobs.edge.kafka.source import require_same_topics
from jobs.edge.rows.late_rows import Deadline
from jobs.edge.rows.weighted_rows import parcelling_of
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks.decode_inputs import SourceRules, ViewInputs
from jobs.edge.tasks.join import JoinTask, SideState
from jobs.edge.tasks.stage_functions import ParcelTask
from jobs.reading.files import LiveFile
from jobs.running.views import KeptState, RunningView, recent_epochs_of
from schemas.spec.connections import Connections
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity
from schemas.table.object_path import TablePath
from schemas.table.view_path import view_root


@dataclass(slots=True)
class RunningSource:
    """A source of a running job."""

    name: str
    spec: JobSpec  # as of a job with this source only
    plan: Plan
    rules: SourceRules
    readers: Sequence[Reader]
    images: KeptState | None  # with dedupe


class RunningInputs:
    """The sources and the joins of a running job."""

    def __init__(
        self,
        spec: JobSpec,
        views: Sequence[RunningView],
        table: TablePath,
        caches: Mapping[str, Path],
        files: list[LiveFile],
        newest: EpochRow,
    ) -> None:
        plans = {view.name: view.plan for view in views}
        inputs, specs = JobInputs.of(spec, plans), spec.source_specs
        self._inputs = inputs
        self._spec = spec
        self._views = {view.name: view for view in views}
        numbers = {name: number for number, name in enumerate(inputs.states, start=len(views))}

        def keep(name: str) -> KeptState:
            root = view_root(table, name)
            root.mkdir(parents=True, exist_ok=True)  # readers go through it, also the next line
            recent = recent_epochs_of(table, name, files, newest)
            return KeptState(numbers[name], name, inputs.states[name], root, caches[name], recent)

        self.sides = {side.name: keep(side.name) for side in inputs.sides}
        self.sources = {
            name: RunningSource(
                name,
                specs[name],
                plan,
                SourceRules.of(specs[name], plan),
                inputs.readers[name],
                keep(subtable_of(name)) if plan.primary_key else None,
            )
            for name, plan in inputs.sources.items()
        }

    @property
    def states(self) -> list[KeptState]:
        """All state that belongs to no view."""
        images = (source.images for source in self.sources.values())
        return [*(each for each in images if each is not None), *self.sides.values()]

    def list_sides(self) -> list[tuple[KeptState, Plan]]:
        """Return the state of each side of a join, and the plan by which it gets its rows."""
        return [(self.sides[side.name], side.inputs) for side in self._inputs.sides]

    @property
    def joins(self) -> bool:
        """Whether some view joins."""
        return bool(self._inputs.trees)

    @property
    def deduped(self) -> set[str]:
        """The sources whose last images the job keeps."""
        return {name for name, source in self.sources.items() if source.images is not None}

    @property
    def in_order(self) -> bool:
        """Whether rows of some topic are checked one by one."""
        return any(source.rules.in_order for source in self.sources.values())

    def split(self, ranges: Iterable[OffsetRange], tasks: int) -> tuple[OffsetRange, ...]:
        """Return the ranges, each once for each source that reads its topic.

        Long ranges are split, unless the rows of a partition must be read in order."""
        named = [
            replace(each, source=name) if name else each
            for each in ranges
            for name, source in self.sources.items()
            if each.topic in source.spec.source.topics
        ]
        whole = [each for each in named if self._is_in_order(each)]
        parts = tuple(each for each in named if not self._is_in_order(each))
        return tuple(sorted((*whole, *split_ranges(parts, tasks))))

    def _is_in_order(self, read: OffsetRange) -> bool:
        return self.sources[read.source].rules.times[read.topic].in_order

    def inputs_of(
        self,
        reader: Reader,
        columns: Sequence[Column],
        placement: Placement,
        deadline: Deadline | None = None,
    ) -> ViewInputs:
        """Return who reads rows with these columns, as the tasks before it need it."""
        side, buckets = self.sides.get(reader.name), self._spec.state.buckets
        if side is None:
            view = self._views[reader.name]
            number, root, buckets = view.number, view.root, view.spec.state.buckets
        else:
            number, root = side.number, side.root
        parcelling = parcelling_of(
            reader.plan,
            buckets,
            placement,
            reader=number,
            with_heads=self._spec.drops_early,
            closes=deadline is not None,
        )
        indexes = tuple(columns.index(column) for column in reader.plan.used)
        return ViewInputs(number, reader.name, reader.plan, root, indexes, deadline, parcelling)

    def make_join_tasks(
        self, placement: Placement, attempt: EpochAttempt, base: Stamp, version: int
    ) -> list[list[ParcelTask]]:
        """Return the tasks of the first join of each tree, then those of the second ones, ..."""
        of_trees: list[list[ParcelTask]] = []

        def state_of(side: Side) -> SideState:
            kept = self.sides[side.name]
            return SideState(kept.number, side, kept.at(base, version))

        for tree in self._inputs.trees:
            after = [stage.left for stage in tree.stages[1:]]
            readers = [[Reader(side.name, side.inputs)] for side in after]
            readers.append([Reader(name, self._views[name].plan) for name in tree.views])
            of_trees.append(
                [
                    JoinTask(
                        stage,
                        state_of(stage.left),
                        state_of(stage.right),
                        tuple(self.inputs_of(each, stage.join.columns, placement) for each in who),
                        attempt,
                    )
                    for stage, who in zip(tree.stages, readers, strict=True)
                ]
            )
        return [[task for task in tasks if task is not None] for tasks in zip_longest(*of_trees)]


@dataclass(slots=True)
class SourceTopics:
    """Connections to the topics; the thread that holds the epoch lock uses them.

    A topic that was deleted and created again ends the job. The ends of the topics move its clock,
    and so does the progress of a job that writes a topic (`watermark: {from: progress}`).
    """

    connections: Connections
    spec: JobSpec
    identities: Mapping[str, TopicIdentity]
    files: Mapping[str, FileLog] = field(default_factory=dict)  # the directories among them
    _admin: KafkaAdmin | None = None
    _followed: dict[str, ProgressReader] = field(default_factory=dict)

    def follow(self, spec: JobSpec) -> None:
        """Open the progress of the jobs whose watermarks the spec follows."""
        self._followed = open_followed(self.connections, spec)

    def require_same(self) -> None:
        """Raise SourceChanged if a topic was deleted and created again."""
        require_same_topics(self._connect(), self.identities)

    def read_log_ends(self) -> Offsets:
        """Return the end offsets of the topics at the broker."""
        return read_ends(self._connect(), self.identities)

    def read_followed(self, topic: str) -> FollowedProgress | None:
        """Return new progress of the job that writes a topic."""
        found = self._followed[topic].read()
        if found is None:
            return None
        # Read after it, and with open transactions, so that they cover its results.
        ends = self._connect().end_offsets(topic, read_committed=False)
        return FollowedProgress(found.watermark, found.status == "idle", _texts(ends))

    def close(self) -> None:
        for reader in self._followed.values():
            reader.close()
        if self._admin is not None:
            self._admin.close()

    def _connect(self) -> KafkaAdmin:
        if self._admin is None:
            self._admin = KafkaAdmin.of_sources(self.connections, self.spec, self.files)
        return self._admin


def read_ends(admin: KafkaAdmin, topics: Iterable[str]) -> Offsets:
    return {topic: _texts(admin.end_offsets(topic)) for topic in topics}


def _texts(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
