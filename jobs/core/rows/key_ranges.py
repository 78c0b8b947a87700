"""Divide the keys of a table into ranges: the parts of a snapshot, and their tasks.

    low ├────── part 1 ──────┼────── part 2 ──────┤ high      the first has all keys below, and
        ├─ task ─┼─ task ────┼─ task ─┼─ task ────┤           NULL; the last has all keys above

The bounds of a part do not depend on the number of tasks, so that a later start reads the rest of
the parts with other tasks.
"""

from __future__ import annotations

from typing import NamedTuple


class KeyRange(NamedTuple):
    """Keys [start, end); None is no bound."""

    start: int | None
    end: int | None

    def condition(self, key: str) -> str:
        """Return the range as SQL; a column without a value belongs to the first range."""
        above = [] if self.start is None else [f"{key} >= {self.start}"]
        below = [] if self.end is None else [f"{key} < {self.end}"]
        found = " AND ".join(above + below) or "1 = 1"
        return f"{found} OR {key} IS NULL" if self.start is None and self.end is not None else found


def cut_part(low: int, high: int, parts: int, part: int, tasks: int) -> list[KeyRange]:
    """Return the ranges of a part, which counts from 0, of the keys from `low` to `high`."""
    pieces, span = parts * tasks, high - low + 1
    found: list[KeyRange] = []
    for piece in range(part * tasks, (part + 1) * tasks):
        start, end = (low + span * each // pieces for each in (piece, piece + 1))
        first, last = piece == 0, piece == pieces - 1
        if first or last or start < end:
            found.append(KeyRange(None if first else start, None if last else end))
    return found
