"""Lines of CSV (RFC 4180), for REST, SQL answers and the command line."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jobs.core.values.json_values import Json


def write_line(values: Iterable[Json]) -> str:
    """Return a line of CSV; NULL is empty, an empty text is quoted, a list or an object is JSON.

    A NULL alone is quoted too, because readers skip empty lines.
    """
    return (",".join(map(_write_field, values)) or '""') + "\r\n"


def _write_field(value: Json) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        value = msgspec.json.encode(value).decode()
    if value and not any(character in value for character in ',"\r\n'):
        return value
    return '"' + value.replace('"', '""') + '"'
