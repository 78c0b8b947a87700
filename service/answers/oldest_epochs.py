"""The oldest epoch whose results are still available, cached for each job."""

from __future__ import annotations

import threading
import time
from weakref import WeakKeyDictionary

from jobs.table.history import find_complete_since
from jobs.table.version import at_newest
from schemas.limits import LOOKBACK_SECONDS
from service.live.table import LiveTable


class OldestEpochs:
    """The oldest epochs of all jobs; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: WeakKeyDictionary[LiveTable, tuple[float, int]] = WeakKeyDictionary()

    def find(self, live_table: LiveTable) -> int:
        """Return the oldest available epoch. It may read a table: not for the event loop."""
        now = time.monotonic()
        with self._lock:
            cached = self._cached.get(live_table)
        if cached is not None and now - cached[0] < LOOKBACK_SECONDS:
            return cached[1]
        epoch = at_newest(
            live_table.paths.table, lambda table: find_complete_since(table, 0, results=True)
        )
        with self._lock:
            self._cached[live_table] = (now, epoch)
        return epoch
