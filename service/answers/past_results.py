"""Past results: a job's results as of an epoch that the index no longer has, from the table.

    state, later changes ──► results of epoch N (jobs.reading.results)
                              └─ cached for the next pages

They are in a temporary row store of SQLite, so that conditions, orders and pages work as for
current results.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from typing import Any

from jobs.reading.history import list_later_epochs
from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion, at_newest
from schemas import limits
from service.answers.history import require_same_table
from service.live.results_index import make_slow_query_problem
from service.live.row_store import RowStore
from service.live.select import Select


class PastEpoch:
    """The results of one epoch in a temporary row store; thread-safe."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._lock = threading.Lock()
        self._connection = connection

    @classmethod
    def read(cls, table: TableVersion, shape: RowShape, epoch: int) -> PastEpoch:
        """Fill a store from a table; raise HistoryGone if its history is incomplete."""
        connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        store = RowStore(connection, shape)
        store.create_tables()
        list_later_epochs(table, epoch, results=True)
        connection.execute("BEGIN")
        store.fill(table, 0, epoch)
        connection.execute("COMMIT")
        return cls(connection)

    def select_rows(self, select: Select) -> list[tuple[Any, ...]]:
        with self._lock:
            deadline = time.monotonic() + limits.QUERY_SECONDS_MAX
            self._connection.set_progress_handler(
                lambda: time.monotonic() > deadline, limits.SQLITE_CHECK_STEPS
            )
            try:
                return self._connection.execute(*select.render_current()).fetchall()
            except sqlite3.OperationalError as error:
                if "interrupted" not in str(error):
                    raise
                raise make_slow_query_problem() from None

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class PastResults:
    """The past epochs that were requested last, of all jobs; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: OrderedDict[tuple[str, str, str, int], PastEpoch] = OrderedDict()

    def read_epoch(self, root: Any, shape: RowShape, epoch: int, table_tag: str) -> PastEpoch:
        """Return a past epoch of the table with this tag.

        Raise a Problem if there is another table at its path now.
        """
        # A changed query has other columns.
        name = (str(root), table_tag, shape.plan.fingerprint, epoch)
        with self._lock:
            found = self._cached.get(name)
            if found is not None:
                self._cached.move_to_end(name)
                return found

        def read(table: TableVersion) -> PastEpoch:
            require_same_table(table_tag, table.tag)
            return PastEpoch.read(table, shape, epoch)

        past = at_newest(root, read)
        with self._lock:
            self._cached[name] = past
            while len(self._cached) > limits.PAST_RESULTS_KEPT_MAX:
                # Not closed: a request may be reading it. The last reference closes it.
                self._cached.popitem(last=False)
        return past
