"""State size: the number of files, rows and bytes in each part of a job's table.

To measure it, the service reads the table's log. So it keeps the result for some seconds.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from jobs.table.files import FormatUnknown, NoTable
from jobs.table.version import PartSize, TableVersion
from schemas.limits import STATE_SIZE_SECONDS
from schemas.table.object_path import TablePath


@dataclass(frozen=True, slots=True)
class StateSize:
    parts: tuple[PartSize, ...]  # largest first

    @property
    def files(self) -> int:
        return sum(part.files for part in self.parts)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class StateSizes:
    """The state sizes of all jobs. Call `read` in a thread, because it may read the log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[TablePath, tuple[float, StateSize | None]] = {}

    def read(self, root: TablePath) -> StateSize | None:
        """Return the size of a table; None if it is missing or unreadable."""
        now = time.monotonic()
        with self._lock:
            self._found = {
                path: known
                for path, known in self._found.items()
                if now - known[0] < STATE_SIZE_SECONDS
            }
            if root in self._found:
                return self._found[root][1]
        found = _read(root)
        with self._lock:
            self._found[root] = (now, found)
        return found


def _read(root: TablePath) -> StateSize | None:
    try:
        parts = TableVersion(root).sizes
    except (NoTable, FormatUnknown, DeltaError, FileNotFoundError):
        return None
    return StateSize(tuple(sorted(parts, key=lambda part: -part.size)))
