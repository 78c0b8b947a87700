"""Recognize the format of a message by its envelope, and take its rows from it.

    canal      type, data: [row, ..]      mysqlType, pkNames
    Debezium   op, before, after          the schema beside it; the key from the record's key
    Maxwell    type, data: row            primary_key_columns
    changelog  op: +I, -U, ..; row

A message with the envelope of a source but without rows, as of DDL, is recognized as well. So it is
never taken for a plain event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.core.values.json_text import skip_header

Row = Mapping[str, Any]

# Beside `type`, canal writes these in each message; two of them are enough to recognize it.
_CANAL_MEMBERS = {"isDdl", "mysqlType", "sqlType", "pkNames", "es", "ts", "old"}
_MAXWELL_WITHOUT_ROWS = ("database-", "table-", "bootstrap-start", "bootstrap-complete")


@dataclass(frozen=True, slots=True)
class Sampled:
    """A message whose format was recognized."""

    format: str
    rows: Sequence[Row] = ()
    table: str | None = None
    database: str | None = None
    # By column: MySQL's type as text, or a field of Kafka Connect's schema.
    described: Mapping[str, object] = field(default_factory=dict)
    key: Sequence[str] = ()
    kind: str = ""  # the `type` of a message without rows
    registry: str = ""  # the name of its schema registry


def read_object(value: bytes | None) -> Row | None:
    """Return the JSON object of a message, or None if it is another value."""
    try:
        message = json.loads(skip_header(value or b""))
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def recognize(message: Row, key: Row | None = None) -> Sampled | None:
    """Return a message with the format of its envelope, or None for an unknown format."""
    schema = message.get("schema")
    if isinstance(schema, dict) and isinstance(message.get("payload"), dict):
        message = message["payload"]
    return (
        _parse_canal(message)
        or _parse_debezium(message, schema, key or {})
        or _parse_maxwell(message)
        or _parse_changelog(message)
    )


def _parse_canal(message: Row) -> Sampled | None:
    kind, data = message.get("type"), message.get("data")
    if not isinstance(kind, str):
        return None
    if not isinstance(data, list) and (data or len(_CANAL_MEMBERS & message.keys()) < 2):
        return None
    types = message.get("mysqlType")
    return Sampled(
        "canal-json",
        # Canal puts the rows of MySQL's own statements, as of EXPLAIN, into no table.
        [row for row in data if isinstance(row, dict)] if isinstance(data, list) else (),
        _nonempty_text(message.get("table")),
        _nonempty_text(message.get("database")),
        {name: kind for name, kind in types.items() if isinstance(kind, str)}
        if isinstance(types, dict)
        else {},
        _texts(message.get("pkNames")),
        kind,
    )


def _parse_debezium(message: Row, schema: object, key: Row) -> Sampled | None:
    source = message.get("source")
    source = source if isinstance(source, dict) else {}
    if "ddl" in message and source:  # of the topic with the changes of the schema
        return Sampled("debezium-json", kind="DDL")
    if message.get("op") not in ("c", "r", "u", "d"):
        return None
    rows = [message.get(side) for side in ("after", "before")]
    key = key["payload"] if isinstance(key.get("payload"), dict) else key
    return Sampled(
        "debezium-json",
        [row for row in rows if isinstance(row, dict)],
        _nonempty_text(source.get("table")),
        _nonempty_text(source.get("db")),
        _connect_fields(schema),
        list(key),
        str(message["op"]),
    )


def _connect_fields(schema: object) -> Mapping[str, object]:
    """Return the fields of the rows in a schema of Kafka Connect, by name."""
    sides = _fields(schema)
    return _fields(sides.get("after")) or _fields(sides.get("before"))


def _fields(schema: object) -> dict[str, object]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return {}
    named = (each for each in fields if isinstance(each, dict))
    return {each["field"]: each for each in named if isinstance(each.get("field"), str)}


def _parse_maxwell(message: Row) -> Sampled | None:
    kind = message.get("type")
    if not isinstance(kind, str):
        return None
    table, database = _nonempty_text(message.get("table")), _nonempty_text(message.get("database"))
    if kind.startswith(_MAXWELL_WITHOUT_ROWS) and database is not None:
        return Sampled("maxwell-json", (), table, database, kind=kind)
    if not isinstance(message.get("data"), dict):
        return None
    key = _texts(message.get("primary_key_columns"))
    return Sampled("maxwell-json", [message["data"]], table, database, {}, key, kind)


def _parse_changelog(message: Row) -> Sampled | None:
    if message.get("op") in ("+I", "-U", "+U", "-D") and isinstance(message.get("row"), dict):
        return Sampled("changelog-json", [message["row"]])
    return None


def _nonempty_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
