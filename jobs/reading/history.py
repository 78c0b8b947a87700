"""How far back a table leads: to which epoch, with all changes after it.

Retention removes whole epochs from the old end. The remaining changelog must be complete: one with
a gap would fold to results that never existed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jobs.reading.version import TableVersion
from schemas.table.epoch import EpochRow


class HistoryGone(LookupError):
    """The table does not have an epoch, or not all changes after it.

    `oldest` is the oldest epoch that can be read, of the table with this tag.
    """

    def __init__(self, reason: str, oldest: int | None = None, table_tag: str = "") -> None:
        super().__init__(reason)
        self.oldest = oldest
        self.table_tag = table_tag


class EpochUnknown(HistoryGone):
    """There is no such epoch yet."""

    def __init__(self, epoch: int, newest: int) -> None:
        super().__init__(f"there is no epoch {epoch} yet; the newest is {newest}")
        self.newest = newest


def require_known_epoch(epoch: int, newest: int) -> None:
    """Raise EpochUnknown for an epoch after the newest one."""
    if epoch > newest:
        raise EpochUnknown(epoch, newest)


def list_later_epochs(table: TableVersion, epoch: int, *, results: bool = False) -> list[EpochRow]:
    """Return the epochs after `epoch`; raise HistoryGone unless all of their changes are there.

    With `results`, raise it also if they do not lead back to the results of `epoch`: if retention
    has removed that epoch, or if groups expired without a changelog row.
    """
    rows = table.epochs(epoch - 1)
    if not rows:
        raise EpochUnknown(epoch, table.newest.epoch)
    counts = table.count_changelog(epoch)
    for row in reversed(rows):
        reason = None if row.epoch <= epoch else describe_gap(row, counts, results=results)
        if reason is not None:
            raise _make_error(table, reason, row.epoch)
    oldest = rows[0].epoch
    if epoch < (oldest if results else oldest - 1):
        raise _make_error(table, f"retention has removed the epochs before {oldest}", oldest)
    return [row for row in rows if row.epoch > epoch]


def describe_gap(row: EpochRow, counts: Mapping[int, int], *, results: bool = False) -> str | None:
    """Return why nothing before an epoch can be read; None if its changes are complete.

    `counts` are the changelog rows that retention has kept, by epoch.
    """
    if counts.get(row.epoch, 0) != row.counts.changelog_rows:
        return f"retention has removed part of the changelog of epoch {row.epoch}"
    if row.begins:
        return (
            f"the history starts with epoch {row.epoch}, in which the columns of groups changed or "
            "the view was added"
        )
    if results and row.counts.expired_silently:
        return (
            f"groups expired without a changelog row up to epoch {row.epoch} "
            "(state.emit_expired: false)"
        )
    return None


def read_changes(
    table: TableVersion, rows: Iterable[EpochRow], rows_max: int
) -> list[tuple[EpochRow, pa.Table | None]]:
    """Return the first of these epochs, each with its changes if it has any.

    They have at most so many changes, unless the first one has more. They end before an epoch of
    which retention has removed changes.
    """
    piece: list[EpochRow] = []
    total = 0
    for row in rows:
        total += row.counts.changelog_rows
        if piece and total > rows_max:
            break
        piece.append(row)
    changelog = table.changelog(piece[0].epoch - 1, piece[-1].epoch) if piece else None
    found = []
    for row in piece:
        mine = None
        if changelog is not None:
            mine = changelog.filter(pc.equal(changelog["epoch"], row.epoch))
        if (0 if mine is None else mine.num_rows) != row.counts.changelog_rows:
            break
        found.append((row, mine if row.counts.changelog_rows else None))
    return found


def find_complete_since(table: TableVersion, epoch: int, *, results: bool = False) -> int:
    """Return the epoch, or the oldest later one after which `list_later_epochs` misses none."""
    try:
        list_later_epochs(table, epoch, results=results)
    except HistoryGone as gone:
        if gone.oldest is None:
            raise
        return gone.oldest
    return epoch


def _make_error(table: TableVersion, reason: str, oldest: int) -> HistoryGone:
    return HistoryGone(
        f"{reason}; the oldest epoch that can be read is {oldest}", oldest, table.tag
    )
