"""Files of a table: what is read is what was written, or it is refused by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.edge.table.file_writer import write_file
from schemas.table.object_path import ObjectPath
from schemas.table.parquet_file import TableDamaged, naming, rows_in, table_file

FLIPS = 300


@pytest.fixture
def table() -> pa.Table:
    dice = random.Random(5)
    return pa.table(
        {
            "epoch": list(range(2_000)),
            "name": [f"product-{dice.randrange(10_000):05d}" for _ in range(2_000)],
            "state": [dice.randbytes(30) for _ in range(2_000)],
        }
    )


@pytest.fixture
def path(table: pa.Table, tmp_path: Path) -> Path:
    return tmp_path / write_file(tmp_path, "part=accumulators/one.parquet", table).path


def test_a_flipped_bit_is_never_read_as_another_value(table: pa.Table, path: Path) -> None:
    whole, dice = path.read_bytes(), random.Random(7)
    for _ in range(FLIPS):
        damaged = bytearray(whole)
        damaged[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        try:
            assert rows_in(path).equals(table)  # nothing that is read was in that bit
        except TableDamaged as problem:
            assert path.name in str(problem)


@pytest.mark.parametrize("left", [0, 3, 100, -1])
def test_a_file_that_was_cut_is_refused_by_its_name(path: Path, left: int) -> None:
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(TableDamaged, match=path.name):
        table_file(path)


def test_a_file_that_is_gone_was_swept_for_a_reader_and_is_lost_for_its_writer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gone.parquet"
    looks: list[Callable[[], object]] = [
        lambda: rows_in(path),
        lambda: rows_in(path, filters=pc.field("epoch") == 1),
        lambda: table_file(path),
    ]
    for look in looks:
        with pytest.raises(FileNotFoundError):
            look()
        with pytest.raises(TableDamaged, match=r"gone\.parquet is gone; restore it from a backup"):
            look()


def test_an_error_of_the_storage_is_no_damage_whatever_the_key_is_called() -> None:
    path = ObjectPath.of("s3://clickstream/jobs/page-views/epochs") / "part=rows/one.parquet"
    said = f"When reading information for key '{path}' in bucket 'clickstream': AWS Error"
    for error in (OSError(f"{said} NETWORK_CONNECTION during HeadObject"), MemoryError("page")):
        with pytest.raises(type(error)) as raised, naming(path):
            raise error
        assert raised.value is error
    with pytest.raises(TableDamaged), naming(path):
        raise OSError("Couldn't deserialize thrift: TProtocolException")


def test_filters_and_columns_choose_rows(path: Path) -> None:
    found = rows_in(path, filters=pc.field("epoch") >= 1_998)
    assert found["epoch"].to_pylist() == [1_998, 1_999]
    assert rows_in(path, ["name"]).column_names == ["name"]
