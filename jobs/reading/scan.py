"""Read the rows of many files of a table that have some values.

    names ─► footers: do the statistics exclude the values? ─► small files whole ─► one filter
                       └─ yes: nothing is read               large files: row groups that may match

Thousands of epochs leave thousands of small files. A filter of each takes longer than reading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.core.values.change import Value
from schemas.table.object_path import TablePath, source
from schemas.table.parquet_file import READ, rows_in

_FILES_AT_ONCE = 64
_READ_THREADS = 4
_SMALL_ROWS = 10_000

Wanted = Mapping[str, Value]  # of some columns
Item = TypeVar("Item")


def some_at_once(files: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of as many files as one scan should have."""
    left = iter(files)
    while some := list(islice(left, _FILES_AT_ONCE)):
        yield some


def scan_files(
    root: TablePath, names: Sequence[str], wanted: Wanted | None = None
) -> list[pa.Table]:
    """Return the rows with these values, in the order of the files, in tables of equal columns.

    Files of older versions may have other columns.
    """
    condition = _condition(wanted or {})

    def read(name: str) -> pa.Table | None:
        return _read(root, name, wanted or {}, condition)

    if len(names) == 1:
        tables = [read(names[0])]
    else:
        with ThreadPoolExecutor(_READ_THREADS) as pool:
            tables = list(pool.map(read, names))
    found = []
    for _, same in groupby((table for table in tables if table is not None), _schema):
        rows = pa.concat_tables(same)
        found.append(rows if condition is None else rows.filter(condition))
    return found


def _schema(table: pa.Table) -> pa.Schema:
    return table.schema


def _condition(wanted: Wanted) -> pc.Expression | None:
    found: pc.Expression | None = None
    for name, value in wanted.items():
        field = pc.field(name)
        condition = field.is_null() if value is None else field == value
        found = condition if found is None else found & condition
    return found


def _read(
    root: TablePath, name: str, wanted: Wanted, condition: pc.Expression | None
) -> pa.Table | None:
    """Return rows of a file, all that are wanted among them; None if no row is."""
    try:
        # Without an object for its path, and without Arrow's search for what kind of path it is.
        local = isinstance(root, Path)
        opened = pa.OSFile(f"{root}/{name}") if local else source(root / name)
        file = pq.ParquetFile(opened, **READ)
        if file.metadata.num_row_groups == 1 and _excludes(file, wanted):
            return None
        if file.metadata.num_rows <= _SMALL_ROWS:
            return file.read(use_threads=False)
    except (pa.ArrowException, OSError):
        pass  # the next reader names the file, or finds that only the storage failed
    return rows_in(root / name, filters=condition)


def _excludes(file: pq.ParquetFile, wanted: Wanted) -> bool:
    """Return whether the statistics of the only row group say that no row has these values."""
    group, names = file.metadata.row_group(0), file.schema_arrow
    for name, value in wanted.items():
        place = names.get_field_index(name)
        column = group.column(place) if 0 <= place < group.num_columns else None
        if column is None or column.path_in_schema != name:  # behind a column with fields
            continue
        known = column.statistics
        if known is not None and known.has_min_max and _is_outside(value, known.min, known.max):
            return True
    return False


def _is_outside(value: Any, low: Any, high: Any) -> bool:
    return type(value) is type(low) and (value < low or value > high)
