"""The clauses of a SELECT, found in its tokens.

    SELECT items FROM source WHERE .. GROUP BY keys HAVING ..

A clause keeps the user's words; only what has another form here is written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from jobs.core.sql import refused_names
from jobs.core.sql.aggregate_calls import AGGREGATES as KNOWN_AGGREGATES
from jobs.migrating.problems import NotTakenError
from jobs.migrating.tokens import Cursor, Token

_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING")
_NOT_TAKEN = {
    "UNION": "a job reads one query; write a job for each part, with sinks of their own",
    "INTERSECT": "a job reads one query",
    "EXCEPT": "a job reads one query",
    "ORDER": "a changing result has no order; sort where you read it, or use TOP_K",
    "LIMIT": "a changing result has no first rows; use TOP_K",
    "WINDOW": "OVER windows have no counterpart",
    "OVER": "OVER windows have no counterpart; for the first rows of a group use TOP_K or ARG_MAX",
    "MATCH_RECOGNIZE": "MATCH_RECOGNIZE has no counterpart",
    "LATERAL": "LATERAL has no counterpart: a row cannot choose the rows to join",
    "WITH": "WITH stands before the SELECT of an INSERT or of a view; move it there",
}
_NUMBERING = ["ROW_NUMBER", "(", ")", "OVER"]


@dataclass(slots=True)
class SelectParts:
    """The tokens of each clause."""

    offset: int
    items: list[list[Token]]
    source: list[Token]
    distinct: bool = False
    where: list[Token] = field(default_factory=list)
    keys: list[list[Token]] = field(default_factory=list)
    having: list[Token] = field(default_factory=list)


def read_select(tokens: Sequence[Token], sql: str) -> SelectParts:
    """Return the clauses of a SELECT; raise NotTakenError for what has no counterpart."""
    while tokens and tokens[0].word == "(" and tokens[-1].word == ")":
        tokens = tokens[1:-1]
    _refuse(tokens)
    cursor = Cursor(tokens, sql)
    offset = cursor.offset
    cursor.expect("SELECT")
    distinct = cursor.take("DISTINCT")
    cursor.take("ALL")
    items = split_list(cursor.until(*_CLAUSES))
    cursor.expect("FROM")
    parts = SelectParts(offset, items, cursor.until(*_CLAUSES), distinct)
    if cursor.take("WHERE"):
        parts.where = cursor.until(*_CLAUSES)
    if cursor.take("GROUP", "BY"):
        parts.keys = split_list(cursor.until(*_CLAUSES))
    if cursor.take("HAVING"):
        parts.having = cursor.until(*_CLAUSES)
    if not cursor.done:
        raise NotTakenError("this part of the query is not known", cursor.offset)
    return parts


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..) AS name, an item of a SELECT."""

    name: str
    keys: frozenset[str]  # names of columns
    over: Token

    @property
    def refusal(self) -> NotTakenError:
        return NotTakenError(_NOT_TAKEN["OVER"], self.over.offset)

    def takes_first(self, where: Sequence[Token]) -> bool:
        """Return whether WHERE takes the rows with the number 1."""
        values = [token.value for token in where]
        taken = {(self.name, "=", "1"), (self.name, "<=", "1"), (self.name, "<", "2")}
        taken.add(("1", "=", self.name))
        return not taken.isdisjoint(zip(values, values[1:], values[2:], strict=False))


def read_numbering(item: Sequence[Token], name: str | None) -> NumberedRows | None:
    """Return the numbering of rows that an item is, under its name; None of another item."""
    over = next((token for token in item if token.word == "OVER"), None)
    if over is None:
        return None
    inside = Cursor(alias_of(item)[0][5:-1], "")
    keys = split_list(inside.until("ORDER")) if inside.take("PARTITION", "BY") else []
    return NumberedRows(name or "", frozenset(map(last_name, keys)), over)


def _refuse(tokens: Sequence[Token]) -> None:
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.word == "(") - (token.word == ")")
        inside = token.word in ("ORDER", "LIMIT", "WINDOW", "WITH")  # also words of calls
        if token.word not in _NOT_TAKEN or (depth and inside):
            continue
        if index and tokens[index - 1].word == ".":
            continue
        if [each.word for each in tokens[index - 3 : index + 1]] == _NUMBERING:
            continue  # refused later, unless a query takes the rows with the number 1
        raise NotTakenError(_NOT_TAKEN[token.word], token.offset)


def split_at(mark: str, tokens: Iterable[Token], brackets: str = "()") -> list[list[Token]]:
    """Split at a mark outside of brackets, each an opening one before its closing one."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in brackets[::2]) - (token.text in brackets[1::2])
        if depth == 0 and token.text == mark:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def split_list(tokens: Iterable[Token]) -> list[list[Token]]:
    """Split at the commas outside of parentheses; leave out what is empty."""
    return [part for part in split_at(",", tokens) if part]


def write(tokens: Iterable[Token]) -> str:
    """Return tokens as text, with one blank where there was a blank or a comment."""
    text, end = "", None
    for token in tokens:
        text += (" " if end is not None and token.offset > end else "") + token.text
        end = token.end
    return text


def alias_of(item: Sequence[Token]) -> tuple[Sequence[Token], str | None]:
    """Return the expression of an item, and its name if it has one."""
    last = item[-1]
    if len(item) > 2 and item[-2].word == "AS":
        return item[:-2], last.value
    if last.kind != "name" or last.word in KEYWORDS:
        return item, None
    if len(item) == 1 or item[-2].word == ".":
        whole = all(token.word == "." for token in item[1::2])
        return item, last.value if whole else None
    before = item[-2]
    if before.word in (")", "END") or (before.kind != "mark" and before.word not in KEYWORDS):
        return item[:-1], last.value
    return item, None


def has_aggregate(item: Sequence[Token]) -> bool:
    return any(
        token.word in AGGREGATES and following.text == "(" for token, following in pairwise(item)
    )


def last_name(tokens: Sequence[Token]) -> str:
    """Return a column without the name of its table; the whole text of anything else."""
    return write(tokens).split(".")[-1].strip('`"')


def quote_name(name: str) -> str:
    """Return a name as the query writes it."""
    plain = name.isascii() and name.isidentifier() and name.upper() not in KEYWORDS
    return name if plain else f"`{name}`"


KEYWORDS = {
    "ALL", "AND", "AS", "BETWEEN", "BY", "CASE", "CAST", "DATE", "DAY", "DISTINCT", "ELSE", "END",
    "EXISTS", "EXTRACT", "FALSE", "FILTER", "FROM", "GROUP", "GROUPING", "HAVING", "HOUR", "IN",
    "INTERVAL", "IS", "LIKE", "LIMIT", "MINUTE", "MONTH", "NOT", "NULL", "ON", "OR", "ORDER",
    "SECOND", "SELECT", "SETS", "TABLE", "THEN", "TIME", "TIMESTAMP", "TRUE", "UNION", "VALUE",
    "VALUES", "WHEN", "WHERE", "WINDOW", "WITH", "YEAR",
}  # fmt: skip
AGGREGATES = frozenset((*KNOWN_AGGREGATES, *refused_names.AGGREGATES))
