"""Changes of a job from a place on: from memory where they are recent, else from the table.

    place (epoch, seq) ──► the next epochs, whole, in order
         in Recent? ──► rendered already
         else       ──► read from the table, if all of it is still there; else 410

A place says what a client has: `E:S` everything up to row S of epoch E, `E` all of epoch E. The
latter as an id is `E:9007199254740991`, a seq that no row has, so that all ids have one form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow.compute as pc

from schemas.limits import PAGE_ROWS_MAX
from schemas.table.epoch import EpochRow
from service.answers.history import begun, complete_after, gone
from service.live.follower import Follower
from service.live.recent_changes import WHOLE, EpochChanges, epoch_changes
from service.problems import Problem
from service.table.job_table import Table, at_newest

_PLACE = re.compile(r"(\d{1,15})(?::(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """What a follower has; the rows after it are the next ones."""

    epoch: int
    seq: int = WHOLE  # of a row of that epoch; by default all of them

    @property
    def whole(self) -> bool:
        return self.seq >= WHOLE

    def __str__(self) -> str:
        return f"{self.epoch}:{self.seq}"


def place(text: str, parameter: str) -> Place:
    found = _PLACE.fullmatch(text.strip())
    if found is None:
        reason = f"{text[:80]!r} is no place in the changes; it is EPOCH or EPOCH:SEQ"
        errors = [{"path": parameter, "message": reason}]
        raise Problem("parameter-invalid", 422, reason, errors=errors)
    epoch, seq = found.groups()
    return Place(int(epoch), WHOLE if seq is None else int(seq))


def check_place(follower: Follower, at: Place) -> None:
    """Refuse, before a stream begins, what it could not begin with."""
    newest = _newest(follower)
    if at.epoch > newest:
        raise Problem(
            "epoch-unknown", 404, f"there is no epoch {at.epoch} yet; the newest is {newest}",
            newest=newest,
        )  # fmt: skip
    first = at.epoch + 1 if at.whole else at.epoch
    if first > newest or follower.recent.epoch(first) is not None:
        return
    at_newest(follower.places.table, lambda table: complete_after(table, first - 1))


def behind(follower: Follower, at: Place) -> bool:
    """Whether there is an epoch after a place."""
    newest = follower.newest
    return newest is not None and (at.epoch + 1 if at.whole else at.epoch) <= newest.epoch


def next_epochs(follower: Follower, at: Place) -> list[EpochChanges]:
    """The epochs after a place that are there, some at a time; none when it is the newest.

    The first of them is the place's own where that is in the middle of one. Reads the table where
    memory does not have them: not to be called on the event loop then.
    """
    first = at.epoch + 1 if at.whole else at.epoch
    newest = _newest(follower)
    if first > newest:
        return []
    recent = recent_epochs(follower, at)
    if recent:
        return recent
    return at_newest(follower.places.table, lambda table: _from_table(follower, table, first))


def recent_epochs(follower: Follower, at: Place) -> list[EpochChanges]:
    """As `next_epochs`, of memory only; none where memory does not have the next one."""
    number = at.epoch + 1 if at.whole else at.epoch
    found: list[EpochChanges] = []
    rows = 0
    while (epoch := follower.recent.epoch(number)) is not None:
        rows += len(epoch.changes)
        if found and rows > PAGE_ROWS_MAX:
            break
        found.append(epoch)
        number += 1
    return found


def _from_table(follower: Follower, table: Table, first: int) -> list[EpochChanges]:
    rows = table.epochs(first - 1)
    if not rows or rows[0].epoch != first:
        raise gone(first - 1, rows[0].epoch if rows else table.newest.epoch)
    counts = table.changelog_counts(first - 1)
    piece: list[EpochRow] = []
    total = 0
    for row in rows:
        expected = int(row.counters.get("changelog_rows", 0))
        if counts.get(row.epoch, 0) != expected:
            if not piece:
                complete_after(table, first - 1)  # says how far back one can go
            break
        if row.begins:
            if not piece:
                raise begun(first - 1, row.epoch)
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
        found.append(epoch_changes(row, mine, follower.shape))
    return found


def newest_place(follower: Follower) -> Place:
    """Where a follower begins that wants what is to come."""
    return Place(_newest(follower))


def _newest(follower: Follower) -> int:
    if follower.newest is None:
        raise Problem("job-has-no-table", 409, "the job has no epoch yet; start it")
    return follower.newest.epoch
