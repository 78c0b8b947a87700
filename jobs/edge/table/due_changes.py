"""Order the changelog rows that time alone makes due, by (time, key).

    time tasks, some buckets each ──► rows with time and key, in uncommitted files
    driver                        ──► sort and number all rows ──► one changelog file

A watermark that closes several windows emits the earlier window first, whatever the buckets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from jobs.edge.table.file_writer import AddedFile, write_file
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in

_TIME, _KEY, _SEQ = "__time", "__key", "seq"


def add_sort_columns(changelog: pa.Table, times: Sequence[int], keys: Sequence[bytes]) -> pa.Table:
    """Append the columns that rows are sorted by; `keys` are order-preserving encodings."""
    rows = changelog.append_column(_TIME, pa.array(times, pa.int64()))
    return rows.append_column(_KEY, pa.array(keys, pa.binary()))


def write_sorted(
    root: TablePath, name: str, files: Sequence[AddedFile], *, durable: bool = False
) -> AddedFile:
    """Write one changelog file with the sorted rows of `files`, and remove `files`."""
    rows = pa.concat_tables(rows_in(root / file.path) for file in files)
    rows = rows.sort_by([(column, "ascending") for column in (_TIME, _KEY, _SEQ)])
    rows = rows.drop_columns([_TIME, _KEY])
    numbers = pa.array(np.arange(rows.num_rows))
    rows = rows.set_column(rows.schema.get_field_index(_SEQ), rows.schema.field(_SEQ), numbers)
    written = write_file(root, name, rows, durable=durable)
    for file in files:
        (root / file.path).unlink(missing_ok=True)
    return written
