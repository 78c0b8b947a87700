"""Read sampled messages by the schemas of a registry, which also describe their columns.

0 │ id │ ..  ──► the first registry that knows the id ──► rows, and a field of Connect's
                                                         schema for each column
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from jobs.core.formats.registered import FindSchema, RegisteredDecoder, SchemaError
from jobs.core.formats.registry import MessageRules
from jobs.core.suggestion.envelopes import Row, Sampled, recognize
from jobs.core.values.json_text import JsonNumber

# How to find a schema: by the name of a registry, then by the format of plain rows.
Finders = Mapping[str, Mapping[str, FindSchema]]


def read_sample(key: bytes | None, value: bytes | None, finders: Finders) -> Sampled | None:
    """Return a message that has a schema; None for others. Raise SchemaError for an unknown one."""
    if not value or value[0]:
        return None
    reasons = ["its schema is in a registry, and the connections file names none"]
    for registry, of_formats in finders.items():
        for format, find in of_formats.items():
            try:
                find(int.from_bytes(value[1:5], "big"))  # so an unknown id is the first reason
                return replace(_read(key, value, format, find), registry=registry)
            except SchemaError as error:
                reasons.append(str(error))
    raise SchemaError(reasons[-1])


def _read(key: bytes | None, value: bytes, format: str, find: FindSchema) -> Sampled:
    content, columns = _decoder(format, find).read_described(value)
    key_content: Row = {}
    if key and not key[0]:
        with suppress(SchemaError):  # a text that begins with 0
            key_content, _ = _decoder(format, find).read_described(key)
    found = recognize(content, key_content)
    if found is None or not found.format.startswith("debezium-"):
        return Sampled(format, [_as_json(content)], described=columns)
    envelope = f"debezium-{format}"
    _, columns = _decoder(envelope, find).read_described(value)
    rows = [_as_json(row) for row in found.rows]
    return replace(found, format=envelope, rows=rows, described=columns)


def _decoder(format: str, find: FindSchema) -> RegisteredDecoder:
    decoder = MessageRules(format).decoder((), (), find_schema=find)
    assert isinstance(decoder, RegisteredDecoder)
    return decoder


def _as_json(row: Row) -> Row:
    """Return a row whose numbers are numbers, as JSON's reader has them."""
    return {name: _number(each) for name, each in row.items()}


def _number(value: object) -> object:
    if not isinstance(value, JsonNumber):
        return value
    return int(value) if value.removeprefix("-").isdecimal() else float(value)
