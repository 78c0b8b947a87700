"""What is wrong with a query, and where: problems with line, column and what would help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.sql.dialect import Refusal
from schemas.limits import IDENTIFIER_CHARACTERS_MAX


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """One thing that is wrong with a query; line and column count from 1."""

    message: str
    line: int
    column: int
    hint: str | None = None

    def __str__(self) -> str:
        hint = f" (try: {self.hint})" if self.hint else ""
        return f"line {self.line}, column {self.column}: {self.message}{hint}"


class QueryError(ValueError):
    """A query that is not taken, with all that was found wrong with it."""

    def __init__(self, problems: Sequence[QueryProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = list(problems)


def problem_at(sql: str, refusal: Refusal) -> QueryProblem:
    before = sql[: refusal.offset or 0]
    column = len(before) - (before.rfind("\n") + 1) + 1
    return QueryProblem(refusal.message, before.count("\n") + 1, column, refusal.hint)


@dataclass
class Reading:
    """A query text that is being read; `problems` collects what does not stop the reading."""

    sql: str
    problems: list[QueryProblem]

    def only(self, node: exp.Expr, *known: str) -> None:
        """Refuse a part of a node that nothing here would read."""
        for part, value in node.args.items():
            if value and part not in known:
                name = sql_name(type(node))
                what = part.strip("_").upper()
                inner = value[0] if isinstance(value, list) else value
                place = inner if isinstance(inner, exp.Expr) else node
                raise self.refused(f"{what} is not supported here ({name})", place)

    def refused(self, message: str, node: object, hint: str | None = None) -> Refusal:
        return Refusal(message, offset_of(node), hint)

    @contextmanager
    def at(self, node: exp.Expr) -> Iterator[None]:
        """Give a problem of types its place."""
        try:
            yield
        except TypeProblem as problem:
            raise self.refused(problem.message, node, problem.hint) from None

    @contextmanager
    def problems_kept(self) -> Iterator[None]:
        """Note a refusal and go on, so that one answer names all problems."""
        try:
            yield
        except Refusal as refusal:
            self.problems.append(problem_at(self.sql, refusal))


# --- small questions about nodes and names -------------------------------------------------------


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def function_name(node: exp.Expr) -> str:
    """The name of a call, in capitals; empty for any other node."""
    return node.name.upper() if isinstance(node, exp.Anonymous) else ""


def sql_name(kind: type[exp.Expr]) -> str:
    """CurrentDate as CURRENT_DATE."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()


def offset_of(node: object) -> int:
    """Where a node starts; nodes without a place of their own start where their parts do."""
    while isinstance(node, exp.Expr):
        starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
        if starts:
            return int(min(starts))
        node = node.parent
    return 0


def same_name(left: str, right: str) -> bool:
    return left.lower() == right.lower()


def shown_name(name: str) -> str:
    """A name from the query, short and on one line."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return (
        text if len(text) <= IDENTIFIER_CHARACTERS_MAX else text[:IDENTIFIER_CHARACTERS_MAX] + "…"
    )
