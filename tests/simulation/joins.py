"""One join of an epoch, done by the core: its buckets joined, and both sides folded.

The order inside a task is the real one: both sides brought to the base, rows looked up as of it,
new state remembered, files written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from jobs.core.fold.fold import FoldContext
from jobs.core.fold.program import Program
from jobs.core.fold.rules import DEFAULT_RULES
from jobs.core.fold.sessions import fold_bundle
from jobs.core.fold.state import MemoryState, Upserts
from jobs.core.join.row_joins import WeightedRow
from jobs.core.join.stages import Side
from jobs.core.plan.bucket import bucket_of
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from jobs.edge.rows.arranged_rows import Arrangement, Run
from jobs.edge.rows.join_inputs import list_rows, to_keyed_rows
from jobs.edge.rows.joined_rows import JoinOperator
from jobs.edge.state.bucket_states import BucketStates
from jobs.edge.table.file_writer import AddedFile, file_name
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.join import JoinReport, JoinTask, SideState
from jobs.reading.parts import ACCUMULATORS
from schemas.table.view_path import place_name
from schemas.types.arrow_values import from_arrow
from tests.simulation.jobs import SimulatedReader, Weighted

if TYPE_CHECKING:
    from tests.simulation.world import World

_BUCKETS = 3  # of the job


class SideRows:
    """A side of a join in one bucket, over a hot state of the world."""

    def __init__(self, side: Side, state: MemoryState, changes: Sequence[WeightedRow]) -> None:
        self._side, self._state = side, state
        with_key, self.without_key = to_keyed_rows(side, changes).split()
        self.changes = Run.of(with_key)

    @property
    def rows(self) -> Arrangement:
        """The rows at the base."""
        groups = self._state._groups.items()
        known = [(key, group.cells[0]) for key, group in groups]
        return Arrangement().add(Run.of(to_keyed_rows(self._side, known)))

    def fold(self) -> Upserts:
        """The changed rows with their new weights."""
        keyed = self.changes.rows
        types = [named.type for named in self._side.state.group]
        columns = zip([*keyed.keys, *keyed.columns], types, strict=True)
        keys = list(zip(*(from_arrow(column, kind) for column, kind in columns), strict=True))
        if not keys:
            return Upserts()
        program = Program(self._side.state)
        deltas = program.gather(keys, [0] * len(keys), keyed.weights.tolist())
        context = FoldContext(encoder(tuple(types)), DEFAULT_RULES, 0, None)
        return fold_bundle(program, self._state, deltas, context).upserts


def joined(
    world: World, task: JoinTask, layout: Any, rows: dict[int, list[Weighted]]
) -> tuple[JoinReport, dict[int, list[Weighted]]]:
    """Take the rows of both sides; return the report, and the rows for each reader."""
    report, sides = JoinReport(task=0), (task.left, task.right)
    changes = [_by_bucket(side, rows.pop(side.number)) for side in sides]
    for side, (arrived, _) in zip(sides, changes, strict=True):
        report.arrived[side.number] = arrived
    states = [BucketStates(side.committed, layout, None) for side in sides]  # type: ignore[arg-type]
    operator = JoinOperator(task.stage.join, _refuse)
    upserts: list[dict[int, Upserts]] = [{}, {}]
    found: list[tuple[int, Row]] = []
    for bucket in sorted({bucket for _, of_side in changes for bucket in of_side}):
        hot: list[Any] = [each.catch_up(bucket) for each in states]
        with (
            hot[0].view(task.left.committed.base) as left,
            hot[1].view(task.right.committed.base) as right,
        ):
            arranged = [
                SideRows(side.side, state, of_side.get(bucket, ()))
                for side, state, (_, of_side) in zip(sides, (left, right), changes, strict=True)
            ]
            own, rows_before = ([a.changes for a in arranged], [a.rows for a in arranged])
            alone = operator.advance_without_key(*(each.without_key for each in arranged))
            pairs = operator.advance(own[0], own[1], rows_before[0], rows_before[1])
            for piece in chain(alone, pairs):
                joined_rows = list_rows(piece, task.stage.join.columns)
                found += [(weight, row) for row, weight in joined_rows]
            for number, each in enumerate(arranged):
                upserts[number][bucket] = each.fold()
                hot[number].remember(task.attempt.epoch, task.attempt.uuid, upserts[number][bucket])
    for side, of_buckets in zip(sides, upserts, strict=True):
        report.files[side.side.name] = _write(world, task, side, of_buckets)
    sent = {each.number: _for_reader(task, each, found) for each in task.readers}
    report.shipped = {number: len(own) for number, own in sent.items()}
    return report, sent


def _refuse(reason: str, _weight: int) -> None:
    raise AssertionError(reason)


def _by_bucket(
    side: SideState, rows: Sequence[Weighted]
) -> tuple[int, dict[int, list[WeightedRow]]]:
    """The number of rows, and the changes of a side in each bucket."""
    types = [named.type for named in side.side.inputs.group]
    changes: dict[int, list[WeightedRow]] = defaultdict(list)
    for key, row, _, weight in rows:
        changes[bucket_of(key, types, _BUCKETS)].append((key + row, weight))
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
    name = file_name(ACCUMULATORS, task.attempt.epoch, task.attempt.uuid, f"j{side.number}")
    placed = place_name(name, side.side.name)
    added = world.disk.write(
        placed, upserts, (task.attempt.epoch, task.attempt.epoch), len(upserts)
    )
    return [replace(added, path=name, part=ACCUMULATORS)]
