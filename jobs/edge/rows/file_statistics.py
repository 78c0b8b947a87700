"""Compute the statistics of a file in Delta's add action, by which readers skip files.

Wrong statistics silently drop rows. So only integer columns have statistics, and tests compare them
with the contents of files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

STATISTICS = ("epoch", "seq", "bucket")  # integers only: nothing to truncate or to misorder


class Extremes(NamedTuple):
    """Least and greatest value and number of NULLs of one column."""

    low: int
    high: int
    nulls: int

    def merge(self, other: Extremes) -> Extremes:
        """Return the extremes of the rows of both."""
        nulls = self.nulls + other.nulls
        return Extremes(min(self.low, other.low), max(self.high, other.high), nulls)


def find_extremes(table: pa.Table) -> dict[str, Extremes]:
    """Return the extremes of each column that has statistics."""
    found = {}
    for name in STATISTICS:
        if name in table.column_names and table.num_rows:
            column = table[name]
            extremes = pc.min_max(column).as_py()
            found[name] = Extremes(extremes["min"], extremes["max"], column.null_count)
    return found


def compute_statistics(table: pa.Table) -> str:
    """Return the statistics of a file with these rows."""
    return format_statistics(table.num_rows, find_extremes(table))


def format_statistics(rows: int, columns: Mapping[str, Extremes]) -> str:
    """Return statistics as the JSON text of an add action."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: column.low for name, column in columns.items()},
            "maxValues": {name: column.high for name, column in columns.items()},
            "nullCount": {name: column.nulls for name, column in columns.items()},
        }
    )
