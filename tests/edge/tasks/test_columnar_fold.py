"""The fold in arrays says what the general fold says: same files, same counters, same state.

random weighted rows ─┬─► FoldTask in arrays, on a hot state in any condition ─┐
                      └─► FoldTask in general ─────────────────────────────────┴─► equal
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.core.fold.columnar.query import why_not_columnar
from jobs.core.fold.fold import FoldResult, fold, open_groups
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.rules import DEFAULT_RULES, Rules
from jobs.core.kernels.apply_records import apply_records, copy_living
from jobs.core.kernels.fold_rows import gather_rows, merge_groups
from jobs.core.kernels.group_keys import put_numbers, put_texts
from jobs.core.plan.bucket import bucket_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.projection import row_projection
from jobs.edge.machine.memory import Memory
from jobs.edge.rows.weighted_rows import BUCKET, POSITION, WEIGHT, Parcel, pack_rows
from jobs.edge.state import columnar_state, hot_state
from jobs.edge.state.bucket_states import CommittedEpoch, CommittedState
from jobs.edge.table.compaction import BASE_TIER, Merge
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks import columnar_fold
from jobs.edge.tasks.fold import FoldTask
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.stage_functions import ViewsFold
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS, STATE
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import SqlType
from tests.support.histories.change_scripts import Script, scripts
from tests.support.histories.moved_keys import Reader, histories, interleavings, recompute
from tests.support.histories.scripted_bundles import bundles_of, plan_of, rules_of_script
from tests.support.sampling import quick
from tests.support.tables.folded_table import BUCKETS, FoldedTable, a_plan

COLUMNS = {
    name: SqlType.parse(kind)
    for name, kind in {
        "name": "STRING",
        "city": "STRING",
        "v": "INT",
        "big": "BIGINT",
        "price": "DECIMAL(18, 2)",
        "day": "DATE",
        "at": "TIMESTAMP(6)",
        "yes": "BOOLEAN",
        "bits": "BINARY",
        "t": "TIME",
    }.items()
}
QUERIES = [
    "SELECT name, SUM(v) AS total, MAX(v) AS top, COUNT(*) AS n FROM t GROUP BY name",
    "SELECT name, city, MIN(v) AS low, MAX(v) AS top, COUNT(v) AS n FROM t GROUP BY name, city",
    "SELECT v, COUNT(*) AS n, COUNT(name) AS named FROM t GROUP BY v",
    "SELECT SUM(big) AS s, AVG(big) AS m, MIN(big) AS low FROM t",
    "SELECT name, SUM(price) AS s, AVG(price) AS m, MAX(price) AS top FROM t GROUP BY name",
    "SELECT day, yes, bits, t, price, at, COUNT(*) AS n FROM t "
    "GROUP BY day, yes, bits, t, price, at",
    "SELECT name, COUNT(DISTINCT v) AS n, SUM(DISTINCT v) AS s, AVG(DISTINCT v) AS m, "
    "MAX(big) AS b FROM t GROUP BY name",
    "SELECT name, MIN(day) AS first, MAX(at) AS last, ANY_VALUE(yes) AS y, AVG(v) AS m "
    "FROM t GROUP BY name",
    "SELECT name FROM t GROUP BY name",
]
WITHOUT_INPUT = "SELECT SUM(v) AS s, AVG(big) AS m, MIN(big) AS low, COUNT(*) AS n FROM t"
RESULT_NAMES = ("k", "n", "total", "top", "low")
RESULTS = "SELECT k, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS top, MIN(v) AS low FROM t GROUP BY k"
Weighted = tuple[tuple[Any, ...], tuple[Any, ...], int, int]  # group, arguments, weight, position


class HeadedTable(FoldedTable):
    """A table whose rows have positions, so that some are heads."""

    def _fold(self, rows: list[Any]) -> FoldResult:
        program = self.layout.program
        columns = [[row[1][i] for row in rows] for i in range(len(self.plan.arguments))]
        weights, positions = [row[2] for row in rows], [row[3] for row in rows]
        gathered = program.gather([row[0] for row in rows], *columns, positions, weights)
        return fold(program, self.state, gathered, self._context)

    def open(self) -> Any:
        """Emit the rows that groups have without input."""
        keys, program = self.plan.empty_keys, self.layout.program

        def open_bucket(bucket: int) -> FoldResult:
            mine = [key for key in keys if bucket_of(key, self.types, self.buckets) == bucket]
            return open_groups(program, self.state, mine, self._context)

        return self._epoch(open_bucket, 1, {})

    def epoch(self, rows: Any = (), **fields: Any) -> Any:
        of_bucket: dict[int, list[Any]] = {bucket: [] for bucket in range(self.buckets)}
        for row in rows:
            of_bucket[bucket_of(row[0], self.types, self.buckets)].append(row)
        return self._epoch(lambda bucket: self._fold(of_bucket[bucket]), 1, fields)


def value_of(chance: random.Random, kind: str) -> Any:
    """A value of few, and now and then an end of its type."""
    if chance.random() < 0.15:
        return None
    if kind in ("STRING", "TIME"):
        return chance.choice(
            ["", "a", "b", "\0", "a\0", "longer than eight bytes", "é", "12:00:01"]
        )
    if kind == "BINARY":
        return chance.choice([b"", b"\0", b"\xff", b"\0\0\1"])
    if kind == "BOOLEAN":
        return chance.random() < 0.5
    ends = {"INT": 31, "BIGINT": 63, "DATE": 19, "TIMESTAMP(6)": 50}
    if chance.random() < 0.1:
        limit = 10**18 - 1 if kind.startswith("DECIMAL") else (1 << ends[kind]) - 1
        return chance.choice([limit, -limit, -limit - 1 if kind in ("INT", "BIGINT") else 0])
    return chance.randint(-4, 6)


def rows_of(plan: Plan, chance: random.Random, size: int, known: list[Weighted]) -> list[Weighted]:
    """Rows of an epoch: new ones, those that take back earlier ones, and strangers."""
    rows: list[Weighted] = []
    for position in range(size):
        if known and chance.random() < 0.45:
            group, arguments, *_ = known.pop(chance.randrange(len(known)))
            weight = -1
        else:
            group = tuple(value_of(chance, str(each.type)) for each in plan.group)
            arguments = tuple(value_of(chance, str(each.type)) for each in plan.arguments)
            weight = chance.choice([1, 1, 1, 1, 2, 2, 0, -1])
            known += [(group, arguments, 1, 0)] * max(weight, 0)
        head = weight == -1 and chance.random() < 0.5
        rows.append((group, arguments, weight, ~position if head else position))
    return rows


def as_parcel(plan: Plan, rows: list[Weighted]) -> Parcel:
    named = {}
    for index, each in enumerate(plan.group):
        named[f"g{index}"] = to_arrow([row[0][index] for row in rows], each.type)
    for index, each in enumerate(plan.arguments):
        named[f"a{index}"] = to_arrow([row[1][index] for row in rows], each.type)
    types = [each.type for each in plan.group]
    named[POSITION] = pa.array([row[3] for row in rows], pa.int64())
    named[WEIGHT] = pa.array([row[2] for row in rows], pa.int64())
    buckets = [bucket_of(row[0], types, BUCKETS) for row in rows]
    named[BUCKET] = pa.array(buckets, pa.int32())
    return pack_rows(0, 0, pa.RecordBatch.from_pydict(named))


def run(made: FoldedTable, line: list[Any], cache: Path, rows: Parcel, uuid: str) -> FoldReport:
    recent = tuple(map(CommittedEpoch.of, line))
    task = FoldTask(
        made.plan,
        CommittedState(made.root, cache, recent[-1].stamp, made.table.version, recent),
        EpochAttempt(made.newest.epoch + 1, uuid),
        made.rules,
    )
    (output,) = ViewsFold((task,)).run([rows])
    return msgspec.json.decode(output, type=FoldReport)


def written(made: FoldedTable, report: FoldReport, part: str) -> list[dict[str, Any]]:
    names = [file.path for file in report.files if file.part == part]
    rows = [row for name in names for row in pq.ParquetFile(made.root / name).read().to_pylist()]
    return rows if part == CHANGELOG else sorted(rows, key=repr)


@pytest.fixture(autouse=True)
def closed_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Open states keep descriptors, and other tests look at how many there are."""
    opened: dict[Any, hot_state.HotState] = {}
    monkeypatch.setattr(columnar_state._states, "held", {})
    monkeypatch.setattr(hot_state._states, "held", opened)
    yield
    for state in opened.values():
        state.close()


