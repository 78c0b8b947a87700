"""Files are written with the encodings that suit their rows, and every reader reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.edge.table.file_writer import FileWriter, write_file

ROWS = 4_000
NAME = "part=changelog/a.parquet"
DELTA_TEXT, DELTA_NUMBER, DICTIONARY = "DELTA_BYTE_ARRAY", "DELTA_BINARY_PACKED", "RLE_DICTIONARY"
COLUMNS: dict[str, tuple[list[Any], str]] = {
    "seq": ([7 << 32 | row for row in range(ROWS)], DELTA_NUMBER),
    "key": ([f"user-{row // 2:06}" for row in range(ROWS)], DELTA_TEXT),
    "some nulls": ([None if row % 3 else f"ü{row}" for row in range(ROWS)], DELTA_TEXT),
    "country": (["DE", "FR", "GB", "US"] * (ROWS // 4), DICTIONARY),
    "with.dot": (["a", "b"] * (ROWS // 2), DICTIONARY),
    "only nulls": ([None] * ROWS, DICTIONARY),
    "number": ([row % 9 for row in range(ROWS)], DICTIONARY),
    "row": ([{"city": "Bonn", "zip": row % 5} for row in range(ROWS)], DICTIONARY),
    "list": ([["a", "b"], [], None, ["c"]] * (ROWS // 4), DICTIONARY),
}
TYPES = {"some nulls": pa.string(), "only nulls": pa.string()}


def table(*names: str) -> pa.Table:
    return pa.table({name: pa.array(COLUMNS[name][0], TYPES.get(name)) for name in names})


def encodings(path: Path) -> dict[str, set[str]]:
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    return {column.path_in_schema: set(column.encodings) for column in columns}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_encoding_that_suits_its_rows(name: str, tmp_path: Path) -> None:
    write_file(tmp_path, NAME, table(name))
    for leaf, found in encodings(tmp_path / NAME).items():
        assert COLUMNS[name][1] in found, leaf


def test_all_readers_read_the_rows_that_were_written(tmp_path: Path) -> None:
    rows = table(*COLUMNS)
    write_file(tmp_path, NAME, rows)
    path = tmp_path / NAME
    assert pq.ParquetFile(path, page_checksum_verification=True).read().equals(rows)
    read = duckdb.connect().execute(f"SELECT * EXCLUDE (part) FROM '{path}'").fetchall()
    assert read == [tuple(row.values()) for row in rows.to_pylist()]


def test_the_first_rows_decide_for_all_row_groups(tmp_path: Path) -> None:
    few, many = table("country"), table("key").rename_columns(["country"])
    with FileWriter(tmp_path, NAME, few.schema) as writer:
        writer.write(few)
        writer.write(many)
    assert DICTIONARY in encodings(tmp_path / NAME)["country"]
    assert pq.read_table(tmp_path / NAME).num_rows == writer.added.rows == 2 * ROWS


def test_a_file_without_rows_has_the_columns(tmp_path: Path) -> None:
    with FileWriter(tmp_path, NAME, table("key", "row").schema) as writer:
        pass
    assert pq.read_table(tmp_path / NAME).column_names == ["key", "row"]
    assert writer.added.rows == 0
