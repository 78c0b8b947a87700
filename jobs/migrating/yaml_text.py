"""Write a spec as YAML in which notes are comments, each at the line that it is about."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.migrating.problems import Note

Keys = tuple[str, ...]

_COLUMNS_MAX = 100
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.()-]*(?: [A-Za-z0-9_.*()-]+)*", re.ASCII)
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def write_yaml(
    document: Mapping[str, Any], notes: Mapping[Keys, list[Note]], header: list[str]
) -> str:
    """Return the text of a spec."""
    lines = [f"# {part}" for line in header for part in textwrap.wrap(line, _COLUMNS_MAX - 2)]
    lines += _mapping_lines(document, notes, ())
    return "\n".join(lines) + "\n"


def _mapping_lines(
    document: Mapping[str, Any], notes: Mapping[Keys, list[Note]], above: Keys
) -> Iterator[str]:
    blanks = "  " * len(above)
    for key, value in document.items():
        keys = (*above, key)
        if isinstance(value, Mapping) and value:
            body = list(_mapping_lines(value, notes, keys))
            yield from _with_notes(f"{blanks}{key}:", notes.get(keys, []), blanks)
            yield from body
        elif isinstance(value, str) and "\n" in value:
            yield from _with_notes(f"{blanks}{key}: |-", notes.get(keys, []), blanks)
            yield from (f"{blanks}  {line}" for line in value.split("\n"))
        else:
            text = value if _is_plain_line(value) else scalar(value)
            yield from _with_notes(f"{blanks}{key}: {text}", notes.get(keys, []), blanks)


def _with_notes(line: str, notes: list[Note], blanks: str) -> Iterator[str]:
    """Yield a line with its notes: behind it if that fits, else above it."""
    texts = [f"{'DIFFERS: ' if note.differs else ''}{note.text}" for note in notes]
    if len(texts) == 1 and len(line) + len(texts[0]) + 4 <= _COLUMNS_MAX:
        yield f"{line}  # {texts[0]}"
        return
    for text in texts:
        width = _COLUMNS_MAX - len(blanks) - 2
        yield from (f"{blanks}# {part}" for part in textwrap.wrap(text, width))
    yield line


def _is_plain_line(value: object) -> bool:
    """Return whether a text may stand on a line of its own without quotes."""
    if not isinstance(value, str) or not value[:1].isalpha() or value.lower() in _WORDS:
        return False
    return value.isprintable() and not re.search(r":(\s|$)|\s#|\s$", value)


def scalar(value: object) -> str:
    """Return a value on one line, quoted unless it is plainly text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(scalar, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {scalar(each)}" for key, each in value.items()) + "}"
    text = str(value)
    if re.fullmatch(r"[0-9]+(ms|s|m|h|d)", text):
        return text
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)
