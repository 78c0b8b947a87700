"""Media: which form of rows a client takes, and rows in that form.

JSON is one document a page. NDJSON, CSV and Arrow (see service.answers.arrow) are rows only: the
epoch is in X-Epoch, the next page in Link, so that nothing has to be taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from service.problems import Problem

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Decimals and large whole numbers are text in JSON, and stay numbers in a spreadsheet.
_NUMBER = re.compile(r"[+-][0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


class Media(StrEnum):
    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"
    EVENTS = "text/event-stream"
    ARROW = "application/vnd.apache.arrow.stream"


def accepted(header: str | None, *offered: Media) -> Media:
    """The offered form that a client likes best; the first one where it does not care."""
    wishes: list[tuple[float, int, str]] = []
    for position, wish in enumerate((header or "*/*").split(",")[:20]):
        name, *parameters = (part.strip().lower() for part in wish.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        wishes.append((-quality, position, name))
    for quality, _, name in sorted(wishes):
        if quality == 0:
            continue
        for media in offered:
            family = str(media).split("/", maxsplit=1)[0] + "/*"
            if name in (str(media), family, "*/*"):
                return media
    detail = f"this is served as {', '.join(offered)}"
    raise Problem("accept-unsupported", 406, detail)


def json_page(epoch: int, documents: Sequence[bytes], cursor: str | None) -> bytes:
    """Rows that are JSON already, put together without being read again."""
    after = msgspec.json.encode(cursor)
    return b'{"epoch":%d,"rows":[%b],"next_cursor":%b}' % (epoch, b",".join(documents), after)


def ndjson(documents: Iterable[bytes]) -> bytes:
    return b"".join(document + b"\n" for document in documents)


def csv(
    names: Sequence[str],
    documents: Iterable[bytes],
    *,
    head: bool = True,
    spreadsheet: bool = False,
) -> bytes:
    """RFC 4180. NULL is nothing at all, an empty text is a quoted one. For a spreadsheet, a text
    that it would run as a formula begins with an apostrophe."""
    lines = [",".join(_quoted(name) for name in names)] if head else []
    for document in documents:
        row = msgspec.json.decode(document)
        values = (row[name] for name in names)
        if spreadsheet:
            values = (_harmless(value) for value in values)
        lines.append(",".join(map(_field, values)))
    return "".join(f"{line}\r\n" for line in lines).encode()


def _harmless(value: Any) -> Any:
    runs = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if runs else value


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def _quoted(text: str) -> str:
    if text and not any(character in text for character in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'
