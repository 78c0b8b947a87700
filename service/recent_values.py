"""What the service has computed some seconds ago, and does not compute again for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentValues(Generic[Key, Value]):
    """The values of a function, each for these seconds; thread-safe."""

    def __init__(self, seconds: float, compute: Callable[[Key], Value]) -> None:
        self._seconds = seconds
        self._compute = compute
        self._lock = threading.Lock()
        self._known: dict[Key, tuple[float, Value]] = {}

    def read(self, key: Key) -> Value:
        """Return the value of a key. It may be computed: not for the event loop."""
        oldest = time.monotonic() - self._seconds
        with self._lock:
            self._known = {each: known for each, known in self._known.items() if known[0] > oldest}
            if key in self._known:
                return self._known[key][1]
        value = self._compute(key)
        with self._lock:
            self._known[key] = (time.monotonic(), value)
        return value
