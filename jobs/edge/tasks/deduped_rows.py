"""What a dedupe task gets and derives: buckets of changes, TRUNCATEs, rows to fold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.rows.consolidate import Integers
from jobs.core.rows.truncations import Truncation
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import Parcel

_decode_truncations = msgspec.json.Decoder(tuple[list[int], list[Truncation]]).decode


class Bucket(NamedTuple):
    """A bucket with changes or TRUNCATEs, and its rows among those of a task."""

    number: int
    start: int
    end: int


class Derived(NamedTuple):
    """Weighted rows to fold."""

    columns: Sequence[pa.Array]  # the used ones
    positions: Integers  # as `consolidate` has them: a retraction's is complemented
    weights: Integers


def find_buckets(of_rows: Integers, truncated: Collection[int]) -> list[Bucket]:
    """Return the buckets of rows that are sorted by them, and those with TRUNCATEs, in order."""
    numbers = sorted({*np.unique(of_rows).tolist(), *truncated})
    starts, ends = (np.searchsorted(of_rows, numbers, side).tolist() for side in ("left", "right"))
    return list(map(Bucket, numbers, starts, ends))


def find_changed(rows: RangeRows, positions: Integers) -> Integers:
    """Return the derived rows that change something in these columns.

    The old and the new image of a key follow each other and have the position of one change."""
    updates = positions[:-1] == ~positions[1:]
    if not updates.any():  # as in a snapshot; numbering the rows takes a while
        return np.arange(len(positions))
    numbers = rows.number()
    same = np.flatnonzero(updates & (numbers[:-1] == numbers[1:]))
    return np.delete(np.arange(len(positions)), np.concatenate([same, same + 1]))


def find_truncations(sent: Iterable[Parcel]) -> tuple[Collection[int], list[Truncation]]:
    """Return the buckets that TRUNCATEs were sent to, and the TRUNCATEs, which each of them got."""
    found = [_decode_truncations(parcel.content) for parcel in sent]
    return found[0][0] if found else (), [each for _, some in found for each in some]
