"""Suggestion: a first spec for a topic, from its newest messages.

    messages ──► format (by its envelope) ──► rows ──► columns: MySQL types if canal has them,
                                                       else types that fit all values ──► a query

A few messages do not show everything, so the user has to check the suggestion. The editor checks it
like any other spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import yaml

from schemas.limits import JOB_NAME_CHARACTERS_MAX

_MYSQL = re.compile(r"(\w+)\s*(?:\(\s*([\d\s,]+)\))?([\w\s]*)")
_MYSQL_TYPES = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "mediumint": "INT",
    "int": "INT",
    "integer": "INT",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "real": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "year": "SMALLINT",
    "bool": "BOOLEAN",
    "boolean": "BOOLEAN",
}
_WIDER = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "DECIMAL(20, 0)"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,62}", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z^][\w.^$-]*", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}")
_DECIMAL = re.compile(r"-?\d{1,25}\.(\d{1,10})")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.(\d{1,9}))?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_INT_LIKELY = 2**30  # larger values leave little room in an INT
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A message whose format was recognized."""

    format: str
    rows: list[Row]
    table: str | None = None
    database: str | None = None
    mysql_types: Mapping[str, str] | None = None  # by column
    key: Sequence[str] = ()


def suggest_spec(topic: str, connection: str, values: Iterable[bytes | None]) -> str | None:
    """Return a spec as text; None if no message has a known format."""
    read = [_read_object(value) for value in values if value]
    messages = [message for message in read if message is not None]
    recognized = [_recognize(message) for message in messages]
    samples = [each for each in recognized if each is not None and each.rows]
    if not any(recognized):  # no message has an envelope, so they are plain events
        samples = [_Sampled("json", [message]) for message in messages]
    if not samples:
        return None
    newest = samples[0]
    source_of_newest = (newest.format, newest.table)
    samples = [each for each in samples if (each.format, each.table) == source_of_newest]
    mysql_types = {
        name: kind for each in reversed(samples) for name, kind in (each.mysql_types or {}).items()
    }
    rows = [row for each in samples for row in each.rows]
    names = [name for name in newest.rows[0] if _IDENTIFIER.fullmatch(name)]
    columns = {
        name: _choose_type(mysql_types.get(name), [row.get(name) for row in rows]) for name in names
    }
    if not columns:
        return None
    source: dict[str, Any] = {"topic": topic}
    if connection != "default":
        source["connection"] = connection
    source["format"] = newest.format
    for section, name in (("database", newest.database), ("table", newest.table)):
        if name is not None:
            source[section] = f"^{re.escape(name)}$"
    return _write_spec(topic, source, columns, newest.key)


def _read_object(value: bytes) -> Row | None:
    """Return the JSON object of a message, or None if it is another value."""
    try:
        message = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _recognize(message: Row) -> _Sampled | None:
    """Return a message with the format of its envelope, or None for an unknown format."""
    if isinstance(message.get("schema"), dict) and isinstance(message.get("payload"), dict):
        message = message["payload"]
    for parse in (_parse_canal, _parse_debezium, _parse_maxwell, _parse_changelog):
        found = parse(message)
        if found is not None:
            return found
    return None


def _parse_canal(message: Row) -> _Sampled | None:
    if not isinstance(message.get("type"), str) or not isinstance(message.get("data"), list):
        return None
    types = message.get("mysqlType")
    key = message.get("pkNames")
    return _Sampled(
        "canal-json",
        [row for row in message["data"] if isinstance(row, dict)],
        _nonempty_text(message.get("table")),
        _nonempty_text(message.get("database")),
        {name: str(kind) for name, kind in types.items()} if isinstance(types, dict) else None,
        [str(name) for name in key] if isinstance(key, list) else (),
    )


def _parse_debezium(message: Row) -> _Sampled | None:
    if message.get("op") not in ("c", "r", "u", "d"):
        return None
    source = message.get("source")
    source = source if isinstance(source, dict) else {}
    rows = [message.get(side) for side in ("after", "before")]
    return _Sampled(
        "debezium-json",
        [row for row in rows if isinstance(row, dict)],
        _nonempty_text(source.get("table")),
        _nonempty_text(source.get("db")),
    )


def _parse_maxwell(message: Row) -> _Sampled | None:
    if not isinstance(message.get("type"), str) or not isinstance(message.get("data"), dict):
        return None
    table, database = _nonempty_text(message.get("table")), _nonempty_text(message.get("database"))
    return _Sampled("maxwell-json", [message["data"]], table, database)


