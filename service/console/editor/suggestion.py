"""Suggestion: a spec to begin with, from what the newest messages of a topic look like.

    messages ──► format (by its envelope) ──► rows ──► columns: what canal says of MySQL's types,
                                                       else what all values can be ──► a query

It is a beginning and no promise: what a few messages do not show, nobody can read off them. So it
is put into the editor, where it is checked like any other spec.
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
    "tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INT", "int": "INT",
    "integer": "INT", "bigint": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "real": "DOUBLE",
    "date": "DATE", "time": "TIME", "year": "SMALLINT", "bool": "BOOLEAN", "boolean": "BOOLEAN",
}  # fmt: skip
_WIDER = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "DECIMAL(20, 0)"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,62}", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z^][\w.^$-]*", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}")
_DECIMAL = re.compile(r"-?\d{1,25}\.(\d{1,10})")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.(\d{1,9}))?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_INT_LIKELY = 2**30  # what is larger has little room left in an INT
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a message is, if it is of a format: its rows, its table, and the types it tells."""

    format: str
    rows: list[Row]
    table: str | None = None
    database: str | None = None
    told: Mapping[str, str] | None = None  # MySQL's types by column
    key: Sequence[str] = ()


def suggested(topic: str, connection: str, values: Iterable[bytes | None]) -> str | None:
    """A spec as text; None where no message is of a format that is known."""
    seen = [found for value in values if value and (found := _seen(value)) is not None]
    seen = [each for each in seen if each.rows]
    if not seen:
        return None
    newest = seen[0]
    seen = [each for each in seen if (each.format, each.table) == (newest.format, newest.table)]
    told = {name: kind for each in reversed(seen) for name, kind in (each.told or {}).items()}
    rows = [row for each in seen for row in each.rows]
    names = [name for name in newest.rows[0] if _IDENTIFIER.fullmatch(name)]
    columns = {name: _type(told.get(name), [row.get(name) for row in rows]) for name in names}
    if not columns:
        return None
    source: dict[str, Any] = {"topic": topic}
    if connection != "default":
        source["connection"] = connection
    source["format"] = newest.format
    for section, name in (("database", newest.database), ("table", newest.table)):
        if name is not None:
            source[section] = f"^{re.escape(name)}$"
    return _text(topic, source, columns, newest.key)


def _seen(value: bytes) -> _Seen | None:
    try:
        message = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if isinstance(message.get("schema"), dict) and isinstance(message.get("payload"), dict):
        message = message["payload"]
    for look in (_canal, _debezium, _maxwell, _changelog):
        found = look(message)
        if found is not None:
            return found
    return None


def _canal(message: Row) -> _Seen | None:
    if not isinstance(message.get("type"), str) or not isinstance(message.get("data"), list):
        return None
    told = message.get("mysqlType")
    key = message.get("pkNames")
    return _Seen(
        "canal-json",
        [row for row in message["data"] if isinstance(row, dict)],
        _text_of(message.get("table")),
        _text_of(message.get("database")),
        {name: str(kind) for name, kind in told.items()} if isinstance(told, dict) else None,
        [str(name) for name in key] if isinstance(key, list) else (),
    )


def _debezium(message: Row) -> _Seen | None:
    if message.get("op") not in ("c", "r", "u", "d"):
        return None
    source = message.get("source")
    source = source if isinstance(source, dict) else {}
    rows = [message.get(side) for side in ("after", "before")]
    return _Seen(
        "debezium-json",
        [row for row in rows if isinstance(row, dict)],
        _text_of(source.get("table")),
        _text_of(source.get("db")),
    )


def _maxwell(message: Row) -> _Seen | None:
    if not isinstance(message.get("type"), str) or not isinstance(message.get("data"), dict):
        return None
    table, database = _text_of(message.get("table")), _text_of(message.get("database"))
    return _Seen("maxwell-json", [message["data"]], table, database)


def _changelog(message: Row) -> _Seen | None:
    if message.get("op") in ("+I", "-U", "+U", "-D") and isinstance(message.get("row"), dict):
        return _Seen("changelog-json", [message["row"]])
    return None


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# --- types --------------------------------------------------------------------------------------


def _type(mysql: str | None, values: Sequence[Any]) -> str:
    found = None if mysql is None else _of_mysql(mysql)
    return found or _of_values([value for value in values if value is not None])


def _of_mysql(told: str) -> str | None:
    found = _MYSQL.match(told.strip().lower())
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


def _of_values(values: Sequence[Any]) -> str:
    """The narrowest of a few types that all values are of; text in doubt."""
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
    if all(moments) and _all(datetime.fromisoformat, texts):
        return f"TIMESTAMP({max(len(found[1] or '') for found in moments if found)})"
    if all(_DAY.fullmatch(text) for text in texts) and _all(date.fromisoformat, texts):
        return "DATE"
    return "STRING"


def _all(read: Callable[[str], object], texts: Sequence[str]) -> bool:
    try:
        for text in texts:
            read(text[:26])  # microseconds are the most that Python reads
    except ValueError:
        return False
    return True


# --- the text -----------------------------------------------------------------------------------


def _text(
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
    lines = [f"name: {_job_name(topic)}", "source:"]
    lines += [f"  {name}: {_quoted(value)}" for name, value in source.items()]
    lines.append("columns:")
    lines += [f"  {name}: {kind}" for name, kind in columns.items()]
    lines += ["query: |", *(f"  {line}" for line in query)]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    """In quotes, unless it is plainly a name: no name of a topic becomes something else."""
    plain = _PLAIN.fullmatch(value) and yaml.safe_load(value) == value
    return value if plain else json.dumps(value)


def _job_name(topic: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")
    words = words if words[:1].isalpha() else f"job-{words}".strip("-")
    return words[:JOB_NAME_CHARACTERS_MAX].rstrip("-")
