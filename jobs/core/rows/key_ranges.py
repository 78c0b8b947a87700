"""Divide the keys of a table into ranges: the parts of a snapshot, and their tasks.

    low ├────── part 1 ──────┼────── part 2 ──────┤ high      the first has all keys below, and
        ├─ task ─┼─ task ────┼─ task ─┼─ task ────┤           NULL; the last has all keys above

The bounds of a part do not depend on the number of tasks, so that a later start reads the rest of
the parts with other tasks. Whatever a database's order of texts is, `key <= bound` and
`key > bound` hold for one key never both, and for none but NULL neither.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from schemas.limits import SNAPSHOT_KEY_CHARACTERS_MAX

# Text that is the same between quotes in each database, and means nothing to its driver.
_PLAIN = re.compile(rf"[^'?\\{{}}\x00-\x1f\x7f-\U0010ffff]{{1,{SNAPSHOT_KEY_CHARACTERS_MAX}}}")


class KeyRange(NamedTuple):
    """Keys (after, until]; None is no bound, and a text is one that `is_plain`."""

    after: int | str | None
    until: int | str | None

    def condition(self, key: str) -> str:
        """Return the range as SQL; a column without a value belongs to the first range."""
        above = [] if self.after is None else [f"{key} > {_literal(self.after)}"]
        below = [] if self.until is None else [f"{key} <= {_literal(self.until)}"]
        found = " AND ".join(above + below) or "1 = 1"
        first = self.after is None and self.until is not None
        return f"{found} OR {key} IS NULL" if first else found


def cut_part(low: int, high: int, parts: int, part: int, tasks: int) -> list[KeyRange]:
    """Return the ranges of a part, which counts from 0, of the keys from `low` to `high`."""
    pieces, span = parts * tasks, high - low + 1
    found: list[KeyRange] = []
    for piece in range(part * tasks, (part + 1) * tasks):
        start, end = (low - 1 + span * each // pieces for each in (piece, piece + 1))
        first, last = piece == 0, piece == pieces - 1
        if first or last or start < end:
            found.append(KeyRange(None if first else start, None if last else end))
    return found


def is_plain(text: str) -> bool:
    """Return whether a text can be a bound in any database."""
    return _PLAIN.fullmatch(text) is not None


def _literal(bound: int | str) -> str:
    return f"'{bound}'" if isinstance(bound, str) else str(bound)
