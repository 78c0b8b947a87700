"""Split a file of Flink SQL into tokens and statements, each with its offset.

text ──► tokens (without comments) ──► statements: the tokens between two semicolons
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.migrating.problems import NotTakenError

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*(?!\+).*?\*/)
      |(?P<text>'(?:[^']|'')*+')
      |(?P<name>`(?:[^`]|``)+`|"(?:[^"]|"")+"|[^\W\d]\w*)
      |(?P<number>\d+(?:\.\d+)?\w*)
      |(?P<mark>/\*\+.*?\*/|=>|<>|!=|<=|>=|\|\||[^\w\s'"`])""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # text, name, number or mark
    text: str  # as written
    offset: int

    @property
    def end(self) -> int:
        return self.offset + len(self.text)

    @property
    def word(self) -> str:
        """The keyword that the token may be; empty for quoted names and texts."""
        return self.text.upper() if self.kind in ("name", "mark") else ""

    @property
    def value(self) -> str:
        """The text of a literal, or the name without its quotes."""
        quote = self.text[:1]
        if quote in ("'", "`", '"'):
            return self.text[1:-1].replace(quote * 2, quote)
        return self.text


def tokenize(sql: str) -> list[Token]:
    """Return the tokens; raise NotTakenError at a character that begins none."""
    tokens: list[Token] = []
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        if found is None or found.lastgroup is None:
            raise NotTakenError("this quote or comment has no end", at)
        if found.lastgroup != "skip":
            tokens.append(Token(found.lastgroup, found[0], at))
        at = found.end()
    return tokens


def split_statements(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement, without the semicolon."""
    statement: list[Token] = []
    for token in tokens:
        if token.text == ";":
            if statement:
                yield statement
            statement = []
        else:
            statement.append(token)
    if statement:
        yield statement


class Cursor:
    """Reads the tokens of a statement from left to right."""

    def __init__(self, tokens: Sequence[Token], sql: str) -> None:
        self.tokens = tokens
        self.sql = sql
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    @property
    def offset(self) -> int:
        """Where the next token is; at the end of the statement, where that ends."""
        if self.done:
            return self.tokens[-1].end if self.tokens else 0
        return self.tokens[self.at].offset

    def peek(self, ahead: int = 0) -> str:
        """Return the keyword or mark that comes next, or an empty text."""
        index = self.at + ahead
        return self.tokens[index].word if index < len(self.tokens) else ""

    def take(self, *words: str) -> bool:
        """Skip these keywords if they come next."""
        found = all(self.peek(ahead) == word for ahead, word in enumerate(words))
        if found:
            self.at += len(words)
        return found

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise NotTakenError(f"expected {' '.join(words)} here", self.offset)

    def next(self, kind: str, what: str) -> Token:
        """Return the next token, which must be of this kind."""
        if self.done or self.tokens[self.at].kind != kind:
            raise NotTakenError(f"expected {what} here", self.offset)
        self.at += 1
        return self.tokens[self.at - 1]

    def name(self) -> Token:
        """Return the last part of a name such as `catalog`.`database`.`table`."""
        token = self.next("name", "a name")
        while self.take("."):
            token = self.next("name", "a name")
        return token

    def names(self) -> list[str]:
        """Return the names of a list in parentheses."""
        self.expect("(")
        names = [self.next("name", "a name").value]
        while self.take(","):
            names.append(self.next("name", "a name").value)
        self.expect(")")
        return names

    def until(self, *marks: str) -> list[Token]:
        """Take the tokens up to one of these marks outside of parentheses, or up to the end."""
        depth, start = 0, self.at
        while not self.done:
            word = self.peek()
            if depth == 0 and word in marks:
                break
            depth += (word == "(") - (word == ")")
            self.at += 1
        return list(self.tokens[start : self.at])

    def rest(self) -> list[Token]:
        return list(self.tokens[self.at :])


def text_of(tokens: Sequence[Token], sql: str) -> str:
    """Return the text of some tokens as it was written."""
    return sql[tokens[0].offset : tokens[-1].end] if tokens else ""
