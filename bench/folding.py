"""Processor time of each aggregate, stage by stage, on one core, without Kafka and Spark.

    python -m bench.folding [--changes N] [--groups N] [--rows N] [--profile] [CALL ...]

    ShopTable ──► canal-json ──decode──► weighted rows ──FoldTask──► files, hot state
                  the same for every call │              of each call, epoch after epoch

The decode stage is that of the job, the fold stage is the job's own task on a table of its own. The
first epoch builds the state; the others are measured. `--profile` shows where a fold's time goes.
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
import pyarrow as pa

from bench.generator import COLUMNS, Shape, ShopTable
from bench.workloads.aggregates import CALLS, EPOCH_ROWS_MAX, GROUPS, ROWS, ROWS_OF_A_GROUP
from jobs.core.evaluate.expressions import evaluator
from jobs.core.fold.program import Program
from jobs.core.formats.canal import CanalDecoder
from jobs.core.plan.bucket import bucket_of
from jobs.core.plan.tree import Column, Composite, Expression, KeyValue, Plan
from jobs.core.plan.walk import replaced
from jobs.core.rows.consolidate import consolidated, group_places
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row, Value
from jobs.edge.rows.columns import numbered, to_arrow
from jobs.edge.rows.signed_rows import SignedRows
from jobs.edge.rows.weighted_rows import BUCKET, POSITION, REPORT, WEIGHT
from jobs.edge.state.bucket_states import CommittedEpoch
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout, now_ms
from jobs.edge.tasks.decode import collector_off
from jobs.edge.tasks.fold import FoldReport, FoldTask
from schemas.limits import PLAIN_MESSAGES_AT_ONCE
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import SqlType

BUCKETS = 32
PROFILED_LINES = 25
DECLARED = {name: SqlType.parse(kind) for name, kind in COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time a change of each stage, and bytes a change that were written."""

    decode: float
    fold: float
    written: float

    @property
    def whole(self) -> float:
        return self.decode + self.fold


def plan_of(call: str) -> Plan:
    return parse_query(f"SELECT name, {call} AS r FROM product GROUP BY name", DECLARED)


def messages(shape: Shape, changes: int, epochs: int) -> Iterator[list[bytes]]:
    """The messages of each epoch; the first one fills the table."""
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
            columns = job.decoded(lines)
            decoded = time.process_time()
            rows = job.projected(*columns)  # which in a job Spark does
            projected = time.process_time()
            if profile is not None and number:
                profile.enable()
            report = job.folded(rows)
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
    """A job's stages between Kafka and the table, without Spark between them."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.decoder = CanalDecoder(plan.columns, plan.used)
        self.layout = TableLayout(Program(plan))
        self.table = EpochTable.create(directory / "epochs", self.layout)
        self.cache = directory / "cache"
        self.row = _row(0, plan, {})
        self.table.commit_epoch(self.row, ())
        self.line: list[CommittedEpoch] = [CommittedEpoch.of(self.row)]
        self.uuid = ""

    def decoded(self, lines: list[bytes]) -> tuple[list[pa.Array], Any]:
        """One range: its rows consolidated, as the decode task does it."""
        with collector_off():
            return self._decoded(lines)

    def _decoded(self, lines: list[bytes]) -> tuple[list[pa.Array], Any]:
        rows = SignedRows(self.plan.used)
        for start in range(0, len(lines), PLAIN_MESSAGES_AT_ONCE):
            plain = self.decoder.together(lines[start : start + PLAIN_MESSAGES_AT_ONCE])
            assert plain is not None
            rows.add_plain(plain)
        columns, signs = rows.joined()
        places = group_places(self.plan)
        groups = None if places is None else numbered([columns[i] for i in places], len(signs))
        weighted = consolidated(0, numbered(columns, len(signs)), signs, groups)
        taken = pa.array(weighted.places)
        return [column.take(taken) for column in columns], weighted

    def projected(self, columns: list[pa.Array], weighted: Any) -> pa.RecordBatch:
        """What Spark makes of them: group and argument expressions, and the bucket."""
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
        named[REPORT] = pa.nulls(len(rows), pa.binary())
        named[BUCKET] = pa.array([group[key] for key in used[names.index("name")]], pa.int32())
        return pa.RecordBatch.from_pydict(named)

    def folded(self, rows: pa.RecordBatch) -> FoldReport:
        self.uuid = uuid4().hex
        task = FoldTask(
            self.plan, self.table.root, self.cache, self.row.epoch + 1, self.uuid,
            self.line[-1].stamp, self.table.version, tuple(self.line),
        )  # fmt: skip
        (output,) = task(iter([rows]))
        return msgspec.json.decode(output["payload"][0].as_py(), type=FoldReport)

    def commit(self, report: FoldReport) -> None:
        files: dict[str, list[str]] = {}
        for file in report.files:
            files.setdefault(file.part, []).append(file.path)
        self.row = _row(self.row.epoch + 1, self.plan, files, self.uuid)
        self.table.commit_epoch(self.row, report.files)
        self.line.append(CommittedEpoch.of(self.row))


def _row(epoch: int, plan: Plan, files: dict[str, list[str]], uuid: str = "start") -> EpochRow:
    return EpochRow(
        epoch=epoch, uuid=uuid, generation=1, kind="data" if epoch else "start",
        committed_at=now_ms() * 1_000, plan=plan.fingerprint, offsets={}, topics={},
        counters={}, files=files,
    )  # fmt: skip


def _value_of(expression: Expression, names: list[str]) -> Callable[[Row], Value]:
    """A row expression as a function; the few that the calls have."""
    if isinstance(expression, Composite):
        parts = [_value_of(part, names) for part in expression.parts]
        return lambda row: tuple(part(row) for part in parts)

    def placed(part: Expression) -> Expression | None:
        if isinstance(part, Column):
            return KeyValue(names.index(part.name), part.type)
        return None

    return evaluator(replaced(expression, placed), len(names))


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
