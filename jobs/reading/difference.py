"""The difference of the results of two epochs, from the changelog between them.

The first change of a group has its row before, the last change its row after. Groups with equal
rows are left out.
"""

from __future__ import annotations

from jobs.core.values.change import Row
from jobs.reading.history import list_later_epochs, require_known_epoch
from jobs.reading.row_shape import RowShape
from jobs.reading.version import Key, TableVersion
from schemas.documents.explanation import DifferingGroup
from schemas.types.json_types import JsonObject


class DifferenceTooLarge(Exception):
    """There are more changes between the epochs than may be compared."""


def compare_epochs(
    table: TableVersion, shape: RowShape, first: int, last: int, rows_max: int | None = None
) -> list[tuple[bytes, DifferingGroup]]:
    """Return each group that differs, in order, with its key bytes.

    `last` may be before `first`. Raise HistoryGone if changes between the epochs are missing.
    """
    require_known_epoch(max(first, last), table.newest.epoch)
    start, end = sorted((first, last))
    later = list_later_epochs(table, start, results=True)
    count = sum(row.counts.changelog_rows for row in later if row.epoch <= end)
    if rows_max is not None and count > rows_max:
        raise DifferenceTooLarge(
            f"there are {count} changes between the epochs, and at most {rows_max} are compared; "
            "choose closer epochs, or read the results of both"
        )
    keys: dict[bytes, Key] = {}
    before: dict[bytes, Row | None] = {}
    after: dict[bytes, Row | None] = {}
    changelog = table.changelog(start, end)
    if changelog is None:
        return []
    for op, _, _, key, result in shape.changes(changelog):
        name = shape.key_bytes(key)
        keys[name] = key
        before.setdefault(name, None if op == "+I" else result)
        after[name] = None if op == "-D" else result
    if last < first:
        before, after = after, before

    def render(key: Key, result: Row | None) -> JsonObject | None:
        return None if result is None else shape.row(key, result)

    return [
        (name, DifferingGroup(shape.key(key), render(key, before[name]), render(key, after[name])))
        for name, key in sorted(keys.items())
        if before[name] != after[name]
    ]
