"""One join of an epoch, done by the core: its buckets joined, and both sides folded.

The order inside a task is the real one: both sides brought to the base, rows looked up as of it,
new state remembered, files written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobs.core.fold.fold import FoldContext
from jobs.core.fold.program import Program
from jobs.core.fold.rules import DEFAULT_RULES
from jobs.core.fold.sessions import fold_bundle
from jobs.core.fold.state import MemoryState, Upserts
from jobs.core.join.arrangement import WeightedRow, Weights
from jobs.core.join.operator import ByKey, JoinOperator
from jobs.core.plan.bucket import bucket_of
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from jobs.edge.state.bucket_states import BucketStates
from jobs.edge.table.file_writer import AddedFile, file_name
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.join import JoinReport, JoinTask, SideState
from jobs.table.parts import ACCUMULATORS, GROUP_STATE
from schemas.table.view_path import place_name
from tests.simulation.jobs import SimulatedReader, Weighted

if TYPE_CHECKING:
    from tests.simulation.world import World

_ROWS, _BUCKETS = 0, 3  # the argument with the rows; buckets of the job


class SideRows:
    """A side of a join in one bucket: the core's Arrangement over a hot state of the world."""

    def __init__(self, state: MemoryState, program: Program) -> None:
        self._state, self._program = state, program
        self._changes: list[tuple[Row, Row, int]] = []

    def rows(self, key: Row) -> Iterable[WeightedRow]:
        found: Iterable[Any] = self._state.entries(_ROWS, key)
        return found

    def count(self, key: Row) -> int:
        (group,) = self._state.groups([key])
        return 0 if group is None else group.cells[0]

    def add(self, key: Row, changes: Weights) -> None:
        self._changes += ((key, row, weight) for row, weight in changes.items() if weight)

    def fold(self) -> Upserts:
        if not self._changes:
            return Upserts()
        keys, rows, weights = zip(*self._changes, strict=True)
        program = self._program
        deltas = program.gather(keys, rows, [0] * len(keys), weights)
        order = encoder(tuple(named.type for named in program.plan.group))
        context = FoldContext(order, DEFAULT_RULES, 0, None)
        return fold_bundle(program, self._state, deltas, context).upserts


def joined(
    world: World, task: JoinTask, layout: Any, rows: dict[int, list[Weighted]]
) -> tuple[JoinReport, dict[int, list[Weighted]]]:
    """Take the rows of both sides; return the report, and the rows for each reader."""
    report, sides = JoinReport(task=0), (task.left, task.right)
    changes = [_by_bucket(side, rows.pop(side.number)) for side in sides]
    for side, (arrived, _) in zip(sides, changes, strict=True):
        report.arrived[side.number] = arrived
    states = [BucketStates(side, layout, None, GROUP_STATE, "bucket") for side in sides]  # type: ignore[arg-type]
    programs = [Program(side.side.state) for side in sides]
    upserts: list[dict[int, Upserts]] = [{}, {}]
    found: list[tuple[int, Row]] = []
    for bucket in sorted({bucket for _, of_side in changes for bucket in of_side}):
        hot: list[Any] = [each.catch_up(bucket) for each in states]
        with hot[0].view(task.left.base) as left, hot[1].view(task.right.base) as right:
            arranged = [SideRows(*each) for each in zip((left, right), programs, strict=True)]
            operator = JoinOperator(task.stage.join, *arranged)
            own = [of_side.get(bucket, {}) for _, of_side in changes]
            found += [(weight, row) for row, weight in operator.advance_keys(*own)]
            for number, each in enumerate(arranged):
                upserts[number][bucket] = each.fold()
                hot[number].remember(task.epoch, task.uuid, upserts[number][bucket])
    for side, of_buckets in zip(sides, upserts, strict=True):
        report.files[side.side.name] = _write(world, task, side, of_buckets)
    sent = {each.number: _for_reader(task, each, found) for each in task.readers}
    report.shipped = {number: len(own) for number, own in sent.items()}
    return report, sent


def _by_bucket(side: SideState, rows: Sequence[Weighted]) -> tuple[int, dict[int, ByKey]]:
    """The number of rows, and the changes of a side in each bucket."""
    types = [named.type for named in side.side.inputs.group]
    changes: dict[int, ByKey] = defaultdict(dict)
    for key, row, _, weight in rows:
        of_key = changes[bucket_of(key, types, _BUCKETS)].setdefault(
            None if None in key else key, {}
        )
        of_key[row] = of_key.get(row, 0) + weight
    return len(rows), changes


def _for_reader(
    task: JoinTask, inputs: ViewInputs, found: Sequence[tuple[int, Row]]
) -> list[Weighted]:
    """The joined rows as a reader takes them, each once."""
    reader = SimulatedReader.of(inputs.number, inputs.plan, task.stage.join.columns)
    return reader.consolidated(0, found)


def _write(
    world: World, task: JoinTask, side: SideState, upserts: dict[int, Upserts]
) -> list[AddedFile]:
    if not any(len(each) for each in upserts.values()):
        return []
    name = file_name(ACCUMULATORS, task.epoch, task.uuid, f"j{side.number}")
    placed = place_name(name, side.side.name)
    added = world.disk.write(placed, upserts, (task.epoch, task.epoch), len(upserts))
    return [replace(added, path=name, part=ACCUMULATORS)]