def _parse_changelog(message: Row) -> _Sampled | None:
    if message.get("op") in ("+I", "-U", "+U", "-D") and isinstance(message.get("row"), dict):
        return _Sampled("changelog-json", [message["row"]])
    return None


def _nonempty_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# --- types --------------------------------------------------------------------------------------


def _choose_type(mysql: str | None, values: Sequence[Any]) -> str:
    found = None if mysql is None else _convert_mysql_type(mysql)
    return found or _infer_type([value for value in values if value is not None])


def _convert_mysql_type(mysql: str) -> str | None:
    found = _MYSQL.match(mysql.strip().lower())
    if found is None:
        return None
    name, inside, further = found[1], (found[2] or "").replace(" ", ""), found[3]
    if name in ("decimal", "numeric"):
        precision, _, scale = (inside or "10,0").partition(",")
        kind = f"DECIMAL({precision}, {scale or 0})"
    elif name in ("datetime", "timestamp"):
        kind = f"TIMESTAMP({inside or 0})"
    elif name == "tinyint" and inside == "1":
        kind = "BOOLEAN"
    else:
        kind = _MYSQL_TYPES.get(name, "STRING")
    if "unsigned" in further:
        kind = _WIDER.get(kind, kind)
    return kind


def _infer_type(values: Sequence[Any]) -> str:
    """Return the narrowest type that fits all values; STRING in doubt."""
    if not values:
        return "STRING"
    if all(isinstance(value, bool) for value in values):
        return "BOOLEAN"
    if any(isinstance(value, bool | dict | list) for value in values):
        return "STRING"
    texts = [str(value) for value in values]
    if all(_WHOLE.fullmatch(text) for text in texts):
        return "INT" if all(abs(int(text)) < _INT_LIKELY for text in texts) else "BIGINT"
    if all(isinstance(value, int | float) for value in values):
        return "DOUBLE"
    fractions = [_DECIMAL.fullmatch(text) for text in texts]
    if all(found or _WHOLE.fullmatch(text) for found, text in zip(fractions, texts, strict=True)):
        return f"DECIMAL(18, {max(len(found[1]) for found in fractions if found)})"
    moments = [_MOMENT.fullmatch(text) for text in texts]
    if all(moments) and _all_parse(datetime.fromisoformat, texts):
        return f"TIMESTAMP({max(len(found[1] or '') for found in moments if found)})"
    if all(_DAY.fullmatch(text) for text in texts) and _all_parse(date.fromisoformat, texts):
        return "DATE"
    return "STRING"


def _all_parse(parse: Callable[[str], object], texts: Sequence[str]) -> bool:
    try:
        for text in texts:
            parse(text[:26])  # Python reads microseconds at most
    except ValueError:
        return False
    return True


# --- the text -----------------------------------------------------------------------------------


def _write_spec(
    topic: str, source: Mapping[str, Any], columns: Mapping[str, str], key: Sequence[str]
) -> str:
    group = next((name for name, kind in columns.items() if kind == "STRING"), None)
    numbers = [
        name
        for name, kind in columns.items()
        if kind.startswith(_NUMBERS) and name not in key and name.lower() != "id"
    ]
    selected = [group] if group else []
    selected += [f"SUM({name})" for name in numbers[:2]] + [f"MAX({name})" for name in numbers[:1]]
    selected.append("COUNT(*) AS n")
    table = str(source.get("table", "")).strip("^$")
    table = table if _IDENTIFIER.fullmatch(table) else "source"
    query = [f"SELECT {', '.join(selected)}", f"FROM {table}"]
    query += [f"GROUP BY {group}"] if group else []
    lines = [f"name: {_make_job_name(topic)}", "source:"]
    lines += [f"  {name}: {_quote(value)}" for name, value in source.items()]
    lines.append("columns:")
    lines += [f"  {name}: {kind}" for name, kind in columns.items()]
    lines += ["query: |", *(f"  {line}" for line in query)]
    return "\n".join(lines) + "\n"


def _quote(value: str) -> str:
    """Return a YAML scalar, quoted unless YAML reads it as the same text."""
    plain = _PLAIN.fullmatch(value) and yaml.safe_load(value) == value
    return value if plain else json.dumps(value)


def _make_job_name(topic: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")
    words = words if words[:1].isalpha() else f"job-{words}".strip("-")
    return words[:JOB_NAME_CHARACTERS_MAX].rstrip("-")
