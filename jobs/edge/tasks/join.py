"""The join task: turn the changes of both sides of a join into the changes of its rows.

    rows of both sides, by join key ─┬─ bucket 3 ─► arrangements at base ─► joined ─┬─► for each
                                     └─ bucket 7 ─► ...                     rows    │   reader:
    reports, rows for others ────────────────────────────────► unchanged           │   evaluated
                                                                                    └─► the sides'
                                                                                        state

It runs between decoding and the fold, once for each join. Its readers are views, or the next join.
Like the fold task it reads its state at a base and writes only new files.

An expression may fail on a joined row, which is of several messages, so none of them is refused:
the row counts for nothing as long as it is there. Its retraction fails as well, so the result is
exact for the rows that do not fail. The epoch has the number of the others among its counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.join.stages import JoinStage, Side
from jobs.core.rows.consolidate import WeightedRows
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.arranged_rows import Arrangement, KeyedRows, Run
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.joined_rows import JoinedRows, JoinOperator, TooManyPairs, gather
from jobs.edge.rows.packed_rows import canonical
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import (
    BUCKET,
    WEIGHT,
    Parcel,
    report_parcel,
    take_parcels,
    unpack_parcels,
)
from jobs.edge.state.arrangement_state import SideStates
from jobs.edge.state.bucket_states import CommittedState
from jobs.edge.table.file_writer import AddedFile, EpochAttempt
from jobs.edge.tasks.body import TaskReport, name_writer
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.reading.parts import ACCUMULATORS
from schemas.limits import HOT_STATE_CHUNK_RECORDS, JOIN_BATCH_ROWS, REASON_CHARACTERS_MAX
from schemas.types.arrow_types import arrow_type


class JoinReport(TaskReport, msgspec.Struct, kw_only=True, tag="join"):
    refused: str | None = None  # why, if they are not too many bytes
    most_pairs: tuple[int, str] = (0, "")  # of one key, with a description
    arrived: dict[int, int] = {}  # weighted rows, by the number of the side
    shipped: dict[int, int] = {}  # weighted rows, by the number of the reader
    failing: dict[int, int] = {}  # rows on which an expression of a reader fails: the change
    reason: str | None = None  # of one of them
    files: dict[str, list[AddedFile]] = {}  # by the name of the side

    def add_failing(self, reader: int, weight: int, reason: str) -> None:
        """Count rows on which an expression of a reader fails."""
        self.failing[reader] = self.failing.get(reader, 0) + weight
        self.reason = self.reason or reason[:REASON_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class SideState:
    """A side, and where its state is; a value, so that Spark can send it to the workers."""

    number: int  # among the readers of parcels
    side: Side
    committed: CommittedState


@dataclass(frozen=True, slots=True)
class JoinTask:
    """A task between decoding and the fold; a value, so that Spark can send it to the workers."""

    stage: JoinStage
    left: SideState
    right: SideState
    readers: tuple[ViewInputs, ...]
    attempt: EpochAttempt

    def run(self, given: Iterator[Parcel]) -> Iterator[Parcel]:
        """Yield the parcels for the readers and for others, and the reports."""
        failpoint("join_task")
        parcels = take_parcels(given, self.attempt.bytes_max)
        if parcels is None:
            yield _report(JoinReport(too_large=True))
            return
        left, right = (parcels.pop(side.number, ()) for side in (self.left, self.right))
        yield from chain.from_iterable(parcels.values())
        if not left and not right:
            return
        run = _Join(self)
        try:
            for joined in gather(run.run(left, right), JOIN_BATCH_ROWS):
                yield from self._send(joined, run.report)
            run.finish()
        except TooManyPairs as refused:
            run.report = JoinReport(too_large=True, refused=str(refused))
        yield _report(run.report)

    def _send(self, joined: JoinedRows, report: JoinReport) -> Iterator[Parcel]:
        """Yield joined rows, evaluated for each reader, as parcels."""
        rows = RangeRows(joined.columns, joined.weights)
        for reader in self.readers:
            own = rows.select(reader.indexes)
            weighted = own.consolidate(0, keep_zeros=False)
            shipped = len(weighted.indexes)
            if reader.parcelling.evaluates:
                own, weighted, failing = _evaluate(reader, own, weighted, report)
                shipped -= failing
            report.shipped[reader.number] = report.shipped.get(reader.number, 0) + shipped
            yield from reader.parcelling.parcels(own, weighted)


def _evaluate(
    reader: ViewInputs, rows: RangeRows, weighted: WeightedRows, report: JoinReport
) -> tuple[RangeRows, WeightedRows, int]:
    """Return the evaluated rows without those that fail, and the number of these."""
    evaluated = evaluate_rows(reader.plan, rows, weighted)
    if not evaluated.failures:
        return evaluated.rows, evaluated.weighted, 0
    failing = [position for position, _ in evaluated.failures]
    weight = int(weighted.weights[np.isin(weighted.positions, failing)].sum())
    report.add_failing(reader.number, weight, evaluated.failures[0][1])
    kept = ~np.isin(evaluated.weighted.positions, failing)
    left = WeightedRows(*(array[kept] for array in evaluated.weighted))
    return evaluated.rows, left, len(failing)


class _Join:
    """One run of a join task over its buckets."""

    def __init__(self, task: JoinTask) -> None:
        self.task = task
        self.report = JoinReport()
        writer = name_writer("j")
        self.sides = [_SideRun(task, state, writer) for state in (task.left, task.right)]

    def run(self, left: Iterable[Parcel], right: Iterable[Parcel]) -> Iterator[JoinedRows]:
        """Yield the changes of the join."""
        operator = JoinOperator(self.task.stage.join, self._fail)
        for side, found in zip(self.sides, (left, right), strict=True):
            side.read(list(found), self.report)
        yield from operator.advance_without_key(*(side.without_key for side in self.sides))
        for bucket in sorted({bucket for side in self.sides for bucket in side.changes}):
            changes = [side.changes.pop(bucket, side.no_rows) for side in self.sides]
            rows = [side.open(bucket) for side in self.sides]
            yield from operator.advance(changes[0], changes[1], rows[0], rows[1])
            for side, changed in zip(self.sides, changes, strict=True):
                side.take(bucket, changed)
        self.report.most_pairs = operator.most_pairs

    def _fail(self, reason: str, weight: int) -> None:
        """Count a pair on which the condition of the join fails, for all readers."""
        for reader in self.task.readers:
            self.report.add_failing(reader.number, weight, reason)

    def finish(self) -> None:
        """Write the last of the new states."""
        self.report.files = {side.state.side.name: side.finish() for side in self.sides}
        self.report.caught_up = sum(side.caught_up for side in self.sides)


class _SideRun:
    """One side of a join: its changes in, its new state out."""

    def __init__(self, task: JoinTask, state: SideState, writer: str) -> None:
        self.state = state
        self.changes: dict[int, Run] = {}  # by bucket
        plan = state.side.inputs
        self.without_key = KeyedRows(
            [pa.nulls(0, arrow_type(each.type)) for each in plan.group],
            [pa.nulls(0, arrow_type(each.type)) for each in plan.arguments],
            np.zeros(0, np.int64),
        )
        self.no_rows = Run.of(self.without_key)
        self._attempt = task.attempt
        self._writer = f"{writer}-{state.number}"
        self._states = SideStates(state.committed, state.side)
        self._tables: list[pa.Table] = []
        self._files: list[AddedFile] = []

    def read(self, found: Sequence[Parcel], report: JoinReport) -> None:
        """Take the changes of the side's rows."""
        if not found:
            return
        table = unpack_parcels(found)
        report.arrived[self.state.number] = table.num_rows
        plan = self.state.side.inputs
        rows = KeyedRows(
            [canonical(table[f"g{number}"]) for number in range(len(plan.group))],
            [canonical(table[f"a{number}"]) for number in range(len(plan.arguments))],
            table[WEIGHT].to_numpy(),
        )
        rows, kept = rows.consolidate()
        buckets = table[BUCKET].to_numpy()[kept]
        with_key, self.without_key = rows.split()
        if len(self.without_key.weights):
            buckets = buckets[rows.has_key]
        self.changes = Run.of_buckets(with_key, buckets)

    def open(self, bucket: int) -> Arrangement:
        """Return the rows of a bucket."""
        self._bucket = self._states.catch_up(bucket)
        self._rows = self._bucket.at(self.state.committed.base)
        return self._rows

    def take(self, bucket: int, run: Run) -> None:
        """Add changes to the rows of the open bucket."""
        if not len(run):
            return
        attempt = self._attempt
        self._bucket.remember(attempt.epoch, attempt.uuid, run)
        totals = run.rows.weights + self._rows.weigh_rows(run)
        self._tables.append(self._states.to_table(attempt.epoch, bucket, run.rows, totals))
        if sum(table.num_rows for table in self._tables) >= HOT_STATE_CHUNK_RECORDS:
            self._write()

    @property
    def caught_up(self) -> int:
        """The rows of the side that other hosts had written."""
        return self._states.files.rows_read

    def finish(self) -> list[AddedFile]:
        """Write the last of the new state, and return all files."""
        if self._tables:
            self._write()
        return self._files

    def _write(self) -> None:
        root, writer = self.state.committed.root, f"{self._writer}-{len(self._files)}"
        table = pa.concat_tables(self._tables)
        self._files.append(self._attempt.write(root, ACCUMULATORS, writer, table))
        self._tables = []


def _report(report: JoinReport) -> Parcel:
    return report_parcel(msgspec.json.encode(report))
