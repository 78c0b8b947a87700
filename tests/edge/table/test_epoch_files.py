"""Epoch files: what is written is read back, and statistics never hide a row from a reader."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.core.fold.program import Program
from jobs.core.fold.state import Clock, Group, GroupTimer, MemoryState, Upserts, gather_multisets
from jobs.core.fold.visibility import Visibility
from jobs.core.rows.key_history import KeyEnd, KeyState
from jobs.core.sql.select import parse_query
from jobs.edge.rows.late_rows import LateRow
from jobs.edge.state.bucket_states import StateFiles
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import Reject, TableLayout
from jobs.edge.table.file_writer import STATISTICS, FileWriter, file_name, write_file
from jobs.reading.epoch_rows import read_epoch_rows
from jobs.reading.parts import (
    ACCUMULATORS,
    CHANGELOG,
    EPOCHS,
    LATE,
    MULTISETS,
    PARTS,
    QUARANTINE,
    ROWS,
    TIMERS,
)
from schemas.table.epoch import TopicIdentity
from schemas.table.object_path import TablePath
from schemas.types.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    decimal,
    timestamp,
)
from tests.support.epoch_rows import epoch_row
from tests.support.tables.folded_table import FoldedTable, insert

COLUMNS = {
    "s": STRING,
    "f": DOUBLE,
    "d": decimal(38, 10),
    "b": BOOLEAN,
    "x": BINARY,
    "day": DATE,
    "at": timestamp(6),
    "v": BIGINT,
    "w": DOUBLE,
}
QUERY = (
    "SELECT s, f, d, b, x, day, at, SUM(v) AS total, MAX(w) AS top, MIN(d) AS low "
    "FROM t GROUP BY s, f, d, b, x, day, at"
)
LONG = "long " * 40 + "\U0001f600"
KEYS: list[tuple[Any, ...]] = [
    (None,) * 7,
    ("", math.nan, 10**38 - 1, True, b"", 0, 0),
    (LONG + "a", math.inf, -(10**38) + 1, False, b"\xff" * 100, -1, -1),
    (LONG + "b", -math.inf, 0, None, b"\xff" * 100 + b"\0", 2_932_896, 253_402_300_799_999_999),
    ("\U0010ffff" * 40, 0.0, 1, True, b"\0", None, None),
    ("a\0b", -1.5, None, True, None, 1, 1),
]


# Of rows by (s, f): a key that is there, one that is gone, one of NULLs.
IMAGES: list[tuple[Any, Any]] = [
    (
        (LONG, math.nan),
        KeyState((LONG, math.nan, 10**38 - 1, True, b"\xff", -1, 1, -(2**63), math.inf), 5, 7),
    ),
    (("gone", 1.5), None),
    (("left", 1.5), KeyState(None, 6, 7, -(2**63), (KeyEnd(-(2**63), 6, 1, 0),))),
    ((None, None), KeyState((None,) * 9)),
]


@pytest.fixture(scope="module")
def layout() -> TableLayout:
    plan = parse_query(QUERY, COLUMNS)
    return TableLayout(Program(replace(plan, primary_key=plan.columns[:2])))


def upserts_of(layout: TableLayout) -> Upserts:
    zeros = (0,) * (len(layout.program.cells) - 1)
    chance = random.Random(5)
    groups: list[Any] = []
    for number, key in enumerate(KEYS):
        result = (number, chance.choice([None, math.nan, 1.5]), chance.choice([None, 10**38 - 1]))
        groups.append((key, Group((number + 1, *zeros), result) if number != 3 else None))
    values = [math.nan, -math.inf, 0.0, 10**38 - 1]
    entries = [
        (argument, key, values[3] if argument == layout.program.multisets[-1] else values[i % 3], i)
        for argument in layout.program.multisets
        for i, key in enumerate(KEYS)
    ]
    cells: list[Any] = []
    results: list[Any] = []
    for _, group in groups:
        cells.append(None if group is None else group.cells)
        results.append(None if group is None else group.result)
    groups[1] = (KEYS[1], Group(cells[1], (None,) * 3, Visibility.UNSHOWN, 5, 1_005))
    groups[2] = (KEYS[2], Group(cells[2], results[2], Visibility.WITHHELD, -(2**62), 7))
    groups[4] = (KEYS[4], Group(cells[4], results[4], Visibility.SHOWN, 5, 1_005))
    groups[5] = (KEYS[5], Group(cells[5], results[5], Visibility.CLOSED))
    timers = [
        (GroupTimer(clock, number - 2, f"ns {number}", key), number != 1)
        for clock in Clock
        for number, key in enumerate(KEYS)
    ]
    return Upserts(groups, gather_multisets(sorted(entries, key=lambda entry: entry[0])), timers)


def tables_of(layout: TableLayout) -> dict[str, pa.Table]:
    upserts = upserts_of(layout)
    changelog = [("+I", key, group.result) for key, group in upserts.groups if group]
    seqs = [(number << 32) + 7 for number in range(len(changelog))]
    rejects = [
        Reject("t", 0, 1, None, "why", "$.x", b"\xff\xfe\0", 3),
        Reject("t", 1, 2**40, 5, "ü", "", None, 10**9),
    ]
    late = [
        LateRow(
            topic="t",
            partition=0,
            offset=2**40,
            weight=-1,
            time_ms=-1,
            row="{}",
            became="{}",
            whole=True,
        ),
        LateRow(offset=0, weight=1, time_ms=2**62, row='{"ü":null}', became=None, whole=False),
    ]
    return {
        CHANGELOG: layout.changelog_table(3, seqs, changelog),  # type: ignore[arg-type]
        ACCUMULATORS: layout.accumulators_table(3, range(len(KEYS)), upserts.groups),
        MULTISETS: layout.multisets_table(3, range(len(upserts.multisets)), upserts.multisets),
        TIMERS: layout.timers_table(3, range(len(upserts.timers)), upserts.timers),
        LATE: layout.late_table(3, 7, late, KEYS[:2]),
        ROWS: layout.images.table(3, range(len(IMAGES)), IMAGES),
        QUARANTINE: layout.quarantine_table(3, rejects),
    }


@pytest.fixture(scope="module")
def table(layout: TableLayout, tmp_path_factory: pytest.TempPathFactory) -> EpochTable:
    """Three epochs of everything."""
    made = EpochTable.create(tmp_path_factory.mktemp("all") / "epochs", layout)
    made.commit_epoch(epoch_row(0), ())
    for epoch in (1, 2, 3):
        files = [
            write_file(made.root, file_name(part, epoch, "u", "f0"), rows)
            for part, rows in tables_of(layout).items()
        ]
        made.commit_epoch(epoch_row(epoch), files)
    return made


# --- rows -------------------------------------------------------------------------------------


def test_state_rows_come_back_as_the_upserts_they_were(layout: TableLayout) -> None:
    upserts, tables = upserts_of(layout), tables_of(layout)
    read = layout.read_upserts(tables[ACCUMULATORS], tables[MULTISETS], tables[TIMERS])
    assert repr(read) == repr(upserts), "by repr: a NaN is a NaN, and 0.0 no -0.0"
    sliced = (tables[ACCUMULATORS].slice(2, 3), tables[MULTISETS].slice(4, 2))
    half = layout.read_upserts(*sliced, tables[TIMERS].slice(1, 4))
    parts = (upserts.groups[2:5], upserts.multisets[4:6], upserts.timers[1:5])
    assert repr(half) == repr(Upserts(*parts))
    assert layout.read_upserts(None, None) == Upserts([], [], [])


def test_images_come_back_as_they_were(layout: TableLayout) -> None:
    names = tables_of(layout)[ROWS].schema.names
    state = ["key_time_ms", "key_partition", "key_changes"]
    assert names[3:] == [f"image_{column}" for column in COLUMNS] + state
    assert repr(layout.images.read(tables_of(layout)[ROWS])) == repr(IMAGES)


def test_images_of_older_versions_have_neither_time_nor_partition(layout: TableLayout) -> None:
    rows = tables_of(layout)[ROWS].drop_columns(["key_time_ms", "key_partition", "key_changes"])
    states = [state for _, state in layout.images.read(rows)]
    images = [None if state is None else state.image for _, state in IMAGES]
    assert repr(states) == repr([image and KeyState(image) for image in images])


def test_a_group_that_nobody_has_seen_yet_is_gone_for_who_reads_tombstones_only(
    layout: TableLayout,
) -> None:
    shown = [not dead for dead in tables_of(layout)[ACCUMULATORS]["tombstone"].to_pylist()]
    assert shown == [True, False, True, False, True, True]


def test_without_time_an_accumulator_says_nothing_of_it(layout: TableLayout) -> None:
    groups = [(KEYS[0], upserts_of(layout).groups[0][1]), (KEYS[3], None)]
    rows = layout.accumulators_table(3, [0, 0], groups)
    for name in ("withheld", "written_ms", "timer_ms"):
        assert rows[name].null_count == rows.num_rows


def test_an_epoch_row_comes_back_as_it_was(layout: TableLayout, tmp_path: Path) -> None:
    row = epoch_row(
        7,
        counters={"dropped_keys": {"ü\0": 2}},
        topics={"t": TopicIdentity("id", 3)},
        watermarks={"event_time_max": {"t/0": 2**53}},
        files={CHANGELOG: ["x"]},
        kind="time",
    )
    added = write_file(tmp_path, file_name(EPOCHS, 7, "u", "driver"), layout.epochs_table(row))
    assert read_epoch_rows(tmp_path / added.path) == [row]


def test_quarantine_keeps_the_bytes_that_came(layout: TableLayout) -> None:
    rows = tables_of(layout)[QUARANTINE].to_pylist()
    assert [row["raw"] for row in rows] == [b"\xff\xfe\0", None]
    assert [row["offset"] for row in rows] == [1, 2**40]


@pytest.mark.parametrize("name", ["bucket", "Epoch", "row_count", "acc_sum_v", "value_v", "part"])
def test_a_result_may_not_take_the_name_of_a_column_of_ours(name: str) -> None:
    query = f'SELECT s, SUM(v) AS "{name}", MAX(v) AS top FROM t GROUP BY s'
    try:
        plan = parse_query(query, COLUMNS)
    except ValueError:
        return  # refused even earlier
    with pytest.raises(ValueError, match="AS"):
        TableLayout(Program(plan))


# --- statistics -------------------------------------------------------------------------------


def test_statistics_are_those_of_the_contents_and_of_whole_numbers_only(table: EpochTable) -> None:
    for action in _adds(table.root):
        stats = json.loads(action["stats"])
        rows = pq.read_table(table.root / action["path"], partitioning=None)
        assert stats["numRecords"] == rows.num_rows
        expected = {
            name: pc.min_max(rows[name]).as_py() for name in STATISTICS if name in rows.column_names
        }
        assert stats["minValues"] == {name: each["min"] for name, each in expected.items()}
        assert stats["maxValues"] == {name: each["max"] for name, each in expected.items()}
        assert stats["nullCount"] == {name: rows[name].null_count for name in expected}
        assert {rows[name].type for name in expected} <= {pa.int64(), pa.int32()}


def test_a_file_of_several_row_groups_has_the_statistics_of_all(
    layout: TableLayout, tmp_path: Path
) -> None:
    rows = tables_of(layout)[ACCUMULATORS]
    whole = write_file(tmp_path, file_name(ACCUMULATORS, 3, "u", "one"), rows)
    name = file_name(ACCUMULATORS, 3, "u", "many")
    with FileWriter(tmp_path, name, rows.schema) as writer:
        for start in range(rows.num_rows):
            writer.write(rows.slice(start, 1))
    assert pq.ParquetFile(tmp_path / name).num_row_groups == rows.num_rows
    assert writer.added.stats == whole.stats
    assert writer.added.rows == whole.rows
    assert writer.added.size == (tmp_path / name).stat().st_size


VALUES_LOOKED_FOR = 4  # of each column


def test_no_filter_on_any_column_loses_a_row(table: EpochTable) -> None:
    """What a reader that prunes by statistics finds is what there is."""
    delta = DeltaTable(str(table.root))
    pruned = delta.to_pyarrow_dataset()
    everything = delta.to_pyarrow_table()
    checked = 0
    for name in everything.column_names:
        column = everything[name]
        for value in column.unique()[:VALUES_LOOKED_FOR]:
            if not value.is_valid:
                wanted = [ds.field(name).is_null()]
            elif pa.types.is_boolean(value.type):
                wanted = [ds.field(name) == value]
            else:
                of = ds.field(name)
                compared = [of >= value, of <= value, of > value, of < value]
                wanted = [of == value, compared[checked // 2 % len(compared)]]
            for expression in wanted:
                expected = everything.filter(expression).num_rows
                assert pruned.count_rows(filter=expression) == expected, (name, value)
                checked += 1
    assert checked > 80


def _adds(root: TablePath) -> list[dict[str, Any]]:
    lines = [
        line
        for path in (root / "_delta_log").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    adds = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    assert {add["partitionValues"]["part"] for add in adds} == set(PARTS)
    return adds


# --- one bucket of a file ---------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 3, 1_000])
def test_a_bucket_is_read_from_its_row_groups_only(tmp_path: Path, cut: int) -> None:
    made = FoldedTable(tmp_path / "epochs", buckets=8)
    made.epoch(insert("a", 1) + [row for name in range(50) for row in insert(f"g{name}", name)])
    names = {f.part: f.path for f in made.table.live_files() if f.epoch_min == 1}
    files = []
    for part in (ACCUMULATORS, MULTISETS):
        rows = pq.ParquetFile(made.root / names[part]).read()
        name = file_name(part, 1, "u", f"cut{cut}")
        with FileWriter(made.root, name, rows.schema) as writer:
            for start in range(0, rows.num_rows, cut):
                writer.write(rows.slice(start, cut))
        files.append((part, name))
    by_bucket = MemoryState()
    reader = StateFiles(made.root, made.layout, (ACCUMULATORS, MULTISETS))
    count = 0
    for bucket in (*range(7, -1, -1), 99):
        upserts = reader.of_bucket(bucket, files)
        count += len(upserts.groups)
        by_bucket.apply(upserts)
    assert count == 51
    assert vars(by_bucket)["_groups"] == vars(made.state)["_groups"]
    keys = [("a",), ("g7",)]
    assert [by_bucket.entries(0, key) for key in keys] == [[(1, 1)], [(7, 1)]]
