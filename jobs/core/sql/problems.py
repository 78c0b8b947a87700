"""Problems of a query, with line, column and a hint, and small helpers for syntax nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.sql.dialect import Refusal
from schemas.limits import IDENTIFIER_CHARACTERS_MAX

SUBQUERY = "a subquery is only possible in FROM, and as IN or EXISTS among the ANDs of WHERE"
INSTEAD_OF_SUBQUERY = "a condition on columns, or a job of its own for the inner query"


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """One problem of a query; line and column count from 1."""

    message: str
    line: int
    column: int
    hint: str | None = None

    def __str__(self) -> str:
        hint = f" (try: {self.hint})" if self.hint else ""
        return f"line {self.line}, column {self.column}: {self.message}{hint}"


class QueryError(ValueError):
    """The query is refused; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: Sequence[QueryProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = list(problems)


def problem_at(sql: str, refusal: Refusal) -> QueryProblem:
    """Return a refusal as a problem with line and column."""
    before = sql[: refusal.offset or 0]
    column = len(before) - (before.rfind("\n") + 1) + 1
    return QueryProblem(refusal.message, before.count("\n") + 1, column, refusal.hint)


@dataclass
class ProblemReporter:
    """Reports problems of a query text; `problems` collects those that do not stop the parser."""

    sql: str
    problems: list[QueryProblem]

    def require_only(self, node: exp.Expr, *known: str) -> None:
        """Refuse a node that has parts other than the known ones."""
        for part, value in node.args.items():
            if value and part not in known:
                name = sql_name(type(node))
                clause = part.strip("_").upper()
                inner = value[0] if isinstance(value, list) else value
                blamed = inner if isinstance(inner, exp.Expr) else node
                raise self.refusal(f"{clause} is not supported here ({name})", blamed)

    def refusal(self, message: str, node: object, hint: str | None = None) -> Refusal:
        """Return a Refusal at the position of a node, to be raised."""
        return Refusal(message, offset_of(node), hint)

    @contextmanager
    def blame(self, node: exp.Expr) -> Iterator[None]:
        """Turn a TypeProblem into a Refusal at this node."""
        try:
            yield
        except TypeProblem as problem:
            raise self.refusal(problem.message, node, problem.hint) from None

    @contextmanager
    def collect_problems(self) -> Iterator[None]:
        """Collect a refusal and go on, so that one answer names all problems."""
        try:
            yield
        except Refusal as refusal:
            self.problems.append(problem_at(self.sql, refusal))


# --- nodes and names -----------------------------------------------------------------------------


def split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def function_name(node: exp.Expr) -> str:
    """Return the name of a call, in capitals; empty for any other node."""
    return node.name.upper() if isinstance(node, exp.Anonymous) else ""


def make_call(node: exp.Expr, name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call at the position of another node."""
    made = exp.Anonymous(this=name, expressions=list(arguments))
    made.meta.update(node.meta)
    return made


def split_ands(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins, in order."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, exp.Paren):
            waiting.append(current.this)
        elif isinstance(current, exp.And):
            waiting += [current.expression, current.this]
        else:
            yield current


def sql_name(kind: type[exp.Expr]) -> str:
    """Return the SQL name of a node type: CURRENT_DATE for CurrentDate."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()


def offset_of(node: object) -> int:
    """Return the start of a node, or of its parts if the node itself has no position."""
    while isinstance(node, exp.Expr):
        starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
        if starts:
            return int(min(starts))
        node = node.parent
    return 0


def same_name(left: str, right: str) -> bool:
    return left.lower() == right.lower()


def printable_name(name: str) -> str:
    """Return a name of the query, short and on one line."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return (
        text if len(text) <= IDENTIFIER_CHARACTERS_MAX else text[:IDENTIFIER_CHARACTERS_MAX] + "…"
    )
