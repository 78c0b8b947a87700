"""Past results: a job's results as of an epoch that the index no longer has, from the table.

    state now ──► minus what the changelog says came later ──► results of epoch N
                                                                 └─ kept for the next pages of it

They are put into a store of their own, which SQLite keeps in a file that nobody else sees, so that
conditions, orders and pages are the same as of the present.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from schemas.limits import PAST_RESULTS_KEPT_MAX, QUERY_SECONDS_MAX
from service.answers.history import complete_after
from service.live.results_index import too_slow
from service.live.row_store import RowStore
from service.live.select import Select
from service.table.job_table import Table, at_newest
from service.table.row_shape import RowShape

_UNDO_ROWS = 200_000
_PROGRESS_STEPS = 20_000


class PastEpoch:
    """The results of one epoch, which are the rows of its store."""

    def __init__(self, table: Table, shape: RowShape, epoch: int) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")
        store = RowStore(self._connection, shape)
        store.create()
        later = complete_after(table, epoch, results=True)
        self._connection.execute("BEGIN")
        store.fill(table, 0)
        for first, last in _pieces_backwards(later):
            store.undo(table.changelog(first - 1, last))
        self._connection.execute("COMMIT")

    def rows(self, select: Select) -> list[tuple[Any, ...]]:
        with self._lock:
            deadline = time.monotonic() + QUERY_SECONDS_MAX
            self._connection.set_progress_handler(
                lambda: time.monotonic() > deadline, _PROGRESS_STEPS
            )
            try:
                return self._connection.execute(*select.now()).fetchall()
            except sqlite3.OperationalError as error:
                if "interrupted" not in str(error):
                    raise
                raise too_slow() from None

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _pieces_backwards(epochs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of epochs, the newest first, each of a bounded number of changelog rows."""
    pieces: list[tuple[int, int]] = []
    count = 0
    for epoch, rows in reversed(epochs):
        if pieces and count + rows <= _UNDO_ROWS:
            pieces[-1] = (epoch, pieces[-1][1])
            count += rows
        else:
            pieces.append((epoch, epoch))
            count = rows
    return pieces


class PastResults:
    """The last few past epochs that were asked for, over all jobs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, int], PastEpoch] = OrderedDict()

    def epoch(self, root: Any, shape: RowShape, epoch: int, uuid: str) -> PastEpoch:
        """`uuid` is that of an epoch of the same table, so that a new table is not the old one."""
        name = (str(root), uuid, epoch)
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        made = at_newest(root, lambda table: PastEpoch(table, shape, epoch))
        with self._lock:
            self._kept[name] = made
            while len(self._kept) > PAST_RESULTS_KEPT_MAX:
                # Not closed: a request may be reading it; SQLite closes it with its last user.
                self._kept.popitem(last=False)
        return made
