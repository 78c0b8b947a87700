"""Media types: choose one that the client accepts, and encode rows in it.

JSON is one document for each page. NDJSON, CSV and Arrow (see service.answers.arrow) contain rows
only; the epoch is in the header X-Epoch and the next page in Link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from jobs.core.values.csv_lines import write_line
from service.problems import Problem

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
# Decimals and large integers are text in JSON, but numbers in a spreadsheet.
_NUMBER = re.compile(r"[+-][0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


class Media(StrEnum):
    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"
    EVENTS = "text/event-stream"
    ARROW = "application/vnd.apache.arrow.stream"


def choose_media(header: str | None, *offered: Media) -> Media:
    """Return the offered media type that the client prefers; the first one by default."""
    preferences: list[tuple[float, int, str]] = []
    for position, preference in enumerate((header or "*/*").split(",")[:20]):
        name, *parameters = (part.strip().lower() for part in preference.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        preferences.append((-quality, position, name))
    for quality, _, name in sorted(preferences):
        if quality == 0:
            continue
        for media in offered:
            family = str(media).split("/", maxsplit=1)[0] + "/*"
            if name in (str(media), family, "*/*"):
                return media
    detail = f"the available media types are {', '.join(offered)}"
    raise Problem("accept-unsupported", detail)


def encode_page(epoch: int, documents: Sequence[bytes], cursor: str | None) -> bytes:
    """Return a page of rows, which are JSON already."""
    after = msgspec.json.encode(cursor)
    return b'{"epoch":%d,"rows":[%b],"next_cursor":%b}' % (epoch, b",".join(documents), after)


def encode_ndjson(documents: Iterable[bytes]) -> bytes:
    return b"".join(document + b"\n" for document in documents)


def encode_csv(
    names: Sequence[str],
    documents: Iterable[bytes],
    *,
    head: bool = True,
    spreadsheet: bool = False,
) -> bytes:
    """Encode rows by RFC 4180; NULL is empty, an empty text is quoted.

    For a spreadsheet, prefix texts that it would execute as formulas with an apostrophe.
    """
    lines = [write_line(names)] if head else []
    for document in documents:
        row = msgspec.json.decode(document)
        values = (row[name] for name in names)
        lines.append(write_line(map(_disarm, values) if spreadsheet else values))
    return "".join(lines).encode()


def _disarm(value: Any) -> Any:
    executes = (
        isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    )
    return f"'{value}" if executes else value
