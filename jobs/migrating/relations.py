"""What a SELECT reads, and a converted SELECT.

SELECT items FROM relation WHERE .. GROUP BY group HAVING ..
                     └► a table, a derived table, a join, or the job of another SELECT
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from jobs.migrating.dialect import WindowTable, identifier, write
from jobs.migrating.problems import Note
from jobs.migrating.selects import NumberedRows
from jobs.migrating.sources import SourceTable

_LINE_MAX = 90


@dataclass(slots=True)
class Relation:
    """What a SELECT reads: its item in FROM, and where its rows come from."""

    body: exp.Expr | None = None  # a table or a derived table without its alias; none of a join
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
    def item(self) -> exp.Expr:
        """The item of FROM."""
        assert self.body is not None
        item = self.body.copy()
        if self.alias and not (isinstance(item, exp.Table) and item.name == self.alias):
            item.set("alias", exp.TableAlias(this=identifier(self.alias)))
        return item


@dataclass(slots=True)
class Query:
    """A converted SELECT; each of its results has an expression and a name."""

    select: exp.Select
    relation: Relation
    offset: int
    outputs: list[str] = field(default_factory=list)  # the names of the results
    windowed: bool = False
    aggregated: bool = False
    notes: list[Note] = field(default_factory=list)
    name: str = ""  # of the view or derived table, if it is a job of its own
    numbered: NumberedRows | None = None

    @property
    def text(self) -> str:
        """Return the query on one line, or a long one with a line for each clause."""
        whole, args = write(self.select), self.select.args
        if len(whole) <= _LINE_MAX:
            return whole
        word, items = "SELECT DISTINCT " if args.get("distinct") else "SELECT ", args["expressions"]
        first = word + ", ".join(map(write, items))
        if len(first) > _LINE_MAX:
            first = word + ",\n  ".join(map(write, items))
        origin = exp.Select(expressions=[exp.Star()])
        for name in ("from_", "joins"):
            origin.set(name, self.select.copy().args.get(name))
        clauses = [write(args[name]) for name in ("where", "group", "having") if args.get(name)]
        return "\n".join((first, write(origin).removeprefix("SELECT * "), *clauses))
