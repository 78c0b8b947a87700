"""A selection of result rows, as SQL over a row store: as they are, or as they were at an epoch.

    Select ──now──► rows
           └─then─► rows that began by the epoch, and those that ended after it

Columns and tables have names of our own; what users say are values only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Select:
    """`columns` of the rows that meet all conditions; in an order, and so many, where that is
    said."""

    columns: Sequence[str]
    conditions: Sequence[str]
    values: Sequence[Any]
    order: Sequence[str] = ()
    limit: int = -1

    def now(self) -> tuple[str, list[Any]]:
        return f"{self._from('rows')} {self._end}", [*self.values, self.limit]

    def then(self, epoch: int) -> tuple[str, list[Any]]:
        standing = self._from("rows", "since <= ?")
        ended = self._from("ended", "until > ?", "since <= ?")
        values = [epoch, *self.values, epoch, epoch, *self.values, self.limit]
        return f"{standing} UNION ALL {ended} {self._end}", values

    def _from(self, table: str, *time: str) -> str:
        columns, conditions = ", ".join(self.columns), " AND ".join([*time, *self.conditions])
        where = f" WHERE {conditions}" if conditions else ""
        return f"SELECT {columns} FROM {table}{where}"  # noqa: S608 - see above

    @property
    def _end(self) -> str:
        return f"ORDER BY {', '.join(self.order)} LIMIT ?" if self.order else "LIMIT ?"
