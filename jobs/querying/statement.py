"""Find the jobs that a statement reads, and give each of their tables a name of its own.

    SELECT ... FROM items AT EPOCH 41 JOIN daily-orders USING (name)
        └──► SELECT ... FROM "items AT EPOCH 41" JOIN "daily-orders" USING (name)
             items at epoch 41, daily-orders as it is now

A view is `job.view`. Only names that jobs have are looked for; DuckDB reads all the rest. What it
says of a place in its statement is shown in the statement as the user wrote it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from schemas import limits
from schemas.types.moments import parse_instant

ANSWER_TOO_LARGE = (
    f"the answer has more than {limits.SQL_ANSWER_BYTES_MAX // 2**20} MiB; ask for less"
)
_AT = re.compile(r"\s+AT\s+(?:(EPOCH)\s+([0-9]{1,18})|(TIME)\s+'([^']{1,40})')", re.IGNORECASE)
_WRONG_AT = re.compile(r"\s+AT\s+(?:(EPOCH|TIME(?!\s+ZONE))\b\s*|(?=[0-9'(]))", re.IGNORECASE)
_UNKNOWN = re.compile(r"\"?([\w.-]{1,100})\"?\s+AT\s+(?:EPOCH|TIME(?!\s+ZONE))\b", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_PUBLIC = re.compile(r"(?:public|\"public\")\s*\.\s*", re.IGNORECASE)  # of PostgreSQL's clients
_QUOTED = re.compile(r'"([^"]*)"')
_VIEW = re.compile(r"\.\"?([A-Za-z][A-Za-z0-9_-]*)\"?")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")  # needs no quotes in SQL
# What lists tables and columns: DuckDB's, the standard's and PostgreSQL's.
_CATALOG = re.compile(
    r"(?:show|describe|sqlite_master|information_schema|pg_\w+|duckdb_\w+|pragma_\w+)",
    re.IGNORECASE,
)
_SHOWN_CHARACTERS = 80  # of the line of a mistake
_MOMENTS = {
    "EPOCH": ("a whole number of at most 18 digits", "EPOCH 41"),
    "TIME": ("a time in quotes", "TIME '2026-01-31T12:00:00Z'"),
}
_BEFORE_TABLE = (
    TokenType.FROM,
    TokenType.JOIN,
    TokenType.COMMA,
    TokenType.L_PAREN,
    TokenType.TABLE,
    TokenType.DESCRIBE,
    TokenType.SUMMARIZE,
)


class StatementRefused(ValueError):
    """The statement cannot be answered; the message says why, the position in it where."""

    def __init__(self, message: str, position: int | None = None, code: str = "42000") -> None:
        super().__init__(message)
        self.position = position
        self.code = code  # the SQLSTATE


@dataclass(frozen=True, slots=True)
class Moment:
    """When a job's results are asked for; without both, now."""

    epoch: int | None = None
    time_us: int | None = None
    text: str = ""  # as it follows the name of the job
    position: int | None = field(default=None, compare=False)  # in the statement


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement whose tables have names that DuckDB takes."""

    sql: str
    tables: dict[str, tuple[str, Moment]] = field(default_factory=dict)  # name -> job, moment
    # Where the pieces of the written statement that are the same here begin, here and there.
    kept: tuple[tuple[int, int], ...] = ((0, 0),)
    reads_catalog: bool = False

    def find_written(self, position: int) -> int:
        """Return the position in the written statement of a position in this one."""
        at = bisect_right(self.kept, position, key=lambda piece: piece[0]) - 1
        here, there = self.kept[max(at, 0)]
        following = self.kept[at + 1][1] if at + 1 < len(self.kept) else None
        written = there + max(position - here, 0)
        return written if following is None else min(written, following)


def point_at(sql: str, position: int) -> str:
    """Return the line of a statement with a caret below a position, as DuckDB shows a mistake."""
    position = min(position, len(sql))
    start = sql.rfind("\n", 0, position) + 1
    number, column = sql.count("\n", 0, start) + 1, position - start
    line = sql[start:].partition("\n")[0].replace("\t", " ")
    cut = max(0, min(column - _SHOWN_CHARACTERS // 2, len(line) - _SHOWN_CHARACTERS))
    shown = line[cut : cut + _SHOWN_CHARACTERS]
    head = f"LINE {number}: {'...' if cut else ''}"
    return f"\n\n{head}{shown}\n{' ' * (len(head) + column - cut)}^"


def quote_name(name: str) -> str:
    """Return the name of a job or view as a statement may write it."""
    return ".".join(part if _PLAIN.fullmatch(part) else f'"{part}"' for part in name.split("."))


def find_explained(sql: str) -> Iterator[str]:
    """Yield what an EXPLAIN may explain: a group in parentheses is its options, or a SELECT."""
    _, rest = _split_explain(sql)
    tokens = _tokenize(rest)
    if tokens and tokens[0].text.upper() in ("ANALYZE", "ANALYSE"):
        rest = rest[tokens[0].end + 1 :]
        tokens = _tokenize(rest)
    yield rest
    if tokens and tokens[0].token_type is TokenType.L_PAREN:
        ends = (each.end for each in tokens if each.token_type is TokenType.R_PAREN)
        yield rest[next(ends, -1) + 1 :]


def read_statement(written: str, jobs: Collection[str]) -> Statement:
    """Return the statement over the tables of these jobs that it names."""
    explain, sql = _split_explain(written)
    tokens = _tokenize(sql)
    pieces = [explain]
    kept = [(0, 0)]
    tables: dict[str, tuple[str, Moment]] = {}
    end = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.start < end:
            continue
        try:
            found = _find_job(sql, before, token, jobs)
            if found is None:
                _require_known(sql, before, token, jobs)
                continue
            job, begin, after = found
            moment, stop = _find_moment(sql, after)
        except StatementRefused as error:
            position = len(explain) + (error.position or 0)
            raise StatementRefused(str(error), position, error.code) from None
        name = job + moment.text
        tables[name] = (job, replace(moment, position=len(explain) + begin))
        if stop == after and _is_one_name(sql[begin:after]):
            continue  # DuckDB reads the name as it is
        alias = "" if stop == after or _has_alias(tokens, stop) else f' AS "{job}"'
        pieces += [sql[end:begin], f'"{name}"{alias}']
        kept.append((sum(map(len, pieces)), len(explain) + stop))
        end = stop
    pieces.append(sql[end:])
    return Statement("".join(pieces), tables, tuple(kept), _reads_catalog(tokens))


def _reads_catalog(tokens: list[Token]) -> bool:
    """Return whether a statement lists tables; DESC may also be an order."""
    begins = (None, TokenType.L_PAREN)
    return any(
        _CATALOG.fullmatch(token.text)
        or (token.text.upper() == "DESC" and (before and before.token_type) in begins)
        for before, token in zip((None, *tokens), tokens, strict=False)
    )


def _split_explain(sql: str) -> tuple[str, str]:
    """Return the word EXPLAIN, if it is first, and the rest, which is one token with that word."""
    first = next(iter(_tokenize(sql)), None)
    if first is None or first.text.upper() != "EXPLAIN":
        return "", sql
    return sql[: first.end + 1], sql[first.end + 1 :]


def _tokenize(sql: str) -> list[Token]:
    try:
        return list(Dialect.get_or_raise("duckdb").tokenize(sql))
    except SqlglotError as error:
        raise StatementRefused(f"the statement cannot be read: {error}") from None


def _find_job(
    sql: str, before: Token | None, token: Token, jobs: Collection[str]
) -> tuple[str, int, int] | None:
    """Return the job that a token begins to name where a table stands, and the name's bounds."""
    if before is None or before.token_type not in _BEFORE_TABLE:
        return None
    schema = _PUBLIC.match(sql, token.start)
    begin = token.start if schema is None else schema.end()
    if (quoted := _QUOTED.match(sql, begin)) is not None:
        name, after = quoted[1], quoted.end()
    elif (named := _NAME.match(sql, begin)) is not None:
        name, after = named[0].lower(), named.end()
    else:
        return None
    view = _VIEW.match(sql, after)
    if view is not None and f"{name}.{view[1].lower()}" in jobs:
        return f"{name}.{view[1].lower()}", begin, view.end()
    is_column = sql[after : after + 1] == "."
    return (name, begin, after) if name in jobs and not is_column else None


