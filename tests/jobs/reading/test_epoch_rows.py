"""Epoch rows are read as they were written; audits count those that led to the newest one."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.reading.epoch_rows import drop_undone, read_epoch_rows, sum_audited
from jobs.reading.files import live_files, open_table
from jobs.reading.parts import EPOCHS
from schemas.table.epoch import EpochRow
from schemas.table.parquet_file import TableDamaged
from tests.support.epoch_rows import epoch_row
from tests.support.tables.folded_table import FoldedTable


@pytest.fixture
def epoch_file(tmp_path: Path) -> Path:
    FoldedTable(tmp_path)
    (file,) = [file for file in live_files(open_table(tmp_path)) if file.part == EPOCHS]
    return tmp_path / file.path


def test_an_epoch_row_is_read_as_it_was_written(epoch_file: Path) -> None:
    (row,) = read_epoch_rows(epoch_file)
    assert (row.epoch, row.kind, row.offsets) == (0, "start", {"t": {"0": 0}})


@pytest.mark.parametrize("column", ["generation", "committed_at", "offsets"])
def test_a_column_that_damage_renamed_is_damage(epoch_file: Path, column: str) -> None:
    rows = pq.read_table(epoch_file, partitioning=None)
    renamed = [f"{name}~" if name == column else name for name in rows.column_names]
    pq.write_table(rows.rename_columns(renamed), epoch_file)
    with pytest.raises(TableDamaged, match=f"{epoch_file.name} is damaged .*restore it"):
        read_epoch_rows(epoch_file)


def row(epoch: int, kind: str = "data", **counters: int) -> EpochRow:
    return epoch_row(epoch, kind=kind, counters=counters)


def test_epochs_after_the_target_of_a_rewind_are_undone() -> None:
    rows = [row(0, "start"), row(1), row(2), row(3), row(4, "rewind", rewound_to=1), row(5)]
    assert [each.epoch for each in drop_undone(rows)] == [0, 1, 4, 5]
    again = [*rows, row(6, "rewind", rewound_to=3), row(7)]
    assert [each.epoch for each in drop_undone(again)] == [0, 1, 2, 3, 6, 7]
    assert drop_undone(rows[:3]) == rows[:3] and drop_undone([]) == []


def test_epochs_before_a_replay_are_undone_and_a_rewind_to_them_undoes_the_replay() -> None:
    replayed = row(3, "evolve", dropped_retractions=0)
    rows = [row(0, "start"), row(1, late_windows=5), row(2), replayed, row(4, late_windows=1)]
    assert [each.epoch for each in drop_undone(rows)] == [3, 4]
    assert sum_audited(rows) == {
        "dropped_retractions": 0,
        "unmatched_retractions": 0,
        "late_windows": 1,
    }
    back = [*rows, row(5, "rewind", rewound_to=2)]
    assert [each.epoch for each in drop_undone(back)] == [0, 1, 2, 5]
    kept_state = [*rows[:3], row(3, "evolve", groups=1), row(4)]
    assert drop_undone(kept_state) == kept_state
