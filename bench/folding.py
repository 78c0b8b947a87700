"""Measure the processor time of each aggregate by stage, on one core, without Kafka and Spark.

    python -m bench.folding [--changes N] [--groups N] [--rows N] [--profile] [CALL ...]

    ShopTable ──► canal-json ──decode──► weighted rows ──FoldTask──► files, hot state
                  the same for every call │              for each call, epoch after epoch

The stages are those of a job, on a table of their own. The first epoch builds the state; the others
are measured. `--profile` profiles the fold.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from bench.generator import COLUMNS, Shape, ShopTable
from bench.workloads.aggregates import CALLS, EPOCH_ROWS_MAX, GROUPS, ROWS, ROWS_OF_A_GROUP
from jobs.core.evaluate.expressions import evaluator
from jobs.core.fold.program import Program
from jobs.core.formats.registry import MessageRules
from jobs.core.plan.bucket import bucket_of
from jobs.core.plan.tree import Column, Composite, Expression, KeyValue, Plan
from jobs.core.plan.walk import replace_parts
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row, Value
from jobs.edge.machine.kernel_cache import use_kernel_cache
from jobs.edge.rows.scanned_columns import scanned_to_arrow
from jobs.edge.rows.signed_rows import SignedRows
from jobs.edge.rows.weighted_rows import BUCKET, POSITION, WEIGHT, pack_rows
from jobs.edge.state.bucket_states import CommittedEpoch, CommittedState
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks.body import collector_off
from jobs.edge.tasks.fold import FoldTask
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.stage_functions import ViewsFold
from schemas.limits import PIECE_MESSAGES
from schemas.table.epoch import EpochRow
from schemas.types.arrow_values import to_arrow
from schemas.types.moments import now_ms
from schemas.types.sql_types import SqlType

BUCKETS = 32
PROFILED_LINES = 25
DECLARED = {name: SqlType.parse(kind) for name, kind in COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time per change in each stage, and bytes written per change."""

    decode: float
    fold: float
    written: float

    @property
    def whole(self) -> float:
        return self.decode + self.fold


def plan_of(call: str) -> Plan:
    return parse_query(f"SELECT name, {call} AS r FROM product GROUP BY name", DECLARED)


def messages(shape: Shape, changes: int, epochs: int) -> Iterator[list[bytes]]:
    """Yield the messages of each epoch; the first epoch fills the table."""
    table = ShopTable(shape)
    yield [line for lines in table.changes(3 * shape.live_rows) for line in lines]
    for _ in range(epochs):
        yield [line for lines in table.changes(changes) for line in lines]


def spent_on(
    call: str, shape: Shape, changes: int, epochs: int, profile: cProfile.Profile | None
) -> Spent:
    with tempfile.TemporaryDirectory(prefix="retally-bench-") as directory:
        job = EpochsByHand(plan_of(call), Path(directory))
        decode = fold = 0.0
        written = 0
        for number, lines in enumerate(messages(shape, changes, epochs)):
            began = time.process_time()
            columns = job.decode(lines)
            decoded = time.process_time()
            rows = job.project(*columns)  # which in a job Spark does
            projected = time.process_time()
            if profile is not None and number:
                profile.enable()
            report = job.fold(rows)
            if profile is not None:
                profile.disable()
            if number:
                decode += decoded - began
                fold += time.process_time() - projected
                written += sum(file.size for file in report.files)
            job.commit(report)
    count = changes * epochs
    return Spent(decode / count, fold / count, written / count)


