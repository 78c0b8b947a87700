"""One group of a table: its multiset in order, its own changes, and nothing of other groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.core.fold.state import Key
from jobs.table import group as module
from jobs.table.group import GroupReader, UnknownGroup
from jobs.table.row_shape import RowShape
from jobs.table.version import TableVersion
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in
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
        assert group.explain()["row_count"] == len(values)
        assert group.entries() == [(0, value, values.count(value)) for value in sorted(set(values))]


def test_a_group_that_is_gone_has_a_history_and_no_state(written: WrittenTable) -> None:
    gone = next((name,) for name in NAMES if (name,) not in written.history[-1])
    document = group_of(written, gone).explain()
    assert (document["row_count"], document["row"]) == (None, None)
    assert document["epochs"]


def test_a_group_that_never_was_is_unknown(written: WrittenTable) -> None:
    with pytest.raises(UnknownGroup, match="nor was one"):
        group_of(written, ("never was one",)).explain()


def test_the_changes_of_all_groups_are_the_changelog(written: WrittenTable) -> None:
    changes = [row for name in NAMES for row in group_of(written, (name,)).changes()]
    places = sorted((row["epoch"], row["seq"]) for row in changes)
    assert places == [(row.epoch, row.seq) for row in written.reader().changes()]
    newest = group_of(written, ("a",)).changes()
    assert group_of(written, ("a",)).changes(limit=1) == newest[-1:]


def test_small_files_are_read_together_with_the_same_result(
    written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    filtered: list[object] = []

    def spy(path: TablePath, **options: Any) -> pa.Table:
        filtered.extend([path] if options.get("filters") is not None else ())
        return rows_in(path, **options)

    def explain() -> list[dict[str, Any]]:
        return [group_of(written, (name,)).explain() for name in NAMES]

    monkeypatch.setattr(module, "rows_in", spy)
    monkeypatch.setattr(module, "_FILES_AT_ONCE", 3)
    together = explain()
    assert not filtered, "a filter of each small file takes far longer than reading it"
    monkeypatch.setattr(module, "_SMALL_BYTES", 0)
    assert explain() == together
    assert filtered
