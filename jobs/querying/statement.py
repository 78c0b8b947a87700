"""Find the jobs that a statement reads, and give each of their tables a name of its own.

    SELECT ... FROM items AT EPOCH 41 JOIN daily-orders USING (name)
        └──► SELECT ... FROM "items AT EPOCH 41" JOIN "daily-orders" USING (name)
             items at epoch 41, daily-orders as it is now

A view is `job.view`. Only names that jobs have are looked for; DuckDB reads all the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlglot import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from schemas import limits

ANSWER_TOO_LARGE = (
    f"the answer has more than {limits.SQL_ANSWER_BYTES_MAX // 2**20} MiB; ask for less"
)
_AT = re.compile(r"\s+AT\s+(?:(EPOCH)\s+([0-9]{1,18})|(TIME)\s+'([^']{1,40})')", re.IGNORECASE)
_UNKNOWN = re.compile(r"\"?([\w.-]{1,100})\"?" + _AT.pattern, re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z](?:-*[A-Za-z0-9])*-*")
_VIEW = re.compile(r"\.\"?([A-Za-z](?:-*[A-Za-z0-9])*-*)\"?")
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
    """The statement cannot be answered; the message says why."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a job's results are asked for; without both, now."""

    epoch: int | None = None
    time_us: int | None = None
    text: str = ""  # as it follows the name of the job


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement whose tables have names that DuckDB takes."""

    sql: str
    tables: dict[str, tuple[str, Moment]] = field(default_factory=dict)  # name -> job, moment


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


def read_statement(sql: str, jobs: Collection[str]) -> Statement:
    """Return the statement over the tables of these jobs that it names."""
    explain, sql = _split_explain(sql)
    tokens = _tokenize(sql)
    written: list[str] = []
    tables: dict[str, tuple[str, Moment]] = {}
    end = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.start < end:
            continue
        found = _find_job(sql, before, token, jobs)
        if found is None:
            _require_known(sql, before, token, jobs)
            continue
        job, after = found
        moment, stop = _find_moment(sql, after)
        name = job + moment.text
        tables[name] = (job, moment)
        if stop == after and after == token.end + 1:
            continue  # DuckDB reads the name as it is
        alias = "" if stop == after or _has_alias(tokens, stop) else f' AS "{job}"'
        written += [sql[end : token.start], f'"{name}"{alias}']
        end = stop
    return Statement("".join([explain, *written, sql[end:]]), tables)


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
) -> tuple[str, int] | None:
    """Return the job that a token begins to name where a table stands, and where it ends."""
    if before is None or before.token_type not in _BEFORE_TABLE:
        return None
    if token.token_type is TokenType.IDENTIFIER:  # quoted
        name, after = token.text, token.end + 1
    else:
        named = _NAME.match(sql, token.start)
        if named is None:
            return None
        name, after = named[0].lower(), named.end()
    view = _VIEW.match(sql, after)
    if view is not None and f"{name}.{view[1].lower()}" in jobs:
        return f"{name}.{view[1].lower()}", view.end()
    is_column = sql[after : after + 1] == "."
    return (name, after) if name in jobs and not is_column else None


def _require_known(sql: str, before: Token | None, token: Token, jobs: Collection[str]) -> None:
    """Raise StatementRefused if AT follows a name that no job has: DuckDB would refuse the AT."""
    if before is None or before.token_type not in _BEFORE_TABLE:
        return
    if (named := _UNKNOWN.match(sql, token.start)) is not None:
        raise StatementRefused(f"there is no job {named[1]!r}; the jobs are {name_jobs(jobs)}")


def name_jobs(jobs: Collection[str]) -> str:
    return ", ".join(jobs) or "none yet"


def _find_moment(sql: str, after: int) -> tuple[Moment, int]:
    found = _AT.match(sql, after)
    if found is None:
        return Moment(), after
    if found[1]:
        return Moment(epoch=int(found[2]), text=f" AT EPOCH {int(found[2])}"), found.end()
    time_us = _parse_time(found[4])
    return Moment(time_us=time_us, text=f" AT TIME '{found[4]}'"), found.end()


def _parse_time(text: str) -> int:
    try:
        if '"' in text:  # Python takes any character between date and time; this one ends a name
            raise ValueError(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise StatementRefused(
            f"AT TIME {text!r} is not a time; write it like AT TIME '2026-01-31T12:00:00Z'"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    since = moment - epoch
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _has_alias(tokens: list[Token], stop: int) -> bool:
    """Return whether the token after a table is an alias of the table."""
    after = next((token for token in tokens if token.start >= stop), None)
    return after is not None and after.token_type in (TokenType.ALIAS, TokenType.VAR)