@pytest.mark.parametrize("seed", quick(range(5), [3]))
@pytest.mark.parametrize("query", [*QUERIES, WITHOUT_INPUT])
def test_both_folds_write_the_same_files(
    query: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{query} {seed}")
    plan = a_plan(query, COLUMNS)
    if query == WITHOUT_INPUT:
        plan = replace(plan, empty_keys=((),))
    assert why_not_columnar(plan, DEFAULT_RULES) is None
    assert columnar_fold.has_kernels()
    if seed == 3:  # many threads read the pages of a state beyond memory first
        monkeypatch.setattr(columnar_state, "read_memory", lambda: Memory(0, None))
    made = HeadedTable(tmp_path / "epochs", plan)
    line = [made.newest, made.open()]
    known: list[Weighted] = []
    changed = 0
    for number in range(8):
        rows = rows_of(plan, chance, chance.choice([1, 4, 30, 200]), known)
        uuid = f"epoch-{number}"
        condition = chance.choice(("nothing", "nothing", "forget", "no redo", "merge"))
        if condition == "forget":
            shutil.rmtree(tmp_path / "arrays", ignore_errors=True)
        elif condition == "no redo":
            for redo in tmp_path.glob("arrays/*/redo"):
                redo.unlink()
        elif condition == "merge":
            for part in STATE:
                files = tuple(f for f in made.table.live_files() if f.part == part)
                if files:
                    made.merge(Merge(part, chance.choice((1, BASE_TIER)), files))
        batch = as_parcel(plan, rows)
        found = run(made, line, tmp_path / "arrays", batch, uuid)
        with monkeypatch.context() as patch:
            patch.setattr(columnar_fold, "has_kernels", lambda: False)
            wanted = run(made, line, tmp_path / "lmdb", batch, f"{uuid}-general")
        for part in (CHANGELOG, ACCUMULATORS, MULTISETS):
            assert written(made, found, part) == written(made, wanted, part), (number, part)
        in_arrays = found.counters.pop("groups_in_arrays")
        assert in_arrays == found.counters["groups_touched"]
        assert found.counters == wanted.counters
        assert sorted(found.keys_below_zero) == sorted(wanted.keys_below_zero)
        assert found.below_zero_delta == wanted.below_zero_delta
        assert found.groups_delta == wanted.groups_delta
        assert found.changelog_rows == wanted.changelog_rows
        changed += found.changelog_rows
        line.append(made.epoch(rows, uuid=uuid))
    assert changed > 0


def test_sums_of_rows_with_weights_beyond_32_bits_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A joined row is there as often as the product of how often its rows are."""
    plan = a_plan(QUERIES[0], COLUMNS)
    made = HeadedTable(tmp_path / "epochs", plan)
    weights = (2**31, 2**40 - 1, -(2**45) + 1, 1, -(2**30), 3)
    values = (-1, 2**31 - 1, -(2**31), 0, 7, -1)
    rows: list[Weighted] = [
        (("a",), (value,), weight, position)
        for position, (value, weight) in enumerate(zip(values * 6, weights * 5, strict=False))
    ]
    batch = as_parcel(plan, [*rows, (("a",), (1,), 2**50, len(rows))])
    found = run(made, [made.newest], tmp_path / "arrays", batch, "arrays")
    assert found.counters["groups_in_arrays"] == 1
    monkeypatch.setattr(columnar_fold, "has_kernels", lambda: False)
    wanted = run(made, [made.newest], tmp_path / "lmdb", batch, "general")
    for part in (CHANGELOG, ACCUMULATORS, MULTISETS):
        assert written(made, found, part) == written(made, wanted, part), part


def _folds_in_arrays(script: Script) -> bool:
    plan = plan_of(script)
    folds_once = plan.grouping_sets == 1 and plan.window is None
    return folds_once and why_not_columnar(plan, rules_of_script(script)) is None


@pytest.mark.parametrize(
    "script", [each for each in scripts() if _folds_in_arrays(each)], ids=lambda each: each.name
)
def test_both_folds_write_the_same_files_for_each_script(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, rules = plan_of(script), rules_of_script(script)
    memory = MemoryFold(plan, row_projection(plan))
    made = HeadedTable(tmp_path / "epochs", plan, rules=rules)
    line = [made.newest, made.open()]
    for number, bundle in enumerate(bundles_of(script, plan)):
        groups, *arguments, positions, weights = memory.weigh(bundle.consolidate())
        of_rows = zip(*arguments, strict=True) if arguments else repeat(())
        rows: list[Any] = list(zip(groups, of_rows, weights, positions, strict=False))
        if not rows:
            continue
        batch = as_parcel(plan, rows)
        found = run(made, line, tmp_path / "arrays", batch, f"epoch-{number}")
        with monkeypatch.context() as patch:
            patch.setattr(columnar_fold, "has_kernels", lambda: False)
            wanted = run(made, line, tmp_path / "lmdb", batch, f"general-{number}")
        for part in (CHANGELOG, ACCUMULATORS, MULTISETS):
            assert written(made, found, part) == written(made, wanted, part), (number, part)
        line.append(made.epoch(rows, uuid=f"epoch-{number}"))
    assert len(line) > 2


@pytest.mark.parametrize("dedupe", [False, True], ids=["plain", "dedupe"])
@pytest.mark.parametrize("in_arrays", [False, True], ids=["general", "arrays"])
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_fold_has_the_live_rows_in_any_order_of_partitions(
    in_arrays: bool,
    dedupe: bool,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columnar_fold, "has_kernels", lambda: in_arrays)
    history, reader = data.draw(histories()), Reader(RESULTS, dedupe=dedupe)
    bundles = data.draw(interleavings(history.messages))
    projection = row_projection(reader.plan)
    assert projection is not None
    home = tmp_path_factory.mktemp("interleaved")
    made, line = HeadedTable(home / "epochs", reader.plan), []
    table: dict[str | None, tuple[Any, ...]] = {}
    for number, messages in enumerate(bundles):
        line.append(made.newest)
        bundle = Bundle()
        for message in messages:
            bundle.add(message.partition, number, reader.read(message))
        groups, arguments, positions, weights = MemoryFold(reader.plan, projection).weigh(
            bundle.consolidate()
        )
        rows: list[Any] = [
            (group, (argument,), weight, position)
            for group, argument, weight, position in zip(
                groups, arguments, weights, positions, strict=True
            )
        ]
        if not rows:
            continue
        report = run(made, line, home / "hot", as_parcel(reader.plan, rows), f"epoch-{number}")
        for row in written(made, report, CHANGELOG):
            key, *values = (row[name] for name in RESULT_NAMES)
            if row["op"] in ("+I", "+U"):
                table[key] = tuple(values)
            elif row["op"] == "-D":
                del table[key]
        made.epoch(rows, uuid=f"epoch-{number}")
    folded = sorted(((key, *values) for key, values in table.items()), key=repr)
    assert folded == recompute(RESULTS, history.rows)


def test_results_that_an_earlier_spec_withheld_are_released_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`minibatch.clock: event` was removed from the spec; old rows still say `withheld`."""
    plan = a_plan(QUERIES[0], COLUMNS)
    made = HeadedTable(tmp_path / "epochs", plan, rules=Rules(withhold=True))
    rows = rows_of(plan, random.Random(3), 60, [])
    line = [made.newest, made.epoch(rows, uuid="withheld"), made.time_epoch(1, release=True)]
    made.rules = DEFAULT_RULES
    batch = as_parcel(plan, rows)
    found = run(made, line, tmp_path / "arrays", batch, "arrays")
    monkeypatch.setattr(columnar_fold, "has_kernels", lambda: False)
    wanted = run(made, line, tmp_path / "lmdb", batch, "general")
    for part in (CHANGELOG, ACCUMULATORS, MULTISETS):
        assert written(made, found, part) == written(made, wanted, part), part
    assert found.changelog_rows > 0


def test_no_task_compiles(tmp_path: Path) -> None:
    """A kernel is compiled for one kind of arrays; set-up has compiled that one."""
    plan = a_plan(QUERIES[0], COLUMNS)
    made = HeadedTable(tmp_path / "epochs", plan)
    rows = rows_of(plan, random.Random(1), 50, [])
    run(made, [made.newest], tmp_path / "arrays", as_parcel(plan, rows), "once")
    line = [made.newest, made.epoch(rows, uuid="once")]
    run(made, line, tmp_path / "arrays", as_parcel(plan, rows), "twice")
    for kernel in (gather_rows, merge_groups, apply_records, copy_living, put_texts, put_numbers):
        assert len(kernel.signatures) == 1, kernel  # type: ignore[union-attr]
