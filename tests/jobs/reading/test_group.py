"""One group of a table: its multiset in order, its own changes, and nothing of other groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.core.fold.state import Key
from jobs.reading import group as module
from jobs.reading import scan
from jobs.reading.group import GroupReader, UnknownGroup
from jobs.reading.row_shape import RowShape
from jobs.reading.scan import Wanted
from jobs.reading.version import TableVersion
from schemas.documents.explanation import Explained
from schemas.table.object_path import TablePath
from schemas.types.sql_types import INT, STRING
from tests.support.tables.written_table import NAMES, WrittenTable, write_random_history


@pytest.fixture
def written(tmp_path: Path) -> WrittenTable:
    return write_random_history(tmp_path)


def group_of(written: WrittenTable, key: Key) -> GroupReader:
    table = written.reader()
    version = TableVersion(table.root, table.handle)
    return GroupReader(version, RowShape(table.plan), key, table.spec.state.buckets)


def test_a_group_has_its_multiset_in_order(written: WrittenTable) -> None:
    for key, values in written.history[-1].items():
        group = group_of(written, key)
        assert group.explain("j").row_count == len(values)
        assert group.entries() == [(0, value, values.count(value)) for value in sorted(set(values))]


def test_a_group_that_is_gone_has_a_history_and_no_state(written: WrittenTable) -> None:
    gone = next((name,) for name in NAMES if (name,) not in written.history[-1])
    document = group_of(written, gone).explain("j")
    assert (document.row_count, document.row) == (None, None)
    assert document.epochs


def test_a_group_that_never_was_is_unknown(written: WrittenTable) -> None:
    with pytest.raises(UnknownGroup, match="nor was one"):
        group_of(written, ("never was one",)).explain("j")


def test_the_changes_of_all_groups_are_the_changelog(written: WrittenTable) -> None:
    changes = [row for name in NAMES for row in group_of(written, (name,)).changes()]
    places = sorted((row.epoch, row.seq) for row in changes)
    assert places == [(row.epoch, row.seq) for row in written.reader().changes()]
    newest = group_of(written, ("a",)).changes()
    assert group_of(written, ("a",)).changes(limit=1) == newest[-1:]


def test_many_files_are_read_in_scans_with_the_same_result(
    written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain() -> list[Explained]:
        return [group_of(written, (name,)).explain("j") for name in NAMES]

    together = explain()
    for name, count in (("_FILES_AT_ONCE", 3), ("_SMALL_ROWS", 0)):
        monkeypatch.setattr(scan, name, count)
        assert explain() == together


def test_the_newest_changes_and_the_state_are_found_in_the_newest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
    table = WrittenTable(tmp_path, query, {"name": STRING, "v": INT})
    for epoch in range(1, 101):
        table.epoch({("a",): (epoch,), ("b",): (epoch // 50,)})
    opened: list[str] = []
    really = scan.scan_files

    def spy(root: TablePath, names: Sequence[str], wanted: Wanted | None = None) -> list[pa.Table]:
        opened.extend(names)
        return really(root, names, wanted)

    monkeypatch.setattr(scan, "_FILES_AT_ONCE", 10)
    monkeypatch.setattr(module, "scan_files", spy)
    assert [each.epoch for each in group_of(table, ("a",)).changes(limit=4)] == [99, 99, 100, 100]
    assert len(opened) == 10
    # Group b changed in epoch 50 last, and the third change from the end is in an older file.
    assert [each.epoch for each in group_of(table, ("b",)).changes(limit=3)] == [50, 100, 100]
