"""The names in a query, and names of Flink as the spec has them.

who.home.city           ──►  who_home_city
TUMBLE(at, INTERVAL ..) ──►  TUMBLE(ts, INTERVAL ..), if at is TO_TIMESTAMP_LTZ(ts, 3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.migrating.select_parts import quote_name
from jobs.migrating.statements import SqlFile
from jobs.migrating.tokens import Token

WINDOWS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
_PARTS_OF_WINDOWS = ("START", "END", "ROWTIME", "PROCTIME")
_CALLS_WITH_TIME = {
    "DESCRIPTOR",
    *WINDOWS,
    *(f"{window}_{part}" for window in WINDOWS for part in _PARTS_OF_WINDOWS),
}


@dataclass(frozen=True, slots=True)
class RenamedToken(Token):
    """A token whose text is not that of the file."""

    width: int

    @property
    def end(self) -> int:
        return self.offset + self.width


def names_of(tokens: Sequence[Token], file: SqlFile) -> tuple[set[str], set[str]]:
    """Return the names in a query and its views: all, and those outside the times of windows."""
    names, values = set[str](), set[str]()
    waiting = [tokens]
    seen: set[str] = set()
    while waiting:
        read = waiting.pop()
        found = {token.value for token in read if token.kind == "name"}
        names |= found
        times = find_window_times(read)
        values |= {
            token.value
            for index, token in enumerate(read)
            if token.kind == "name" and index not in times
        }
        for name in found & file.views.keys() - seen:
            seen.add(name)
            waiting.append(file.views[name].query)
    return names, values


def find_window_times(tokens: Sequence[Token]) -> set[int]:
    """Return which tokens are in an argument that is the time of a window."""
    found, inside = set[int](), False
    for index, token in enumerate(tokens):
        if token.text == "(" and index and tokens[index - 1].word in _CALLS_WITH_TIME:
            inside = True
        elif token.text in (",", ")"):
            inside = False
        elif inside:
            found.add(index)
    return found


def rename_window_times(tokens: Sequence[Token], columns: Mapping[str, str]) -> list[Token]:
    """Return tokens in which windows are over the columns that have their times in the spec."""
    times = find_window_times(tokens) if columns else ()
    renamed = list(tokens)
    for index in times:
        token = tokens[index]
        if token.kind == "name" and token.value in columns:
            name = quote_name(columns[token.value])
            renamed[index] = RenamedToken("name", name, token.offset, len(token.text))
    return renamed


def rename_tokens(
    tokens: Sequence[Token], nested: Mapping[tuple[str, ...], str], names: Mapping[str, str]
) -> list[Token]:
    """Return tokens with nested fields and other columns under their names of the spec."""
    renamed: list[Token] = []
    at = 0
    while at < len(tokens):
        steps, end = [tokens[at].value], at + 1
        if tokens[at].kind == "name":
            while (
                end + 1 < len(tokens) and tokens[end].text == "." and tokens[end + 1].kind == "name"
            ):
                steps.append(tokens[end + 1].value)
                end += 2
        found = next((steps[i:] for i in range(len(steps)) if tuple(steps[i:]) in nested), None)
        token = tokens[at]
        if found is not None:
            flat = quote_name(nested[tuple(found)])
            # It ends where the name ended, so that blanks stay as they were.
            pad = tokens[end - 1].end - token.offset
            renamed.append(RenamedToken("name", flat, token.offset, pad))
            at = end
        elif token.kind == "name" and token.value in names:
            name = quote_name(names[token.value])
            renamed.append(RenamedToken("name", name, token.offset, len(token.text)))
            at += 1
        else:
            renamed.append(token)
            at += 1
    return renamed
