"""The changes of a job after a position: recent ones from memory, older ones from the table.

    position (epoch, seq) ──► the next epochs, complete, in order
         in RecentChanges? ──► rendered already
         otherwise         ──► read from the table, if it is complete; otherwise 410

A position is what a client has read: `E:S` is everything up to row S of epoch E, `E` is all of
epoch E. As an id, the latter is `E:9007199254740991`, a seq of no row, so that all ids look alike.

`TableReads` limits how many read the table at once; TableReadsBusy is raised beyond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow.compute as pc

from jobs.table.version import TableVersion, at_newest
from schemas.limits import PAGE_ROWS_MAX
from schemas.table.epoch import EpochRow
from service.answers.history import list_complete_epochs, make_gone_problem, make_restarted_problem
from service.answers.results import TableReads
from service.live.recent_changes import END_OF_EPOCH, EpochChanges, render_epoch
from service.live.table import LiveTable
from service.problems import Problem

_POSITION = re.compile(r"(\d{1,15})(?::(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class ChangePosition:
    """What a client has read; the next changes follow it."""

    epoch: int
    seq: int = END_OF_EPOCH  # of the last row read; by default all of the epoch

    @property
    def is_epoch_end(self) -> bool:
        return self.seq >= END_OF_EPOCH

    def __str__(self) -> str:
        return f"{self.epoch}:{self.seq}"


def parse_position(text: str, parameter: str) -> ChangePosition:
    found = _POSITION.fullmatch(text.strip())
    if found is None:
        reason = f"{text[:80]!r} is not a position; write EPOCH or EPOCH:SEQ"
        errors = [{"path": parameter, "message": reason}]
        raise Problem("parameter-invalid", 422, reason, errors=errors)
    epoch, seq = found.groups()
    return ChangePosition(int(epoch), END_OF_EPOCH if seq is None else int(seq))


def check_position(live_table: LiveTable, at: ChangePosition, reads: TableReads) -> None:
    """Raise a Problem if a stream cannot start at a position."""
    newest = _find_newest(live_table)
    if at.epoch > newest:
        raise Problem(
            "epoch-unknown",
            404,
            f"there is no epoch {at.epoch} yet; the newest is {newest}",
            newest=newest,
        )
    first = at.epoch + 1 if at.is_epoch_end else at.epoch
    if first > newest or live_table.recent.find_epoch(first) is not None:
        return
    with reads.limit():
        at_newest(live_table.paths.table, lambda table: list_complete_epochs(table, first - 1))


def has_next(live_table: LiveTable, at: ChangePosition) -> bool:
    """Return whether there is an epoch after a position."""
    newest = live_table.newest
    return newest is not None and (at.epoch + 1 if at.is_epoch_end else at.epoch) <= newest.epoch


def read_epochs(live_table: LiveTable, at: ChangePosition, reads: TableReads) -> list[EpochChanges]:
    """Return some of the epochs after a position; none at the newest epoch.

    The first one is the position's own epoch if the position is inside it. This may read the table:
    not for the event loop.
    """
    first = at.epoch + 1 if at.is_epoch_end else at.epoch
    newest = _find_newest(live_table)
    if first > newest:
        return []
    recent = find_recent_epochs(live_table, at)
    if recent:
        return recent
    with reads.limit():
        return at_newest(
            live_table.paths.table, lambda table: _read_from_table(live_table, table, first)
        )


def find_recent_epochs(live_table: LiveTable, at: ChangePosition) -> list[EpochChanges]:
    """Return the epochs after a position that are in memory."""
    number = at.epoch + 1 if at.is_epoch_end else at.epoch
    found: list[EpochChanges] = []
    rows = 0
    while (epoch := live_table.recent.find_epoch(number)) is not None:
        rows += len(epoch.changes)
        if found and rows > PAGE_ROWS_MAX:
            break
        found.append(epoch)
        number += 1
    return found


def _read_from_table(live_table: LiveTable, table: TableVersion, first: int) -> list[EpochChanges]:
    rows = table.epochs(first - 1)
    if not rows or rows[0].epoch != first:
        raise make_gone_problem(first - 1, rows[0].epoch if rows else table.newest.epoch)
    counts = table.count_changelog(first - 1)
    piece: list[EpochRow] = []
    total = 0
    for row in rows:
        expected = row.counts.changelog_rows
        if counts.get(row.epoch, 0) != expected:
            if not piece:
                list_complete_epochs(table, first - 1)  # raises a Problem with the oldest epoch
            break
        if row.begins:
            if not piece:
                raise make_restarted_problem(first - 1, row.epoch)
            break
        total += expected
        if piece and total > PAGE_ROWS_MAX:
            break
        piece.append(row)
    changelog = table.changelog(first - 1, piece[-1].epoch)
    found = []
    for row in piece:
        mine = None
        if changelog is not None:
            mine = changelog.filter(pc.equal(changelog["epoch"], row.epoch))
        found.append(render_epoch(row, mine, live_table.shape))
    return found


def find_newest_position(live_table: LiveTable) -> ChangePosition:
    """Return the position of the newest epoch."""
    return ChangePosition(_find_newest(live_table))


def _find_newest(live_table: LiveTable) -> int:
    if live_table.newest is None:
        raise Problem("job-has-no-table", 409, "the job has no epoch yet; start the job")
    return live_table.newest.epoch
