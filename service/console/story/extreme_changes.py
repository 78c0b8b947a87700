"""Retreats: groups whose MAX went down or whose MIN went up in the last epochs.

    epochs after the one looked at last (memory, else the table) ──► -U +U pairs ──► the newest few

A MAX that goes down is what makes people ask why; so it can be found without knowing the group. The
changelog is gone through once, epoch by epoch as it grows, and not for every page.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from jobs.core.explain.extreme_changes import Extreme, extremes
from schemas.limits import CONSOLE_RETREATS, CONSOLE_RETREATS_EPOCHS, CONSOLE_RETREATS_ROWS
from service.answers.changes import Place, next_epochs
from service.console.rows import key_label, key_of_row, key_part, text_of
from service.live.follower import Follower
from service.live.recent_changes import EpochChanges
from service.problems import Problem

_decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Retreat:
    epoch: int
    label: str  # of the group
    link: str | None
    column: str
    before: str
    after: str
    greatest: bool  # MAX went down, else MIN went up


@dataclass(frozen=True, slots=True)
class Lately:
    retreats: tuple[Retreat, ...]  # the newest first
    since: int | None  # they are those of the epochs after this one
    columns: tuple[str, ...]  # that could have any
    title: str  # what such a thing is in this job


class _Watch:
    """Of one follower."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.found: deque[Retreat] = deque(maxlen=CONSOLE_RETREATS)
        self.since: int | None = None
        self.at: Place | None = None


class Retreats:
    """Of all jobs. `of` may read a table: not to be called on the event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: WeakKeyDictionary[Follower, _Watch] = WeakKeyDictionary()

    def of(self, follower: Follower) -> Lately:
        columns = extremes(follower.shape.plan)
        if not columns or follower.newest is None:
            return Lately((), None, (), "")
        with self._lock:
            watch = self._watches.setdefault(follower, _Watch())
        with watch.lock:
            _look(watch, follower, columns)
            newest = {(each.link, each.column): each for each in watch.found}
            found = sorted(newest.values(), key=lambda each: (-each.epoch, not each.greatest))
            names = tuple(each.column for each in columns)
            return Lately(tuple(found), watch.since, names, _title(columns))


def _title(columns: list[Extreme]) -> str:
    greatest = {each.greatest for each in columns}
    told = [words for of, words in ((True, "a MAX went down"), (False, "a MIN went up"))
            if of in greatest]  # fmt: skip
    return f"Lately {' or '.join(told)}"


def _look(watch: _Watch, follower: Follower, columns: list[Extreme]) -> None:
    """Go through the epochs that came since the last look; where those are too many, through the
    newest of them."""
    assert follower.newest is not None
    newest = follower.newest.epoch
    earliest = max(newest - CONSOLE_RETREATS_EPOCHS, 0)
    if watch.at is None or watch.at.epoch < earliest or watch.at.epoch > newest:
        watch.found.clear()
        watch.at, watch.since = Place(earliest), earliest
    rows = 0
    try:
        while rows < CONSOLE_RETREATS_ROWS and (epochs := next_epochs(follower, watch.at)):
            for epoch in epochs:
                watch.found.extend(_of_epoch(follower, epoch, columns))
                watch.at = Place(epoch.epoch)
                rows += len(epoch.changes)
    except Problem as problem:
        oldest = problem.further.get("oldest")
        if oldest is None:
            raise
        watch.found.clear()
        watch.at, watch.since = Place(oldest), oldest


def _of_epoch(follower: Follower, epoch: EpochChanges, columns: list[Extreme]) -> list[Retreat]:
    found = []
    before: tuple[bytes, dict[str, Any]] | None = None
    for change in epoch.changes:
        row = _decode(change.row)
        if before is not None and before[0] == change.key and b'"op":"+U"' in change.document[:12]:
            for extreme in columns:
                old, new = before[1][extreme.column], row[extreme.column]
                if extreme.retreats(old, new):
                    found.append(_retreat(follower, epoch.epoch, row, extreme, old, new))
        before = (change.key, row)
    return found


def _retreat(
    follower: Follower, epoch: int, row: dict[str, Any], extreme: Extreme, old: Any, new: Any
) -> Retreat:
    key = key_of_row(follower.shape, row)
    return Retreat(
        epoch=epoch,
        label="a group without a name" if key is None else key_label(key),
        link=None if key is None else key_part(key),
        column=extreme.column,
        before=text_of(old),
        after="NULL" if new is None else text_of(new),
        greatest=extreme.greatest,
    )