def _is_one_name(written: str) -> bool:
    return _PLAIN.fullmatch(written.lower()) is not None or _QUOTED.fullmatch(written) is not None


def _require_known(sql: str, before: Token | None, token: Token, jobs: Collection[str]) -> None:
    """Raise StatementRefused if AT follows a name that no job has: DuckDB would refuse the AT."""
    if before is None or before.token_type not in _BEFORE_TABLE:
        return
    if (named := _UNKNOWN.match(sql, token.start)) is not None:
        reason = f"there is no job {named[1]!r}; the jobs are {name_jobs(jobs)}"
        raise StatementRefused(reason, token.start)


def name_jobs(jobs: Collection[str]) -> str:
    """Return the names of jobs and views as a statement may write them."""
    return ", ".join(map(quote_name, jobs)) or "none yet"


def _find_moment(sql: str, after: int) -> tuple[Moment, int]:
    found = _AT.match(sql, after)
    if found is None:
        if (wrong := _WRONG_AT.match(sql, after)) is None:
            return Moment(), after
        reason = "after AT comes EPOCH and a number, or TIME and a time in quotes"
        if wrong[1]:
            word, example = _MOMENTS[wrong[1].upper()]
            reason = f"AT {wrong[1].upper()} takes {word}; write it like AT {example}"
        raise StatementRefused(reason, wrong.end())
    if found[1]:
        return Moment(epoch=int(found[2]), text=f" AT EPOCH {int(found[2])}"), found.end()
    try:
        time_us = _parse_time(found[4])
    except StatementRefused as error:
        raise StatementRefused(str(error), found.start(4) - 1) from None
    return Moment(time_us=time_us, text=f" AT TIME '{found[4]}'"), found.end()


def _parse_time(text: str) -> int:
    try:
        if '"' in text:  # Python takes any character between date and time; this one ends a name
            raise ValueError(text)
        return parse_instant(text)
    except ValueError:
        raise StatementRefused(
            f"AT TIME {text!r} is not a time; write it like AT TIME '2026-01-31T12:00:00Z'"
        ) from None


def _has_alias(tokens: list[Token], stop: int) -> bool:
    """Return whether the token after a table is an alias of the table."""
    after = next((token for token in tokens if token.start >= stop), None)
    return after is not None and after.token_type in (TokenType.ALIAS, TokenType.VAR)