class EpochsByHand:
    """The stages of a job between Kafka and the table, without Spark."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        use_kernel_cache()
        scanner = MessageRules("canal-json").decoder(plan.columns, plan.used).make_scanner()
        assert scanner is not None
        self.scanner = scanner
        self.layout = TableLayout(Program(plan))
        self.table = EpochTable.create(directory / "epochs", self.layout)
        self.cache = directory / "cache"
        self.row = _row(0, plan, {})
        self.table.commit_epoch(self.row, ())
        self.line: list[CommittedEpoch] = [CommittedEpoch.of(self.row)]
        self.uuid = ""

    def decode(self, lines: list[bytes]) -> tuple[list[pa.Array], Any]:
        """Decode and consolidate a range, as the decode task does."""
        with collector_off():
            return self._decode(lines)

    def _decode(self, lines: list[bytes]) -> tuple[list[pa.Array], Any]:
        rows = SignedRows(self.plan.used)
        for start in range(0, len(lines), PIECE_MESSAGES):
            scanned = self.scanner.scan(lines[start : start + PIECE_MESSAGES])
            assert not scanned.unusual
            signs = scanned.signs.astype(np.int64)
            rows.add_scanned([scanned_to_arrow(column) for column in scanned.columns], signs)
        found = rows.concatenate()
        weighted = found.consolidate(0, keep_zeros=False)
        taken = pa.array(weighted.indexes)
        return [column.take(taken) for column in found.columns], weighted

    def project(self, columns: list[pa.Array], weighted: Any) -> pa.RecordBatch:
        """Evaluate group and argument expressions and the bucket, as the decode task does."""
        used = [column.to_pylist() for column in columns]
        for column, values in zip(self.plan.used, used, strict=True):
            if column.type.scale is not None:
                values[:] = [int(value.scaleb(column.type.scale)) for value in values]
        rows = list(zip(*used, strict=True))
        names = [column.name for column in self.plan.used]
        named = {}
        for letter, expressions in (("g", self.plan.group), ("a", self.plan.arguments)):
            for index, each in enumerate(expressions):
                value = _value_of(each.expression, names)
                named[f"{letter}{index}"] = to_arrow(list(map(value, rows)), each.type)
        types = [each.type for each in self.plan.group]
        group = {key: bucket_of((key,), types, BUCKETS) for key in set(used[names.index("name")])}
        named[POSITION] = pa.array(weighted.positions)
        named[WEIGHT] = pa.array(weighted.weights)
        named[BUCKET] = pa.array([group[key] for key in used[names.index("name")]], pa.int32())
        return pa.RecordBatch.from_pydict(named)

    def fold(self, rows: pa.RecordBatch) -> FoldReport:
        self.uuid = uuid4().hex
        task = FoldTask(
            self.plan,
            CommittedState(
                self.table.root,
                self.cache,
                self.line[-1].stamp,
                self.table.version,
                tuple(self.line),
            ),
            EpochAttempt(self.row.epoch + 1, self.uuid),
        )
        (output,) = ViewsFold((task,)).run([pack_rows(0, 0, rows)])
        return msgspec.json.decode(output, type=FoldReport)

    def commit(self, report: FoldReport) -> None:
        files: dict[str, list[str]] = {}
        for file in report.files:
            files.setdefault(file.part, []).append(file.path)
        self.row = _row(self.row.epoch + 1, self.plan, files, self.uuid)
        self.table.commit_epoch(self.row, report.files)
        self.line.append(CommittedEpoch.of(self.row))


def _row(epoch: int, plan: Plan, files: dict[str, list[str]], uuid: str = "start") -> EpochRow:
    return EpochRow(
        epoch=epoch,
        uuid=uuid,
        generation=1,
        kind="data" if epoch else "start",
        committed_at=now_ms() * 1_000,
        plan=plan.fingerprint,
        offsets={},
        topics={},
        counters={},
        files=files,
    )


def _value_of(expression: Expression, names: list[str]) -> Callable[[Row], Value]:
    """Return a row expression as a function, for the few kinds in the calls."""
    if isinstance(expression, Composite):
        parts = [_value_of(part, names) for part in expression.parts]
        return lambda row: tuple(part(row) for part in parts)

    def by_place(part: Expression) -> Expression | None:
        if isinstance(part, Column):
            return KeyValue(names.index(part.name), part.type)
        return None

    return evaluator(replace_parts(expression, by_place), len(names))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.folding", description=__doc__)
    parser.add_argument("--changes", type=int, default=EPOCH_ROWS_MAX, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--rows", type=int, default=ROWS_OF_A_GROUP, help="of a group")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("calls", nargs="*", metavar="CALL")
    chosen = parser.parse_args(arguments)
    rows = chosen.groups * chosen.rows
    shape = replace(Shape(), live_rows=rows, groups=chosen.groups, skew=None)
    calls = chosen.calls or [ROWS, *CALLS.values()]
    print(f"{'us a change':52}{'decode':>8}{'fold':>8}{'both':>8}{'bytes':>8}")
    for call in calls:
        profile = cProfile.Profile() if chosen.profile else None
        spent = spent_on(call, shape, chosen.changes, chosen.epochs, profile)
        times = "".join(f"{each * 1e6:>8.1f}" for each in (spent.decode, spent.fold, spent.whole))
        print(f"{call:52}{times}{spent.written:>8.1f}", flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(PROFILED_LINES)


if __name__ == "__main__":
    main(sys.argv[1:])
