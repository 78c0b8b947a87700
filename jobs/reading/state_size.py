"""State size: the number of files, rows and bytes in each part of a job's table."""

from __future__ import annotations

from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from jobs.reading.files import FormatUnknown, NoTable
from jobs.reading.version import PartSize, TableVersion
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


def read_state_size(root: TablePath) -> StateSize | None:
    """Return the size of a table; None if it is missing or unreadable."""
    try:
        parts = TableVersion(root).sizes
    except (NoTable, FormatUnknown, DeltaError, FileNotFoundError):
        return None
    return StateSize(tuple(sorted(parts, key=lambda part: -part.size)))
