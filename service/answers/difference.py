"""Pages of the differences between two epochs."""

from __future__ import annotations

import msgspec

from jobs.reading.difference import compare_epochs
from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from schemas.documents.answers import Difference
from schemas.limits import DIFFERENCE_ROWS_MAX
from service.answers.listing import decode_cursor, encode_cursor


def read_difference_page(
    table: TableVersion,
    shape: RowShape,
    job: str,
    first: int,
    last: int | None,
    limit: int,
    cursor: str | None,
) -> Difference:
    """Return a page of the differences from one epoch to another, later or earlier."""
    digest = msgspec.json.encode([job, first, table.tag])
    to, after = table.newest.epoch if last is None else last, b""
    if cursor:
        position = decode_cursor(cursor, digest, 1)
        to, after = position.epoch, position.values[0]
    found = compare_epochs(table, shape, first, to, DIFFERENCE_ROWS_MAX)
    rows = [(key, each) for key, each in found if key > after or not cursor]
    more = None if len(rows) <= limit else encode_cursor(to, digest, [rows[limit - 1][0]])
    return Difference(first, to, [each for _, each in rows[:limit]], more)
