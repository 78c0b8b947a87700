"""The changes of a job after a position: recent ones from memory, older ones from the table.

    position (epoch, seq) ──► the next epochs, complete, in order
         in RecentChanges? ──► rendered already
         otherwise         ──► read from the table, if it is complete; otherwise 410

A position is what a client has read: `E:S:T` is everything up to row S of epoch E in the table with
the tag T. All of an epoch is `E:9007199254740991:T`, a seq of no row, so that all ids look alike.
Clients may leave out S, for all of the epoch, and T: as the id of a change does, which does not say
in which table it is. Such a position is in the table that there is now, unless the address names T.

`TableReads` limits how many read the table at once; TableReadsBusy is raised beyond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from jobs.reading.history import list_later_epochs, read_changes, require_known_epoch
from jobs.reading.version import TABLE_TAG_CHARACTERS, TableVersion, at_newest
from schemas.limits import PAGE_ROWS_MAX
from service.answers.history import raise_problems, require_same_table
from service.answers.results import TableReads
from service.live.recent_changes import END_OF_EPOCH, EpochChanges, render_epoch
from service.live.table import LiveTable
from service.problems import make_parameter_problem

_TAG = rf"[0-9a-f]{{{TABLE_TAG_CHARACTERS}}}"
_POSITION = re.compile(rf"(\d{{1,15}})(?::(\d{{1,18}})(?::({_TAG}))?)?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class ChangePosition:
    """What a client has read; the next changes follow it."""

    epoch: int
    seq: int = END_OF_EPOCH  # of the last row read; by default all of the epoch
    table: str = ""  # the tag of the table that was read

    @property
    def is_epoch_end(self) -> bool:
        return self.seq >= END_OF_EPOCH

    @property
    def next_epoch(self) -> int:
        """The first epoch with changes after the position."""
        return self.epoch + 1 if self.is_epoch_end else self.epoch

    def __str__(self) -> str:
        return f"{self.epoch}:{self.seq}:{self.table}"


def parse_position(
    text: str, parameter: str, live_table: LiveTable, earlier: str | None = None
) -> ChangePosition:
    """Parse a position in a table; raise a Problem if it is one of another table.

    The id of a change names no table: it is in the table of the client's `earlier` position.
    """
    found = _POSITION.fullmatch(text.strip())
    if found is None:
        reason = f"{text[:80]!r} is not a position; write EPOCH, EPOCH:SEQ or an id of an event"
        raise make_parameter_problem(parameter, reason)
    epoch, seq, table = found.groups(default="")
    if not table and (before := _POSITION.fullmatch((earlier or "").strip())) is not None:
        table = before[3]
    at = ChangePosition(
        int(epoch), int(seq) if seq else END_OF_EPOCH, table or live_table.table_tag
    )
    require_table(live_table, at)
    return at


def require_table(live_table: LiveTable, at: ChangePosition) -> None:
    """Raise a Problem if a position is in a table that another one has replaced."""
    if live_table.table_tag:  # otherwise it was not read yet
        require_same_table(at.table, live_table.table_tag)


def check_position(live_table: LiveTable, at: ChangePosition, reads: TableReads) -> None:
    """Raise a Problem if a stream cannot start at a position."""
    newest = live_table.require_newest().epoch
    with raise_problems():
        require_known_epoch(at.epoch, newest)
    if at.next_epoch > newest or live_table.recent.find_epoch(at.next_epoch) is not None:
        return
    with reads.limit():
        at_newest(live_table.paths.table, lambda table: list_later_epochs(table, at.next_epoch - 1))


def has_next(live_table: LiveTable, at: ChangePosition) -> bool:
    """Return whether there is an epoch after a position."""
    return live_table.newest is not None and at.next_epoch <= live_table.newest.epoch


def read_epochs(live_table: LiveTable, at: ChangePosition, reads: TableReads) -> list[EpochChanges]:
    """Return some of the epochs after a position; none at the newest epoch.

    The first one is the position's own epoch if the position is inside it. This may read the table:
    not for the event loop.
    """
    if at.next_epoch > live_table.require_newest().epoch:
        return []
    recent = find_recent_epochs(live_table, at)
    if recent:
        return recent
    with reads.limit():
        return at_newest(
            live_table.paths.table, lambda table: _read_from_table(live_table, table, at)
        )


def find_recent_epochs(live_table: LiveTable, at: ChangePosition) -> list[EpochChanges]:
    """Return the epochs after a position that are in memory."""
    number = at.next_epoch
    found: list[EpochChanges] = []
    rows = 0
    while (epoch := live_table.recent.find_epoch(number)) is not None and epoch.table == at.table:
        rows += len(epoch.changes)
        if found and rows > PAGE_ROWS_MAX:
            break
        found.append(epoch)
        number += 1
    return found


def _read_from_table(
    live_table: LiveTable, table: TableVersion, at: ChangePosition
) -> list[EpochChanges]:
    require_same_table(at.table, table.tag)
    rows = table.epochs(at.next_epoch - 1)
    found = []
    if rows and rows[0].epoch == at.next_epoch:
        of_query = takewhile(lambda row: not row.begins, rows)
        found = read_changes(table, of_query, PAGE_ROWS_MAX)
    if not found:
        list_later_epochs(table, at.next_epoch - 1)  # raises HistoryGone with the oldest epoch
    return [render_epoch(row, mine, live_table.shape, table.tag) for row, mine in found]


def find_newest_position(live_table: LiveTable) -> ChangePosition:
    """Return the position of the newest epoch."""
    return ChangePosition(live_table.require_newest().epoch, table=live_table.table_tag)
