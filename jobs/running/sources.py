"""The sources of a running job, and the joins between its sources and its views.

    source ─► decode, dedupe ─┬─► views that read this source alone
                              └─► sides of joins ─► joins ─► views

Whoever reads rows has a number: the views first, then the sides of joins, then the images of each
source with `dedupe`. The number is in the target of each parcel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.core.fold.state import Stamp
from jobs.core.job.inputs import JobInputs
from jobs.core.join.stages import (
    Reader,
    Side,
    list_sides,
    subtable_of,
)
from jobs.core.plan.tree import Column, Plan
from jobs.edge.kafka.offset_ranges import OffsetRange, split_ranges
from jobs.edge.rows.late_rows import Deadline
from jobs.edge.rows.weighted_rows import parcelling_of
from jobs.edge.state.bucket_states import CommittedEpoch, find_recent_epochs
from jobs.edge.tasks.decode_views import ViewInputs
from jobs.edge.tasks.join import JoinTask, SideState
from jobs.edge.tasks.parcel_task import ParcelTask
from jobs.edge.tasks.range_reading import SourceRules
from jobs.running.views import RunningView, Subtable
from jobs.table.files import LiveFile, files_of_view
from schemas.limits import RECENT_EPOCHS_MAX
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.view_path import place_name, view_root


@dataclass(slots=True)
class KeptState:
    """State that belongs to no view: the images of a source, or a side of a join."""

    number: int  # among the readers of parcels
    name: str  # of its part of the table
    plan: Plan
    root: TablePath
    cache: Path
    recent_epochs: deque[CommittedEpoch]

    def extend(self, row: EpochRow) -> None:
        """Take the epoch that was committed."""
        self.recent_epochs.append(CommittedEpoch.of(row.of_view(self.name)))

    @property
    def subtable(self) -> Subtable:
        return Subtable(self.name, self.plan, self.root)

    @property
    def kept_names(self) -> set[str]:
        """The names in the table of the files that a hot state may still need."""
        names = (name for epoch in self.recent_epochs for _, name in epoch.files)
        return {place_name(name, self.name) for name in names}


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
        self.trees = inputs.trees
        self._spec = spec
        self._views = {view.name: view for view in views}
        numbers = {name: number for number, name in enumerate(inputs.states, start=len(views))}

        def keep(name: str) -> KeptState:
            root, seen = view_root(table, name), files_of_view(files, name)
            root.mkdir(parents=True, exist_ok=True)  # readers go through it
            recent = find_recent_epochs(root, seen, newest.of_view(name))
            recent_epochs = deque(recent, RECENT_EPOCHS_MAX)
            plan, number = inputs.states[name], numbers[name]
            return KeptState(number, name, plan, root, caches[name], recent_epochs)

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
        return [(self.sides[side.name], side.inputs) for side in list_sides(self.trees)]

    @property
    def deduped(self) -> set[str]:
        """The sources whose last images the job keeps."""
        return {name for name, source in self.sources.items() if source.images is not None}

    @property
    def in_order(self) -> bool:
        """Whether rows of some topic are checked one by one."""
        return any(source.rules.in_order for source in self.sources.values())

    def extend(self, row: EpochRow) -> None:
        """Take the epoch that was committed."""
        for state in self.states:
            state.extend(row)

    def name_readers(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Return the ranges, each once for each source that reads its topic."""
        return tuple(
            replace(each, source=name)
            for each in ranges
            for name, source in self.sources.items()
            if each.topic in source.spec.source.topics
        )

    def split(self, ranges: Iterable[OffsetRange], tasks: int) -> tuple[OffsetRange, ...]:
        """Split long ranges, unless the rows of a partition must be read in order."""
        named = self.name_readers(ranges)
        whole = [each for each in named if self._is_in_order(each)]
        parts = tuple(each for each in named if not self._is_in_order(each))
        return tuple(sorted((*whole, *split_ranges(parts, tasks))))

    def _is_in_order(self, read: OffsetRange) -> bool:
        return self.sources[read.source].rules.times[read.topic].in_order

    def inputs_of(
        self,
        reader: Reader,
        columns: Sequence[Column],
        targets: int,
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
            targets,
            first=number * targets,
            with_heads=self._spec.drops_early,
            closes=deadline is not None,
        )
        indexes = tuple(columns.index(column) for column in reader.plan.used)
        return ViewInputs(number, reader.name, reader.plan, root, indexes, deadline, parcelling)

    def make_join_tasks(
        self,
        targets: int,
        epoch: int,
        uuid: str,
        *,
        base: Stamp,
        version: int,
        durable: bool,
        bytes_max: int,
    ) -> list[list[ParcelTask]]:
        """Return the tasks of the first join of each tree, then those of the second ones, ..."""
        stages: list[list[ParcelTask]] = []

        def state_of(side: Side) -> SideState:
            kept = self.sides[side.name]
            recent = tuple(kept.recent_epochs)
            return SideState(kept.number, side, kept.root, kept.cache, base, version, recent)

        for tree in self.trees:
            after = [stage.left for stage in tree.stages[1:]]
            readers = [[Reader(side.name, side.inputs)] for side in after]
            readers.append([Reader(name, self._views[name].plan) for name in tree.views])
            for depth, (stage, who) in enumerate(zip(tree.stages, readers, strict=True)):
                task = JoinTask(
                    stage,
                    state_of(stage.left),
                    state_of(stage.right),
                    tuple(self.inputs_of(each, stage.join.columns, targets) for each in who),
                    targets,
                    epoch,
                    uuid,
                    durable=durable,
                    bytes_max=bytes_max,
                )
                stages += [[]] if depth == len(stages) else []
                stages[depth].append(task)
        return stages
