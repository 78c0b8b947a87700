"""Statements without rows: transactions, settings, cursors, as a read-only server has them.

A transaction reads nothing at one moment: each statement reads the newest epochs. What it does is
what clients see of it, so that after a mistake they send ROLLBACK as they are used to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas import limits
from service.postgres.messages import PgError

SERVER_VERSION = "15.0"
# What a client learns when it has signed in, as PostgreSQL names it.
REPORTED = {
    "server_version": f"{SERVER_VERSION} (retally)",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "default_transaction_read_only": "on",
    "in_hot_standby": "off",
}
_OTHERS = {
    "server_version_num": "150000",
    "transaction_read_only": "on",
    "transaction_isolation": "read committed",
    "transaction isolation level": "read committed",
    "default_transaction_isolation": "read committed",
    "time zone": "UTC",
    "search_path": "public",
    "max_identifier_length": "63",
    "lc_collate": "C",
    "lc_ctype": "C",
    "statement_timeout": f"{limits.SQL_SECONDS_MAX:g}s",
}
_HEAD = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)*(?:([A-Za-z]+)\b\s*|$)?")
_SPLIT = re.compile(
    r"'(?:[^']|'')*'?|\"[^\"]*\"?|--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?"
    r"|\$\$(?:[^$]|\$(?!\$))*(?:\$\$)?|[^;'\"/$-]+|.",
    re.DOTALL,
)
_SETTING = re.compile(r"(?:SESSION\s+|LOCAL\s+)?([\w.]+)\s*(?:=|\bTO\b)\s*(.*)", re.I | re.S)
_NAME = r'("[^"]+"|\w+)'
_CURSOR = re.compile(
    rf"{_NAME}\s+(?:[A-Za-z]+\s+){{0,4}}CURSOR\s+(WITH\s+HOLD\s+|WITHOUT\s+HOLD\s+)?FOR\s+", re.I
)
_FETCH = re.compile(
    rf"(?:FORWARD\s+)?(?:([0-9]{{1,9}}|ALL|NEXT)\s+)?(?:FROM\s+|IN\s+)?{_NAME}", re.I
)
_TAGS = {"START": "START TRANSACTION", "END": "COMMIT", "ABORT": "ROLLBACK"}
_IGNORED = ("RELEASE", "DISCARD", "LISTEN", "UNLISTEN", "RESET")
_CURSOR_WORDS = ("DECLARE", "FETCH", "CLOSE")
_STATE_WORDS = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT")


class Done(NamedTuple):
    """A command is done; SHOW has a row with one text."""

    tag: str
    shown: tuple[str, str] | None = None  # the column's name, and its value


class Cursor(NamedTuple):
    """A statement about a cursor."""

    word: str
    name: str = ""  # "" means all
    query_at: int = 0
    rows: int = 1  # to fetch; 0 means all
    holds: bool = False


def split_statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a text, each with its position; a last empty one is none."""
    start = 0
    for found in _SPLIT.finditer(text):
        if found[0] == ";":
            yield start, text[start : found.start()]
            start = found.end()
    if text[start:].strip() or not start:
        yield start, text[start:]


def find_word(sql: str) -> tuple[str, int]:
    """Return the first word of a statement in capitals, or "", and where the rest begins."""
    found = _HEAD.match(sql)
    assert found is not None  # it matches nothing, too
    return (found[1] or "").upper(), found.end()


def is_blank(sql: str) -> bool:
    """Return whether a statement has spaces and comments only."""
    word, at = find_word(sql)
    return not word and at == len(sql)


def read_name(written: str) -> str:
    """Return a name as it is known: in small letters, unless it has quotes."""
    return written[1:-1] if written.startswith('"') else written.lower()


def read_cursor(sql: str) -> Cursor | None:
    """Return what a statement does with a cursor; None if it is another statement."""
    word, at = find_word(sql)
    if word not in _CURSOR_WORDS:
        return None
    if word == "CLOSE":
        name = sql[at:].strip()
        return Cursor(word, "" if name.upper() == "ALL" else read_name(name))
    if word == "DECLARE" and (found := _CURSOR.match(sql, at)) is not None:
        holds = (found[2] or "").upper().startswith("WITH ")
        return Cursor(word, read_name(found[1]), found.end(), holds=holds)
    if word == "FETCH" and (found := _FETCH.match(sql, at)) is not None:
        number = (found[1] or "1").upper().replace("NEXT", "1").replace("ALL", "0")
        return Cursor(word, read_name(found[2]), rows=int(number))
    raise PgError("0A000", f"{word} is possible as DECLARE name CURSOR FOR, FETCH n FROM name")


@dataclass(slots=True)
class Commands:
    """The state of a session that its commands change."""

    status: str = "I"  # as in ReadyForQuery
    settings: dict[str, str] = field(
        default_factory=lambda: {name.lower(): value for name, value in REPORTED.items()} | _OTHERS
    )

    def fail(self) -> None:
        """A statement has failed, and with it the transaction."""
        self.status = "E" if self.status == "T" else self.status

    def is_shown(self, sql: str) -> bool:
        """Return whether a statement is a SHOW that `answer` answers."""
        word, at = find_word(sql)
        return word == "SHOW" and self._find_setting(sql[at:]) is not None

    def answer(self, sql: str) -> Done | None:
        """Do what a command says; None if the statement is none; raise PgError."""
        word, at = find_word(sql)
        rest = sql[at:].strip()
        if word in _STATE_WORDS:
            return self._change_state(word, rest)
        if self.status == "E":
            reason = "the transaction has failed; statements are refused until ROLLBACK"
            raise PgError("25P02", reason)
        if word == "SET":
            self._set(rest)
            return Done("SET")
        if word == "SHOW" and (value := self._find_setting(rest)) is not None:
            return Done("SHOW", (rest.lower(), value))
        return Done(word) if word in _IGNORED else None

    def _change_state(self, word: str, rest: str) -> Done:
        if word in ("BEGIN", "START"):
            self.status = "T" if self.status == "I" else self.status
        elif word == "SAVEPOINT":
            if self.status == "E":
                raise PgError("25P02", "the transaction has failed; send ROLLBACK")
        elif re.search(r"\bTO\b", rest, re.IGNORECASE):
            self.status = "T"
        else:
            failed, self.status = self.status == "E", "I"
            if failed:
                return Done("ROLLBACK")
        return Done(_TAGS.get(word, word))

    def _find_setting(self, name: str) -> str | None:
        return self.settings.get(" ".join(name.lower().split()))

    def _set(self, rest: str) -> None:
        found = _SETTING.match(rest)
        if found is None:
            return  # SET TRANSACTION ..., SET TIME ZONE ...: times are UTC, with their zone
        name, value = found[1].lower(), found[2].strip().strip("'\"")
        if name == "client_encoding" and value.upper().replace("-", "") not in ("UTF8", "UNICODE"):
            raise PgError("22023", "the only encoding is UTF8")
        if name not in self.settings and len(self.settings) >= limits.POSTGRES_SETTINGS_MAX:
            raise PgError("53400", f"a session has at most {limits.POSTGRES_SETTINGS_MAX} settings")
        self.settings[name] = value[: limits.REASON_CHARACTERS_MAX]
