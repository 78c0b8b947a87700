"""What a SELECT reads, and a converted SELECT, whose text is written from its parts.

SELECT items FROM relation WHERE .. GROUP BY group HAVING ..
                     └► a table, a derived table, a join, or the job of another SELECT
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.migrating.problems import Note
from jobs.migrating.select_parts import NumberedRows
from jobs.migrating.sources import SourceTable

_LINE_MAX = 90


@dataclass(frozen=True, slots=True)
class WindowTable:
    """A window table function: its name, and the intervals after the time column."""

    function: str
    intervals: tuple[str, ...]
    offset: int
    partition: tuple[str, ...] = ()


@dataclass(slots=True)
class Relation:
    """What a SELECT reads: the text after FROM, and where its rows come from."""

    body: str  # a name, or a SELECT in parentheses
    alias: str = ""
    source: SourceTable | None = None
    inner: Query | None = None  # a job of its own
    window: WindowTable | None = None
    visible: list[str] = field(default_factory=list)
    bounds: dict[str, str] = field(default_factory=dict)  # columns that are bounds of the window
    times: dict[str, str] = field(default_factory=dict)  # columns that are another one in windows
    joined: list[Relation] = field(default_factory=list)  # the sides of its joins
    numbered: NumberedRows | None = None  # if its SELECT numbers them

    @property
    def sources(self) -> list[SourceTable]:
        """The tables that it reads, each once."""
        read = [self, *self.joined]
        found = {each.source.table.name: each.source for each in read if each.source is not None}
        return list(found.values())

    @property
    def text(self) -> str:
        needed = self.alias and self.alias != self.body
        return f"{self.body} AS {self.alias}" if needed else self.body


@dataclass(slots=True)
class Query:
    """A converted SELECT; each of its results has an expression and a name."""

    relation: Relation
    offset: int
    items: list[str] = field(default_factory=list)  # of SELECT: expressions with AS, or a star
    expressions: list[str] = field(default_factory=list)  # of the results, without AS
    distinct: bool = False
    where: str = ""
    group: list[str] = field(default_factory=list)  # of GROUP BY
    having: str = ""
    outputs: list[str] = field(default_factory=list)  # the names of the results
    keys: list[str] = field(default_factory=list)  # outputs that are group keys
    windowed: bool = False
    aggregated: bool = False
    notes: list[Note] = field(default_factory=list)
    name: str = ""  # of the view or derived table, if it is a job of its own
    numbered: NumberedRows | None = None

    @property
    def text(self) -> str:
        """Return the query on one line, or a long one with a line for each clause."""
        whole = self.one_line
        if len(whole) <= _LINE_MAX:
            return whole
        first = self._select + ", ".join(self.items)
        if len(first) <= _LINE_MAX:
            return "\n".join((first, *self._clauses))
        return "\n".join((self._select + ",\n  ".join(self.items), *self._clauses))

    @property
    def one_line(self) -> str:
        return " ".join((self._select + ", ".join(self.items), *self._clauses))

    @property
    def _select(self) -> str:
        return "SELECT DISTINCT " if self.distinct else "SELECT "

    @property
    def _clauses(self) -> list[str]:
        """The clauses after SELECT, each a line of its own."""
        clauses = [f"FROM {self.relation.text}"]
        if self.where:
            clauses.append(f"WHERE {self.where}")
        if self.group:
            clauses.append(f"GROUP BY {', '.join(self.group)}")
        if self.having:
            clauses.append(f"HAVING {self.having}")
        return clauses
