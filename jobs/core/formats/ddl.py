"""Find the columns that an ALTER TABLE drops or renames.

This module reports only certain cases. An unknown statement is harmless: if it removed a column,
the decoder notices the missing column in the next row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from schemas import limits

# A comment or text is one token, so that COMMENT 'DROP ...' contains no DROP clause.
_TOKENS = re.compile(
    r"""\s+ | --[^\n]* | \#[^\n]* | /\*.*?\*/
    | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
    | `(?P<quoted>(?:[^`]|``)*)` | (?P<word>[\w$]+) | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_NOT_A_COLUMN = frozenset(
    ["INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK", "PARTITION", "IF"]
)

Token = tuple[str, str]  # "quoted", "word" or "mark", and its text


def find_lost_columns(sql: str) -> Iterator[tuple[str, str | None]]:
    """Yield each column that the statement drops or renames, and its new name or None."""
    if len(sql) > limits.QUERY_CHARACTERS_MAX:
        return
    tokens = [
        (match.lastgroup, match[match.lastgroup].replace("``", "`"))
        for match in _TOKENS.finditer(sql)
        if match.lastgroup
    ]
    words = [text.upper() if kind == "word" else "" for kind, text in tokens]
    if words[:1] != ["ALTER"] or "TABLE" not in words[:4]:
        return
    start = words.index("TABLE") + 2  # the table's name, `schema`.`table` or `table`
    if tokens[start : start + 1] == [("mark", ".")]:
        start += 2
    for clause in _clauses(tokens[start:]):
        yield from _find_lost(clause)


def _clauses(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the parts between commas outside of parentheses."""
    clause: list[Token] = []
    depth = 0
    for token in tokens:
        if token == ("mark", "("):
            depth += 1
        elif token == ("mark", ")"):
            depth -= 1
        if token == ("mark", ",") and depth == 0:
            yield clause
            clause = []
        else:
            clause.append(token)
    yield clause


def _find_lost(clause: list[Token]) -> Iterator[tuple[str, str | None]]:
    verb, named = _keyword(clause, 0), _keyword(clause, 1) == "COLUMN"
    names = [text for kind, text in clause[2 if named else 1 :] if kind != "mark"]
    first_is_keyword = not named and _keyword(clause, 1) in _NOT_A_COLUMN
    if verb == "DROP" and names and not first_is_keyword:
        yield names[0], None
    elif verb == "CHANGE" and len(names) > 1 and names[0] != names[1]:
        yield names[0], names[1]
    elif verb == "RENAME" and named and [name.upper() for name in names[1:2]] == ["TO"]:
        yield names[0], names[2] if len(names) > 2 else None


def _keyword(clause: list[Token], index: int) -> str:
    kind, text = clause[index] if index < len(clause) else ("mark", "")
    return text.upper() if kind == "word" else ""
