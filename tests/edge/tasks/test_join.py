"""The join task on real files: right after every epoch, whatever happened to its hot state.

changes of both sides ─► JoinTask ─┬─► joined rows; those of all epochs are the join of all rows
                                   └─► files of the sides, committed, merged, read again
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from jobs.core.homes import ONE_TASK, Placement
from jobs.core.join.pairing import join_rows
from jobs.core.join.stages import JoinTree, Side, trees_of
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_joins
from jobs.core.values.change import Row
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import WEIGHT, Parcel, parcelling_of, unpack_parcels
from jobs.edge.state import arrangement_state
from jobs.edge.state.arrangement_state import ArrangementState
from jobs.edge.state.bucket_states import CommittedEpoch, CommittedState
from jobs.edge.state.open_states import OpenStates
from jobs.edge.table.compaction import BASE_TIER, Merge, merge_files
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import layout_of
from jobs.edge.table.file_writer import EpochAttempt, by_part
from jobs.edge.tasks import join
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.join import JoinReport, JoinTask, SideState
from jobs.reading.parts import ACCUMULATORS
from schemas import limits
from schemas.types.arrow_values import from_arrow, rows_to_arrow
from schemas.types.sql_types import SqlType
from tests.support.epoch_rows import epoch_row
from tests.support.jobs.parcels import sort_parcels

BUCKETS = 2
VIEW, LEFT, RIGHT = range(3)  # readers of parcels
TABLES = {
    table: {name: SqlType.parse(kind) for name, kind in columns.items()}
    for table, columns in {
        "a": {"k": "INT", "at": "TIMESTAMP(3)", "f": "DOUBLE", "v": "INT"},
        "b": {"k": "INT", "at": "TIMESTAMP(3)", "bits": "BINARY", "price": "DECIMAL(20, 2)"},
    }.items()
}
KEYED = "ON a.k = b.k AND a.at = b.at"
QUERIES = [
    f"SELECT f, v, bits, price, COUNT(*) AS n FROM a {kind} JOIN b {KEYED} "
    "GROUP BY f, v, bits, price"
    for kind in ("", "LEFT", "RIGHT", "FULL")
] + [
    f"SELECT f, v, COUNT(*) AS n FROM a WHERE {kind} (SELECT 1 FROM b WHERE a.k = b.k AND a.at = "
    "b.at) GROUP BY f, v"
    for kind in ("EXISTS", "NOT EXISTS")
]
QUERIES += [f"SELECT COUNT(*) AS n FROM a FULL JOIN b {KEYED}"]
VALUES: dict[str, list[Any]] = {
    "INT": [None, 0, 1, 1, 2],
    "TIMESTAMP(3)": [None, 0, 0, 0, 1_700_000_000_000_000],
    "DOUBLE": [None, 0.0, -0.0, 1.5, float("nan"), float("inf")],
    "BINARY": [None, b"", b"\0", b"\0\0", b"x" * 80],
    "DECIMAL(20, 2)": [None, 0, 10**19, -(10**19)],
}


class KeptSide:
    """The committed rows of a side."""

    def __init__(self, root: Path, cache: Path, number: int, side: Side) -> None:
        self.side, self.number, self.cache = side, number, cache
        self.table = EpochTable.create(root, layout_of(side.state))
        self.line = [epoch_row(0, side.state)]
        self.table.commit_epoch(self.line[-1], ())
        self.rows = Counter[Row]()

    @property
    def state(self) -> SideState:
        recent = tuple(map(CommittedEpoch.of, self.line))
        root, version = self.table.root, self.table.version
        committed = CommittedState(root, self.cache, recent[-1].stamp, version, recent)
        return SideState(self.number, self.side, committed)

    def commit(self, epoch: int, uuid: str, reports: Sequence[JoinReport]) -> None:
        files = [file for each in reports for file in each.files.get(self.side.name, [])]
        row = epoch_row(epoch, self.side.state, uuid=uuid, files=by_part(files))
        self.table.commit_epoch(row, files)
        self.line.append(row)

    def merge(self, tier: int) -> None:
        files = tuple(file for file in self.table.live_files() if file.part == ACCUMULATORS)
        if files:
            merge = Merge(ACCUMULATORS, tier, files)
            added = merge_files(self.side.state, self.table.root, merge, f"merge-{len(self.line)}")
            self.table.commit(added, merge.files, uuid=f"m{len(self.line)}", what="compaction")


def parcels(
    number: int, plan: Plan, changes: Sequence[tuple[Row, int]], placement: Placement
) -> Iterator[Parcel]:
    """Yield changes of a source as its decode task sends them to a side."""
    columns = rows_to_arrow([row for row, _ in changes], [each.type for each in plan.used])
    signs = pa.array([weight for _, weight in changes], pa.int64()).to_numpy()
    rows = RangeRows(columns, signs)
    yield from parcelling_of(plan, BUCKETS, placement, reader=number).parcels(
        rows, rows.consolidate(0, keep_zeros=False)
    )


def random_changes(
    chance: random.Random, kinds: Sequence[SqlType], known: list[Row]
) -> list[tuple[Row, int]]:
    changes: list[tuple[Row, int]] = []
    for _ in range(chance.choice([0, 1, 3, 30])):
        if known and chance.random() < 0.5:
            changes.append((known.pop(chance.randrange(len(known))), -1))
        else:
            row = tuple(chance.choice(VALUES[str(kind)]) for kind in kinds)
            weight = chance.choice([1, 1, 1, 2, -1])  # -1: its row comes later, or never
            known += [row] * max(weight, 0)
            changes.append((row, weight))
    return changes


def plain(row: Row) -> Row:
    """Equal floats as equal values."""
    return tuple("nan" if value != value else value for value in row)


def recompute(plan: Plan, tree: JoinTree, sides: Sequence[KeptSide]) -> Counter[Row]:
    """Return the groups of the join of all rows, key by key, and how many rows each has."""
    join, width = tree.relation, len(tree.relation.left_keys)
    by_key: dict[Row, list[dict[Row, int]]] = {}
    for number, side in enumerate(sides):
        for row, weight in side.rows.items():
            key = row[:width]
            # A key with NULL matches nothing, so each of its rows is alone.
            own: Row = (*key, number) if None in key else key
            by_key.setdefault(own, [{}, {}])[number][row[width:]] = weight
    found = Counter[Row]()
    whole = replace(join, columns=join.inputs)
    chosen = [join.inputs.index(each.expression) for each in plan.group]
    for left, right in by_key.values():
        for row, weight in join_rows(whole, left, right):
            found[tuple(row[index] for index in chosen)] += weight
    return without_zeros(found)


def without_zeros(rows: Counter[Row]) -> Counter[Row]:
    return Counter({row: weight for row, weight in rows.items() if weight})


class JoinedHere:
    """A job with one join, as far as its join task sees it."""

    def __init__(self, query: str, home: Path, chance: random.Random) -> None:
        self.plan = parse_joins(query, TABLES)
        (self.tree,) = trees_of({"": self.plan})
        (self.stage,) = self.tree.stages
        self.home, self.chance = home, chance
        self.sides = [
            KeptSide(home / side.name, home / "hot" / side.name, number, side)
            for number, side in ((LEFT, self.stage.left), (RIGHT, self.stage.right))
        ]
        indexes = tuple(map(self.stage.join.columns.index, self.plan.used))
        parcelling = parcelling_of(self.plan, BUCKETS, ONE_TASK)
        self.reader = ViewInputs(VIEW, "", self.plan, home, indexes, None, parcelling)
        self.known: list[list[Row]] = [[], []]
        self.groups = Counter[Row]()  # by all epochs

    def disturb(self) -> None:
        """Let something happen to the state between two epochs."""
        condition = self.chance.choice(("nothing", "nothing", "forget", "no redo", "merge"))
        if condition == "forget":
            shutil.rmtree(self.home / "hot", ignore_errors=True)
        elif condition == "no redo":
            for redo in self.home.glob("hot/*/*/redo"):
                redo.unlink()
        elif condition == "merge":
            for side in self.sides:
                side.merge(self.chance.choice((1, BASE_TIER)))

    def change(self, placement: Placement) -> Iterator[Parcel]:
        """Change rows of both sides, and yield their parcels."""
        for side, known in zip(self.sides, self.known, strict=True):
            inputs = side.side.inputs
            changes = random_changes(self.chance, [each.type for each in inputs.used], known)
            yield from parcels(side.number, inputs, changes, placement)
            named = (*inputs.group, *inputs.arguments)
            read = [inputs.used.index(each.expression) for each in named]
            for row, weight in changes:
                side.rows[plain(tuple(row[index] for index in read))] += weight
            side.rows = without_zeros(side.rows)

    def run_epoch(self, epoch: int) -> None:
        """Run tasks, anew divided in each epoch, and commit their files."""
        homes = tuple(self.chance.randrange(3) for _ in range(BUCKETS))
        placement = self.chance.choice([ONE_TASK, Placement(3), Placement(3, homes)])
        sent, uuid = [*self.change(placement)], f"epoch-{epoch}"
        left, right = (side.state for side in self.sides)
        task = JoinTask(self.stage, left, right, (self.reader,), EpochAttempt(epoch, uuid))
        reports = list[JoinReport]()
        for target in range(placement.tasks):
            own = [parcel for parcel in sent if parcel.target == target]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(join, "name_writer", f"{{}}{target}".format)
                reports += self._run(task, own)
        for side in self.sides:
            side.commit(epoch, uuid, reports)

    def _run(self, task: JoinTask, sent: list[Parcel]) -> list[JoinReport]:
        """Run a task once, or twice if its first attempt is lost."""
        if self.chance.random() < 0.2:
            assert [*task.run(iter(sent))] or not sent
        found = sort_parcels(task.run(iter(sent)))
        reports = found.pop(None, [])
        if VIEW in found:
            rows = unpack_parcels(found.pop(VIEW))
            values = [
                from_arrow(rows[f"g{i}"], each.type) for i, each in enumerate(self.plan.group)
            ]
            keys = zip(*values, strict=True) if values else [()] * rows.num_rows
            for row, weight in zip(keys, rows[WEIGHT].to_pylist(), strict=True):
                self.groups[plain(row)] += weight
        assert not found
        return [msgspec.json.decode(report.content, type=JoinReport) for report in reports]


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("query", QUERIES)
def test_joined_rows_are_right_whatever_happened_to_the_hot_state(
    query: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:  # runs are mapped, and offsets of 32 bits are too few for a bucket's texts
        monkeypatch.setattr(limits, "RUN_BYTES_IN_MEMORY_MAX", 1)
        monkeypatch.setattr(limits, "ARRAY_TEXT_BYTES_MAX", 200)
        monkeypatch.setattr(limits, "TASK_BYTES_MAX", 1_000)
    job = JoinedHere(query, tmp_path, random.Random(f"{query} {large}"))
    for epoch in range(1, 13):
        if epoch % 4 == 1:  # another worker
            monkeypatch.setattr(arrangement_state, "_states", OpenStates[ArrangementState]())
        job.disturb()
        job.run_epoch(epoch)
        assert without_zeros(job.groups) == recompute(job.plan, job.tree, job.sides), epoch
