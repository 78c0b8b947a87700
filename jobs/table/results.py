"""Results at an epoch: of each group the row with the highest rank, unless it is deleted.

    accumulators           rank: their epoch                   the newest row of a group
    changelog after it     above all of these, the first one   its first change has the row before
                           of a group the highest

Rows come in batches, because a table may be larger than memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.values.change import Row
from jobs.table.files import LiveFile
from jobs.table.parts import ACCUMULATORS, CHANGELOG
from jobs.table.row_shape import RowShape
from jobs.table.scan import Wanted, scan_files
from jobs.table.version import Key, TableVersion
from schemas.limits import TABLE_BATCH_ROWS
from schemas.types.arrow_values import to_list, to_tuples

_CHANGES_RANK = 2**62  # above every epoch
Rank = tuple[int, int]


class RankedRows(NamedTuple):
    """Rows of a table, some of each group; `rows` has the columns of the group and the results."""

    keys: list[bytes]
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
                ranks = [(epoch, 0) for epoch in to_list(state["epoch"])]
                yield _make_ranked(shape, ranks, to_list(state["tombstone"]), state)
        elif file.part == CHANGELOG and after is not None and file.epoch_max > after:
            for changes in _read(table, file, ["op", "epoch", "seq", *columns], values):
                later = changes.filter(pc.greater(changes["epoch"], after))
                positions = zip(to_list(later["epoch"]), to_list(later["seq"]), strict=True)
                ranks = [(_CHANGES_RANK - epoch, -seq) for epoch, seq in positions]
                yield _make_ranked(shape, ranks, to_list(pc.equal(later["op"], "+I")), later)


def read_results(
    table: TableVersion,
    shape: RowShape,
    after: int | None = None,
    files: Sequence[LiveFile] | None = None,
    values: Wanted | None = None,
) -> dict[Key, Row]:
    """Return the result of each group, in the order of the groups; see `rank_rows`."""
    best: dict[bytes, tuple[Rank, tuple[Key, Row] | None]] = {}
    for batch in rank_rows(table, shape, after, files, values):
        found = zip(
            batch.keys,
            batch.ranks,
            batch.deleted,
            to_tuples(batch.rows, shape.group),
            to_tuples(batch.rows, shape.results),
            strict=True,
        )
        for name, rank, deleted, key, result in found:
            known = best.get(name)
            if known is None or rank > known[0]:
                best[name] = (rank, None if deleted else (key, result))
    return dict(row for _, (_, row) in sorted(best.items()) if row is not None)


def _read(
    table: TableVersion, file: LiveFile, columns: Sequence[str], values: Wanted | None
) -> Iterator[pa.Table]:
    if values is None:
        return table.batches(file, columns, TABLE_BATCH_ROWS)
    return iter(scan_files(table.root, [file.path], values))


def _make_ranked(
    shape: RowShape, ranks: list[Rank], deleted: list[bool], rows: pa.Table
) -> RankedRows:
    """Return the rows with the highest rank of their group in the batch."""
    keys = shape.encode_keys(rows)
    best: dict[bytes, int] = {}
    for at, key in enumerate(keys):
        if key not in best or ranks[at] > ranks[best[key]]:
            best[key] = at
    chosen = list(best.values())
    if len(chosen) < len(keys):
        places = pa.py_buffer(array("q", chosen))  # a list would import pandas
        rows = rows.take(pa.Array.from_buffers(pa.int64(), len(chosen), [None, places]))
    return RankedRows(
        list(best), [ranks[at] for at in chosen], [deleted[at] for at in chosen], rows
    )
