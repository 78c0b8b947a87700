"""The files of a mirror: those that refreshes replace leave the disk after a while."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.running.mirror import delete_replaced_files


def test_replaced_files_stay_for_readers_of_before_and_then_leave(tmp_path: Path) -> None:
    path = tmp_path / "results"
    delete_replaced_files(path)  # before the first refresh
    for number in range(3):
        write_deltalake(str(path), pa.table({"n": [number]}), mode="overwrite")
    delete_replaced_files(path)
    assert len(list(path.glob("*.parquet"))) == 3
    version = DeltaTable(str(path)).version()
    delete_replaced_files(path, seconds=0)
    table = DeltaTable(str(path))
    assert [each.name for each in path.glob("*.parquet")] == [
        Path(uri).name for uri in table.file_uris()
    ]
    assert table.version() == version
    assert table.to_pyarrow_table().to_pydict() == {"n": [2]}
