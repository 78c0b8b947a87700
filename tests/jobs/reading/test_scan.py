"""Many files are scanned for values: the same rows as by a filter of each, and fewer pages read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.reading import scan
from jobs.reading.scan import Wanted, scan_files
from schemas.table.parquet_file import WRITTEN, TableDamaged, TableFileGone, rows_in

FILES = 40
NAMES = ["a", "b", "", "\u00fc", "\U0001f40c", None]


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    """Each file has two rows; the files in the middle have a column with fields before others."""
    names = [f"{number}.parquet" for number in range(FILES)]
    for number, name in enumerate(names):
        fields = {"fields": [{"x": 1, "y": 2}] * 2} if 10 <= number < 20 else {}
        two = [NAMES[number % 6], NAMES[number % 4]]
        columns = {"epoch": [number, number], "bucket": [number % 3, number % 5], "name": two}
        pq.write_table(pa.table(fields | columns), tmp_path / name, compression="zstd", **WRITTEN)
    return names


def test_files_come_in_order_in_tables_of_equal_columns(tmp_path: Path, names: list[str]) -> None:
    tables = scan_files(tmp_path, names)
    assert [table.column_names[0] for table in tables] == ["epoch", "fields", "epoch"]
    epochs = [epoch for table in tables for epoch in table["epoch"].to_pylist()]
    assert epochs == sorted([*range(FILES), *range(FILES)])


@pytest.mark.parametrize("small", [0, 10_000])
def test_the_rows_are_those_that_a_filter_of_each_file_finds(
    tmp_path: Path, names: list[str], monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(scan, "_SMALL_ROWS", small)

    def list_rows(tables: list[pa.Table]) -> list[dict[str, Any]]:
        return [row for table in tables for row in table.to_pylist()]

    everything = list_rows([rows_in(tmp_path / name) for name in names])
    for bucket in range(6):
        for name in [*NAMES, "c"]:
            wanted: Wanted = {"bucket": bucket, "name": name}
            expected = [row for row in everything if wanted.items() <= row.items()]
            assert list_rows(scan_files(tmp_path, names, wanted)) == expected


def test_pages_of_files_without_the_value_are_not_read(tmp_path: Path, names: list[str]) -> None:
    whole = (tmp_path / names[7]).read_bytes()
    place = whole.index(b"\x28\xb5\x2f\xfd") + 12  # in the first page that zstd compressed
    (tmp_path / names[7]).write_bytes(whole[:place] + b"\xff\xff" + whole[place + 2 :])
    with pytest.raises(TableDamaged, match=r"7\.parquet is damaged"):
        scan_files(tmp_path, names, {"epoch": 7})
    found = scan_files(tmp_path, names, {"epoch": 8})
    assert [table["epoch"].to_pylist() for table in found if table.num_rows] == [[8, 8]]


def test_the_error_names_the_file_that_is_gone(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / names[7]).unlink()
    with pytest.raises(TableFileGone, match=r"7\.parquet is gone"):
        scan_files(tmp_path, names)
