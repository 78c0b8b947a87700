"""The names in a query, and names of Flink as the spec has them.

who.home.city  ──►  who_home_city
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.migrating.select_parts import quote_name
from jobs.migrating.statements import SqlFile
from jobs.migrating.tokens import Token


@dataclass(frozen=True, slots=True)
class RenamedToken(Token):
    """A token whose text is not that of the file."""

    width: int

    @property
    def end(self) -> int:
        return self.offset + self.width


def names_of(tokens: Sequence[Token], file: SqlFile) -> set[str]:
    """Return the names in a query and in the views that it reads; all columns for a star."""
    names: set[str] = set()
    waiting = [tokens]
    seen: set[str] = set()
    while waiting:
        read = waiting.pop()
        found = {token.value for token in read if token.kind == "name"}
        names |= found
        for name in found & file.views.keys() - seen:
            seen.add(name)
            waiting.append(file.views[name].query)
    return names


def rename_tokens(
    tokens: Sequence[Token], nested: Mapping[tuple[str, ...], str], names: Mapping[str, str]
) -> list[Token]:
    """Return tokens with nested fields and the computed time under their names of the spec."""
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
