"""Find where a character of a YAML scalar's value is written in the text.

text    4 | query: |            the value is "SELECT name,\\n  SUM(x)\\n"
        5 |   SELECT name,
        6 |     SUM(x)          its line 2, column 7 is line 6, column 9 of the text
"""

from __future__ import annotations

from dataclasses import dataclass

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", " ": " "}


@dataclass(frozen=True, slots=True)
class TextPosition:
    """A position in a text, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value, where its text starts, and how it is quoted: None, ', ", | or >."""

    value: str
    start: int
    style: str | None


def locate_in_scalar(text: str, scalar: Scalar, line: int, column: int) -> TextPosition | None:
    """Return the position in the text of a position in the value; None if they differ."""
    before = sum(len(each) + 1 for each in scalar.value.split("\n")[: line - 1])
    at = _find_index(text, scalar, min(before + column - 1, len(scalar.value)))
    if at is None:
        return None
    return TextPosition(text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)


def _find_index(text: str, scalar: Scalar, wanted: int) -> int | None:
    """Return the index in the text of a character of the value.

    Walk through both side by side. White space of the one matches any white space of the other, for
    YAML folds and indents.
    """
    at = scalar.start
    if scalar.style in ("|", ">"):
        at = text.index("\n", at)
    elif scalar.style is not None:
        at += 1
    for character in scalar.value[:wanted]:
        at = _skip_character(text, at, character, scalar.style)
        if at < 0:
            return None
    while at < len(text) and text[at].isspace() and not scalar.value[wanted : wanted + 1].isspace():
        at += 1
    return at


def _skip_character(text: str, at: int, character: str, style: str | None) -> int:
    """Return the index behind one character of the value; -1 if the text differs."""
    escaped = style == '"' and text.startswith("\\", at)
    if character.isspace():
        if escaped and _ESCAPES.get(text[at + 1 : at + 2]) == character:
            return at + 2
        while at < len(text) and text[at].isspace():
            at += 1
        return at
    while at < len(text) and text[at].isspace():
        at += 1
    if style == '"' and text.startswith("\\", at):
        return at + 2 if _ESCAPES.get(text[at + 1 : at + 2]) == character else -1
    if text[at : at + 1] != character:
        return -1
    return at + (2 if style == "'" and character == "'" else 1)
