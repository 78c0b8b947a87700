"""File statistics: what Delta's add actions say of a file, for readers that prune by it.

Wrong statistics silently drop rows, so they are of whole numbers only, and tested against the
contents of files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

STATISTICS = ("epoch", "seq", "bucket")  # integers only: nothing to truncate or to misorder


class Extremes(NamedTuple):
    """What Delta's statistics say of one column."""

    low: int
    high: int
    nulls: int

    def with_(self, other: Extremes) -> Extremes:
        nulls = self.nulls + other.nulls
        return Extremes(min(self.low, other.low), max(self.high, other.high), nulls)


def extremes_of(table: pa.Table) -> dict[str, Extremes]:
    """Of each column that has statistics, what its values reach."""
    found = {}
    for name in STATISTICS:
        if name in table.column_names and table.num_rows:
            column = table[name]
            extremes = pc.min_max(column).as_py()
            found[name] = Extremes(extremes["min"], extremes["max"], column.null_count)
    return found


def statistics(table: pa.Table) -> str:
    """Delta's statistics of a file, for the integer columns that readers prune by."""
    return stats_text(table.num_rows, extremes_of(table))


def stats_text(rows: int, columns: Mapping[str, Extremes]) -> str:
    """The statistics of an add action."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: column.low for name, column in columns.items()},
            "maxValues": {name: column.high for name, column in columns.items()},
            "nullCount": {name: column.nulls for name, column in columns.items()},
        }
    )
