"""The difference between two epochs: what a fold of the changelog between them comes to.

Of each group its first row in between says how it was before, its last how it is after; groups
that ended as they began are left out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.core.values.change import Row
from schemas.types.arrow_values import listed, tuples
from service.answers.history import complete_after
from service.answers.listing import page_cursor, page_place
from service.answers.results import Results
from service.table.job_table import Key, Table, group_columns, result_columns
from service.table.row_shape import RowShape


def difference_page(
    table: Table,
    shape: RowShape,
    job: str,
    first: int,
    last: int | None,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """A page of what leads from one epoch to the other, which may be the earlier one."""
    newest = table.newest.epoch
    asked = msgspec.json.encode([job, first])
    to, after = newest if last is None else last, b""
    if cursor:
        place = page_place(cursor, asked, 1)
        to, after = place.epoch, place.values[0]
    Results.known_epoch(max(first, to), newest)
    found = difference(table, shape, min(first, to), max(first, to))
    if first > to:
        for _, each in found:
            each["before"], each["after"] = each["after"], each["before"]
    rows = [(place, each) for place, each in found if place > after or not cursor]
    more = None if len(rows) <= limit else page_cursor(to, asked, [rows[limit - 1][0]])
    page = [each for _, each in rows[:limit]]
    return {"from": first, "to": to, "rows": page, "next_cursor": more}


def difference(
    table: Table, shape: RowShape, first: int, last: int
) -> list[tuple[bytes, dict[str, Any]]]:
    """Per group, in their order: its key as bytes, and {"key", "before", "after"}."""
    complete_after(table, first, results=True)
    before: dict[Key, Row | None] = {}
    after: dict[Key, Row | None] = {}
    changelog = table.changelog(first, last)
    if changelog is None:
        return []
    rows = zip(
        listed(changelog["op"]),
        tuples(changelog, group_columns(shape.plan)),
        tuples(changelog, result_columns(shape.plan)),
        strict=True,
    )
    for op, key, result in rows:
        before.setdefault(key, None if op == "+I" else result)
        after[key] = None if op == "-D" else result
    changed = sorted((shape.key_bytes(key), key) for key in after if before[key] != after[key])
    return [
        (
            place,
            {
                "key": shape.key(key),
                "before": _row(shape, key, before[key]),
                "after": _row(shape, key, after[key]),
            },
        )
        for place, key in changed
    ]


def _row(shape: RowShape, key: Key, result: Row | None) -> dict[str, Any] | None:
    return None if result is None else shape.row(key, result)
