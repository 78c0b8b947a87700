"""The differences between two epochs, from the changelog between them.

The first change of a group has its row before, the last change its row after. Groups with equal
rows are left out.
"""

from __future__ import annotations

from functools import partial

import msgspec

from jobs.core.values.change import Row
from jobs.table.version import Key, TableVersion
from schemas.limits import DIFFERENCE_ROWS_MAX
from schemas.types.arrow_values import to_list, to_tuples
from schemas.types.json_types import JsonObject
from service.answers.history import list_complete_epochs, require_known_epoch
from service.answers.listing import decode_cursor, encode_cursor
from service.documents import Difference, DifferingGroup
from service.problems import Problem
from service.table.row_shape import RowShape


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
    newest = table.newest.epoch
    digest = msgspec.json.encode([job, first, table.tag])
    to, after = newest if last is None else last, b""
    if cursor:
        position = decode_cursor(cursor, digest, 1)
        to, after = position.epoch, position.values[0]
    require_known_epoch(max(first, to), newest)
    found = compare_epochs(table, shape, min(first, to), max(first, to))
    if first > to:
        found = [(key, DifferingGroup(each.key, each.after, each.before)) for key, each in found]
    rows = [(key, each) for key, each in found if key > after or not cursor]
    more = None if len(rows) <= limit else encode_cursor(to, digest, [rows[limit - 1][0]])
    return Difference(first, to, [each for _, each in rows[:limit]], more)


def compare_epochs(
    table: TableVersion, shape: RowShape, first: int, last: int
) -> list[tuple[bytes, DifferingGroup]]:
    """Return each changed group in order, with its key bytes.

    Raise a Problem if the changelog between the epochs is incomplete, or too long to hold.
    """
    later = list_complete_epochs(table, first, results=True)
    _require_few_rows(sum(rows for epoch, rows in later if epoch <= last))
    before: dict[Key, Row | None] = {}
    after: dict[Key, Row | None] = {}
    changelog = table.changelog(first, last)
    if changelog is None:
        return []
    rows = zip(
        to_list(changelog["op"]),
        to_tuples(changelog, shape.group),
        to_tuples(changelog, shape.results),
        strict=True,
    )
    for op, key, result in rows:
        before.setdefault(key, None if op == "+I" else result)
        after[key] = None if op == "-D" else result
    changed = sorted((shape.key_bytes(key), key) for key in after if before[key] != after[key])
    rendered = partial(_render_row, shape)
    return [
        (
            name,
            DifferingGroup(shape.key(key), rendered(key, before[key]), rendered(key, after[key])),
        )
        for name, key in changed
    ]


def _require_few_rows(count: int) -> None:
    """Raise a Problem if so many changelog rows are more than a request may hold."""
    if count > DIFFERENCE_ROWS_MAX:
        raise Problem(
            "difference-too-large",
            422,
            f"there are {count} changes between the epochs, and at most {DIFFERENCE_ROWS_MAX} are "
            "compared; choose closer epochs, or read the results of both",
        )


def _render_row(shape: RowShape, key: Key, result: Row | None) -> JsonObject | None:
    return None if result is None else shape.row(key, result)
