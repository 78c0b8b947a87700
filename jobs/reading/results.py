"""Results at an epoch: of each group the row with the highest rank, unless it is deleted.

    accumulators           rank: their epoch                   the newest row of a group
    changelog after it     above all of these, the first one   its first change has the row before
                           of a group the highest

Rows come in batches, because a table may be larger than memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.values.change import Row
from jobs.reading.files import LiveFile
from jobs.reading.parts import ACCUMULATORS, CHANGELOG
from jobs.reading.row_shape import RowShape
from jobs.reading.scan import Wanted, scan_files
from jobs.reading.version import Key, TableVersion
from schemas.limits import TABLE_BATCH_ROWS
from schemas.types.arrow_values import to_list, to_tuples
from schemas.types.sql_types import COMPOSITE, FLOATING

_CHANGES_RANK = 2**62  # above every epoch
Rank = tuple[int, int]


class RankedRows(NamedTuple):
    """Rows of a table, some of each group; `rows` has the columns of the group and the results."""

    groups: list[Key]
    ranks: list[Rank]
    deleted: list[bool]
    rows: pa.Table


def rank_rows(
    table: TableVersion,
    shape: RowShape,
    after: int | None = None,
    files: Sequence[LiveFile] | None = None,
    values: Wanted | None = None,
) -> Iterator[RankedRows]:
    """Yield the rows of which those with the highest ranks are the results.

    With `after`, they are the results at that epoch, after which the changelog must be complete.
    With `files`, read these, which may be no longer live. Rows with other values may be left
    out.
    """
    columns = [*shape.columns]
    for file in table.files if files is None else files:
        if file.part == ACCUMULATORS:
            for state in _read(table, file, ["epoch", "tombstone", *columns], values):
                ranks = list(zip(to_list(state["epoch"]), repeat(0)))
                groups = to_tuples(state, shape.group)
                yield RankedRows(groups, ranks, to_list(state["tombstone"]), state)
        elif file.part == CHANGELOG and after is not None and file.epoch_max > after:
            for changes in _read(table, file, ["op", "epoch", "seq", *columns], values):
                later = changes.filter(pc.greater(changes["epoch"], after))
                positions = zip(to_list(later["epoch"]), to_list(later["seq"]), strict=True)
                ranks = [(_CHANGES_RANK - epoch, -seq) for epoch, seq in positions]
                yield _take_highest(shape, ranks, to_list(pc.equal(later["op"], "+I")), later)


def read_results(
    table: TableVersion,
    shape: RowShape,
    after: int | None = None,
    files: Sequence[LiveFile] | None = None,
    values: Wanted | None = None,
) -> dict[Key, Row]:
    """Return the result of each group, in the order of the groups; see `rank_rows`."""
    best: dict[Hashable, tuple[Rank, Key, Row | None]] = {}
    for batch in rank_rows(table, shape, after, files, values):
        names = _name_groups(shape, batch.groups)
        results = to_tuples(batch.rows, shape.results)
        ranked = zip(names, batch.groups, batch.ranks, batch.deleted, results, strict=True)
        for name, key, rank, deleted, result in ranked:
            known = best.get(name)
            if known is None or rank > known[0]:
                best[name] = (rank, key, None if deleted else result)
    found = [(key, result) for _, key, result in best.values() if result is not None]
    found.sort(key=lambda row: shape.key_bytes(row[0]))
    return dict(found)


def _read(
    table: TableVersion, file: LiveFile, columns: Sequence[str], values: Wanted | None
) -> Iterator[pa.Table]:
    if values is None:
        return table.batches(file, columns, TABLE_BATCH_ROWS)
    return iter(scan_files(table.root, [file.path], values))


def _name_groups(shape: RowShape, groups: list[Key]) -> Iterable[Hashable]:
    """Return values of which those of one group are equal, as a NaN is not."""
    plain = all(kind.kind not in (*FLOATING, *COMPOSITE) for _, kind in shape.group)
    return groups if plain else map(shape.key_bytes, groups)


def _take_highest(
    shape: RowShape, ranks: list[Rank], deleted: list[bool], rows: pa.Table
) -> RankedRows:
    """Return the rows with the highest rank of their group in the batch."""
    groups = to_tuples(rows, shape.group)
    best: dict[Hashable, int] = {}
    for at, name in enumerate(_name_groups(shape, groups)):
        if name not in best or ranks[at] > ranks[best[name]]:
            best[name] = at
    chosen = list(best.values())
    places = pa.py_buffer(array("q", chosen))  # a list would import pandas
    return RankedRows(
        [groups[at] for at in chosen],
        [ranks[at] for at in chosen],
        [deleted[at] for at in chosen],
        rows.take(pa.Array.from_buffers(pa.int64(), len(chosen), [None, places])),
    )
