"""Epoch rows are read as they were written; a damaged footer is named as damage."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.table.epoch_rows import read_epoch_rows
from jobs.table.files import live_files, open_table
from jobs.table.parts import EPOCHS
from schemas.table.parquet_file import TableDamaged
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
