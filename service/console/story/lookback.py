"""Lookback: the oldest epoch whose results can still be told, asked now and then."""

from __future__ import annotations

import threading
import time
from weakref import WeakKeyDictionary

from schemas.limits import LOOKBACK_SECONDS
from service.answers.history import complete_after
from service.live.follower import Follower
from service.problems import Problem
from service.table.job_table import at_newest


class Lookback:
    """Of all jobs. `oldest` may read a table: not to be called on the event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: WeakKeyDictionary[Follower, tuple[float, int]] = WeakKeyDictionary()

    def oldest(self, follower: Follower) -> int:
        now = time.monotonic()
        with self._lock:
            known = self._found.get(follower)
        if known is not None and now - known[0] < LOOKBACK_SECONDS:
            return known[1]
        found = _look(follower)
        with self._lock:
            self._found[follower] = (now, found)
        return found


def _look(follower: Follower) -> int:
    try:
        at_newest(follower.places.table, lambda table: complete_after(table, 0, results=True))
    except Problem as problem:
        oldest = problem.further.get("oldest")
        if oldest is None:
            raise
        return int(oldest)
    return 0
