"""State size: how many files and bytes each part of a job's table has, asked now and then.

A look goes through the table's log, so what was found is told again for some seconds.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from schemas.limits import STATE_SIZE_SECONDS
from schemas.table.object_path import TablePath
from service.table.job_table import FormatUnknown, NoTable, PartSize, Table


@dataclass(frozen=True, slots=True)
class StateSize:
    parts: tuple[PartSize, ...]  # the largest first

    @property
    def files(self) -> int:
        return sum(part.files for part in self.parts)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class StateSizes:
    """Of all jobs; `of` may read, so it is called in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[TablePath, tuple[float, StateSize | None]] = {}

    def of(self, root: TablePath) -> StateSize | None:
        """None where there is no table, or none that can be read."""
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
        parts = Table(root).sizes
    except (NoTable, FormatUnknown, DeltaError, FileNotFoundError):
        return None
    return StateSize(tuple(sorted(parts, key=lambda part: -part.size)))
