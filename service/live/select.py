"""A selection of result rows as SQL over a row store, for the newest or an earlier epoch.

    Select ──render_current──► rows
           └─render_at───────► rows that started by the epoch, and those that ended after it

Names of columns and tables are constants; input of users appears as values only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Select:
    """The columns of rows that meet all conditions, perhaps ordered and limited."""

    columns: Sequence[str]
    conditions: Sequence[str]
    values: Sequence[Any]
    order: Sequence[str] = ()
    limit: int = -1

    def render_current(self) -> tuple[str, list[Any]]:
        return f"{self._render_select('rows')} {self._end}", [*self.values, self.limit]

    def render_at(self, epoch: int) -> tuple[str, list[Any]]:
        current = self._render_select("rows", "since <= ?")
        ended = self._render_select("ended", "until > ?", "since <= ?")
        values = [epoch, *self.values, epoch, epoch, *self.values, self.limit]
        return f"{current} UNION ALL {ended} {self._end}", values

    def _render_select(self, table: str, *time: str) -> str:
        columns, conditions = ", ".join(self.columns), " AND ".join([*time, *self.conditions])
        where = f" WHERE {conditions}" if conditions else ""
        return f"SELECT {columns} FROM {table}{where}"  # noqa: S608 - see above

    @property
    def _end(self) -> str:
        return f"ORDER BY {', '.join(self.order)} LIMIT ?" if self.order else "LIMIT ?"
