"""Build values from the events of PyYAML's parser, with the position of each key and scalar.

    name: items            ("name",)  -> line 1, column 1; its scalar starts at character 6
    query: SELECT ...      ("query",) -> line 2, column 1; ...

The rules are those of YAML 1.2: `on`, `no` and `y` are text, and so are `1:30`, `08` and times.
Tags and duplicate keys are errors. Depth and nodes are checked before a value is built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from schemas import limits
from schemas.spec.unknown_names import quote_key
from schemas.types.json_types import JsonObject

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
    """Return the position in the text of a position in the value; None if they differ.

    text    4 | query: |            the value is "SELECT name,\\n  SUM(x)\\n"
            5 |   SELECT name,
            6 |     SUM(x)          its line 2, column 7 is line 6, column 9 of the text
    """
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


Keys = tuple[str, ...]


class UnreadableError(Exception):
    """The text is valid YAML, but has what a spec must not have."""

    def __init__(self, reason: str, position: TextPosition) -> None:
        super().__init__(reason)
        self.position = position


def position_of(mark: Any) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1)


_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})", re.ASCII)
FLOAT = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,3})?",
    re.ASCII,
)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _scalar(text: str) -> bool | int | float | str | None:
    """Return a plain scalar by YAML 1.2's core schema, without octal and hexadecimal."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if FLOAT.fullmatch(text) else text


class Composer:
    """Builds values from parser events. It checks the depth before each recursive call."""

    def __init__(self, secret: bool) -> None:
        self.positions: dict[Keys, TextPosition] = {}
        self.scalars: dict[Keys, Scalar] = {}
        self._secret = secret
        self._nodes = 0
        self._anchors: dict[str, tuple[Any, int]] = {}  # a value, and its number of nodes

    def compose(self, text: str) -> Any:
        self._events = yaml.parse(text, Loader=yaml.SafeLoader)
        next(self._events)  # the start of the stream
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            raise UnreadableError(
                "is empty; a mapping of keys is expected", position_of(event.start_mark)
            )
        self.positions[()] = TextPosition(1, 1)
        value = self._node(next(self._events), ())
        next(self._events)  # the end of the document
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise UnreadableError(
                "a second document begins here; keep one to a file", position_of(after.start_mark)
            )
        return value

    def _node(self, event: Any, path: Keys) -> Any:
        position = position_of(event.start_mark)
        if len(path) > limits.SPEC_DEPTH_MAX:
            raise UnreadableError(f"is nested deeper than {limits.SPEC_DEPTH_MAX}", position)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", position)
        if event.tag is not None:
            raise UnreadableError("tags (!...) are not allowed; write the plain value", position)
        before = self._nodes
        self._count(1, position)
        if isinstance(event, yaml.MappingStartEvent):
            value: Any = self._mapping(path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(path)
        else:
            value = self._text(event.value, position)
            self.scalars[path] = Scalar(value, event.start_mark.index, event.style)
            if event.style is None:
                value = _scalar(value)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._nodes - before)
        return value

    def _mapping(self, path: Keys) -> JsonObject:
        entries: JsonObject = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            position = position_of(event.start_mark)
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                raise UnreadableError("a key must be plain text", position)
            key = self._text(event.value, position)
            if key in entries:
                shown = "" if self._secret else f" {quote_key(key, chr(39))}"
                raise UnreadableError(f"key{shown} is written twice; keep one", position)
            self._count(1, position)
            self.positions[(*path, key)] = position
            entries[key] = self._node(next(self._events), (*path, key))
        return entries

    def _sequence(self, path: Keys) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            below = (*path, str(len(items)))
            self.positions[below] = position_of(event.start_mark)
            items.append(self._node(event, below))
        return items

    def _alias(self, anchor: str, position: TextPosition) -> Any:
        if anchor not in self._anchors:  # also an alias inside its own anchor, not yet built
            raise UnreadableError("an alias (*...) needs an anchor before it", position)
        value, nodes = self._anchors[anchor]
        self._count(nodes, position)
        return value

    def _count(self, nodes: int, position: TextPosition) -> None:
        self._nodes += nodes
        if self._nodes > limits.SPEC_NODES_MAX:
            raise UnreadableError(f"holds more than {limits.SPEC_NODES_MAX} values", position)

    def _text(self, text: str, position: TextPosition) -> str:
        """Join the surrogate pairs of JSON escapes; refuse half of a pair."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            pass
        raise UnreadableError("contains half of a surrogate pair; escape both halves", position)


_ALIKE = "does not continue the lines before it; indent the keys of one mapping alike"
_COLON = (
    "a `:` is not expected here; indent this key like its neighbours, or put the text in quotes"
)
_UNKNOWN = "check indentation, quotes and colons here and in the line before"
# PyYAML's problem, and ours. A dash before ours: the position is that of PyYAML's context.
_REASONS = tuple(
    (re.compile(theirs, re.DOTALL), ours)
    for theirs, ours in (
        (r"found character '\\t'.*", "a tab cannot indent; use blanks"),
        (r"found character '(.+)' that .*", "a value cannot begin with {0}; put it in quotes"),
        (r"mapping values are not allowed.*", _COLON),
        (r"(?:mapping keys|block sequence entries) are not allowed.*", _ALIKE),
        (r"expected <block end>.*", _ALIKE),
        (r"expected '<document start>'.*", _ALIKE),
        (
            r"expected ',' or '(.)'.*",
            "a {0} or a comma is missing before this; opened in {context}",
        ),
        (
            r"found unexpected (?:end of stream|document sep).*",
            "-the quote here is never closed; add the second one, of the same kind",
        ),
        (r"could not find expected ':'.*", "-this key needs a colon and a value: `key: value`"),
        (r"expected the node content.*", "a value is missing here"),
        (
            r"(?:found unknown|expected) escape.*",
            "unknown escape; use single quotes, or \\\\ for \\",
        ),
        (r"expected (?:a comment or|chomping).*", "after | or > the text begins in the next line"),
        (r"expected alphabetic or numeric.*", "a value cannot begin with * or &; put it in quotes"),
        (r".* tag .*", "tags (!...) are not allowed; write the plain value"),
    )
)


def explain_yaml(error: yaml.MarkedYAMLError, *, secret: bool = False) -> tuple[str, Any]:
    """Return the reason, and the mark of the place; with `secret` quote nothing of the text.

    PyYAML's own sentences name states of its scanner ("expected <block end>"). A user needs the
    mistake and its correction; of a quote that is never closed, the place where it is opened.
    """
    mark, context = error.problem_mark or error.context_mark, error.context_mark
    if secret:
        return "is not valid YAML here", mark
    for theirs, ours in _REASONS:
        if found := theirs.fullmatch(error.problem or ""):
            opened = f"line {context.line + 1}, column {context.column + 1}" if context else "?"
            text = ours.removeprefix("-").format(*found.groups(), context=opened)
            return f"is not valid YAML here: {text}", context if ours[0] == "-" else mark
    return f"is not valid YAML here: {_UNKNOWN}", mark
