"""A reader tells the values of a group apart, epoch by epoch, whatever was merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.changing.evolve import evolve
from jobs.core.explain.extreme_changes import ValueChange
from jobs.edge.table.compaction import BASE_TIER, Merge, merge_files
from jobs.reading.group import GroupReader, ReadFiles
from jobs.reading.parts import MULTISETS
from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from schemas.spec.file import load_spec
from schemas.types.sql_types import INT, STRING
from tests.support.tables.written_table import BUCKETS, WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
EPOCHS = 12


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    """Each epoch has one value of its own, so a value comes in one and goes in the next."""
    written = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    for epoch in range(1, EPOCHS + 1):
        written.epoch({("bolt",): (0, 100 + epoch), ("nut",): (epoch % 3,)})
    return written


def merge(table: WrittenTable, tier: int, first: int, last: int) -> list[str]:
    """Merge the multiset files of some epochs, whose files stay on disk; return their names."""
    files = tuple(
        file
        for file in table.table.live_files()
        if file.part == MULTISETS and first <= file.epoch_min and file.epoch_max <= last
    )
    added = merge_files(table.plan, table.place.table, Merge(MULTISETS, tier, files), f"m{last}")
    table.table.commit(added, files, uuid=f"m{last}", what="merge")
    return [file.path for file in files]


def steps(table: WrittenTable, last: int = EPOCHS) -> dict[int, list[ValueChange] | None]:
    """Return for each epoch what it did to the multiset of bolt."""
    version = TableVersion(table.place.table)
    reader = GroupReader(version, RowShape(table.plan), ("bolt",), BUCKETS)
    history = reader.multisets
    found = {epoch: history.steps(0, epoch - 1, epoch) for epoch in range(1, last + 1)}
    return {epoch: None if each is None else sorted(each) for epoch, each in found.items()}


def moved(epoch: int) -> set[ValueChange]:
    return {ValueChange(99 + epoch, 1, 0), ValueChange(100 + epoch, 0, 1)}


def test_values_stay_apart_after_any_merge_while_the_files_of_the_epochs_are_there(
    table: WrittenTable,
) -> None:
    before = steps(table)
    merge(table, 1, 1, 4)
    merge(table, 1, 5, 8)
    assert steps(table) == before
    merge(table, 2, 1, 8)
    merge(table, BASE_TIER, 1, 10)
    found = steps(table)
    assert found == before
    for epoch in range(2, EPOCHS + 1):
        assert set(found[epoch] or ()) == moved(epoch)


def test_nothing_is_claimed_about_epochs_that_a_merged_file_hides(table: WrittenTable) -> None:
    before = steps(table)
    gone = merge(table, 1, 1, 4)
    kept = merge(table, 1, 5, 8)
    for name in gone[:-1]:
        (table.place.table / name).unlink()
    found = steps(table)
    assert all(found[epoch] is None for epoch in range(1, 5))
    assert all(found[epoch] == before[epoch] for epoch in range(5, EPOCHS + 1))
    # One file of the second merge is gone as well: all of its epochs are hidden.
    (table.place.table / kept[1]).unlink()
    found = steps(table)
    assert all(found[epoch] is None for epoch in range(1, 9))
    assert all(found[epoch] == before[epoch] for epoch in range(9, EPOCHS + 1))


def test_an_evolve_hides_no_epoch_after_it(table: WrittenTable) -> None:
    """It writes the whole state in its own epoch, which is merged as the state of any other."""
    document = load_spec(table.place.spec).document()
    renamed = load_spec(document | {"query": QUERY.replace("top", "most")})
    assert evolve(table.place, renamed).row is not None
    table.continue_with(renamed)
    evolved = EPOCHS + 1
    for epoch in range(evolved + 1, evolved + EPOCHS + 1):
        table.epoch({("bolt",): (0, 100 + epoch), ("nut",): (epoch % 3,)})
    for tier, last in ((1, evolved + 4), (2, evolved + 8), (BASE_TIER, evolved + 10)):
        merge(table, tier, 1, last)
        found = steps(table, evolved + EPOCHS)
        assert found[evolved + 1] == [
            ValueChange(99 + evolved, 1, 0),
            ValueChange(101 + evolved, 0, 1),
        ]
        for epoch in range(evolved + 2, evolved + EPOCHS + 1):
            assert set(found[epoch] or ()) == moved(epoch)


def test_a_second_reader_reads_new_files_only(table: WrittenTable) -> None:
    merge(table, 1, 1, 8)
    version, shape = TableVersion(table.place.table), RowShape(table.plan)
    read: ReadFiles = {}
    before = GroupReader(version, shape, ("bolt",), BUCKETS, read).multisets.steps(0, 2, 3)
    assert len(read) == 8 and before
    for names in read:
        for name in names:
            Path(str(table.place.table / name)).write_bytes(b"")  # it could not be read again
    again = GroupReader(version, shape, ("bolt",), BUCKETS, read)
    assert again.multisets.steps(0, 2, 3) == before
