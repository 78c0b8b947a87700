"""Choose the type of a column, and what a first query may do with it.

    MySQL's type in canal's messages       ─┐
    a field of Kafka Connect's schema      ─┼──► SQL type; STRING for values that do not fit it
    neither: the values of the column      ─┘

The texts come from whoever writes to the topic. So nothing here takes longer than a pass over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from typing import Any

from schemas.limits import LABEL_CHARACTERS_MAX, TYPE_CHARACTERS_MAX
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, TIMESTAMP_PRECISION_MAX

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
    "bool": "TINYINT",
    "boolean": "TINYINT",
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), "BINARY"),
    **dict.fromkeys(("binary", "varbinary"), "BINARY"),
}
_UNSIGNED = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "DECIMAL(20, 0)"}
_CONNECT_TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "float32": "FLOAT",
    "double": "DOUBLE",
    "float64": "DOUBLE",
    "boolean": "BOOLEAN",
    "bytes": "BINARY",
}
_CONNECT_NAMES = {
    "io.debezium.time.Date": "DATE",
    "io.debezium.time.IsoDate": "DATE",
    "io.debezium.time.Time": "TIME",
    "io.debezium.time.MicroTime": "TIME",
    "io.debezium.time.NanoTime": "TIME",
    "io.debezium.time.IsoTime": "TIME",
    "io.debezium.time.Timestamp": "TIMESTAMP(3)",
    "io.debezium.time.MicroTimestamp": "TIMESTAMP(6)",
    "io.debezium.time.NanoTimestamp": "TIMESTAMP(9)",
    "io.debezium.time.IsoTimestamp": "TIMESTAMP(6)",
    "io.debezium.time.ZonedTimestamp": "TIMESTAMP_LTZ(6)",
    "io.debezium.time.Year": "INT",
    "org.apache.kafka.connect.data.Date": "DATE",
    "org.apache.kafka.connect.data.Time": "TIME",
    "org.apache.kafka.connect.data.Timestamp": "TIMESTAMP(3)",
}
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_ENUM_NAME, _YEAR_NAME = "io.debezium.data.Enum", "io.debezium.time.Year"
_TIME_OF_DAY_MAX = {
    "io.debezium.time.Time": 86_400_000,
    "org.apache.kafka.connect.data.Time": 86_400_000,
    "io.debezium.time.MicroTime": 86_400_000_000,
    "io.debezium.time.NanoTime": 86_400_000_000_000,
}
_INT_LIKELY = 2**30  # larger values leave little room in an INT
_WHOLE_DIGITS_MAX = 18
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


class Use(IntEnum):
    """What a first query does with a column; the first of these is the best group."""

    CATEGORY = 0  # a closed list of values: GROUP BY
    LABEL = 1  # a short text: GROUP BY
    FLAG = 2  # few values: GROUP BY, if there is nothing else
    MEASURE = 3  # a number: SUM, MAX
    NONE = 4


@dataclass(frozen=True, slots=True)
class ColumnGuess:
    type: str
    use: Use


def guess_column(described: object, values: Sequence[Any]) -> ColumnGuess:
    """Return the type of a column from its description, if there is one, and from values."""
    known = [value for value in values if value is not None]
    found = None
    if isinstance(described, str):
        found = _guess_mysql(described, known)
    elif isinstance(described, dict):
        found = _guess_connect(described, known)
    return found or _infer(known)


# --- from MySQL's types, as canal writes them -----------------------------------------------------


def _guess_mysql(mysql: str, values: Sequence[Any]) -> ColumnGuess | None:
    head, _, rest = mysql[:TYPE_CHARACTERS_MAX].lower().partition("(")
    inside, _, further = rest.partition(")")
    words = [*head.split(), *further.split()]
    if not words:
        return None
    name, numbers = words[0], _read_numbers(inside)
    if name in ("decimal", "numeric", "dec", "fixed"):
        kind = _decimal(*(numbers or [10])[:2])
        return None if kind is None else ColumnGuess(kind, Use.MEASURE)
    if name in ("datetime", "timestamp"):
        kind = f"TIMESTAMP({min((numbers or [0])[0], TIMESTAMP_PRECISION_MAX)})"
        return _unless_misfit(kind, values, _is_moment)
    if name == "bit":
        bits = (numbers or [1])[0]
        return ColumnGuess("BIGINT" if bits < 64 else "DECIMAL(20, 0)", Use.FLAG)
    kind = _MYSQL_TYPES.get(name, "STRING")
    if "unsigned" in words:
        kind = _UNSIGNED.get(kind, kind)
    if kind == "DATE":
        return _unless_misfit(kind, values, _is_day)
    if kind == "TIME":
        return _unless_misfit(kind, values, _is_time_of_day)
    return ColumnGuess(kind, _choose_mysql_use(name, kind, numbers))


def _choose_mysql_use(name: str, kind: str, numbers: Sequence[int]) -> Use:
    if name == "enum":
        return Use.CATEGORY
    if name in ("char", "varchar"):
        return Use.LABEL
    if name in ("bool", "boolean", "year") or (name == "tinyint" and numbers == [1]):
        return Use.FLAG
    return Use.MEASURE if kind.startswith(_NUMBERS) else Use.NONE


def _read_numbers(inside: str) -> list[int]:
    parts = [each.strip() for each in inside.split(",")]
    return [int(each) for each in parts if each.isascii() and each.isdecimal() and len(each) < 4]


def _decimal(precision: int, scale: int = 0) -> str | None:
    """Return a DECIMAL; MySQL has up to 65 digits, and the first of those beyond 38 are lost."""
    precision = min(precision, DECIMAL_PRECISION_MAX)
    return f"DECIMAL({precision}, {scale})" if precision > 0 and 0 <= scale <= precision else None


def _unless_misfit(kind: str, values: Sequence[Any], fits: Callable[[str], bool]) -> ColumnGuess:
    """Return a type of dates and times, or STRING if a value has none, such as 0000-00-00."""
    fit = all(isinstance(value, str) and fits(value) for value in values)
    return ColumnGuess(kind if fit else "STRING", Use.NONE)


# --- from the schema of Kafka Connect -------------------------------------------------------------


def _guess_connect(node: Mapping[str, Any], values: Sequence[Any]) -> ColumnGuess | None:
    name, kind = node.get("name"), node.get("type")
    if not isinstance(kind, str):
        return None
    name = name if isinstance(name, str) else ""
    if name == _CONNECT_DECIMAL:
        parameters = node.get("parameters")
        parameters = parameters if isinstance(parameters, dict) else {}
        precision = _read_numbers(str(parameters.get("connect.decimal.precision", "38"))[:9])
        scale = _read_numbers(str(parameters.get("scale", "0"))[:9])
        decimal = _decimal(*precision[:1], *scale[:1]) if precision and scale else None
        return ColumnGuess(decimal or f"DECIMAL({DECIMAL_PRECISION_MAX}, 10)", Use.MEASURE)
    if name in _TIME_OF_DAY_MAX:
        within = all(
            isinstance(value, int) and 0 <= value < _TIME_OF_DAY_MAX[name] for value in values
        )
        return ColumnGuess("TIME" if within else "BIGINT", Use.NONE)
    if name in _CONNECT_NAMES:
        return ColumnGuess(_CONNECT_NAMES[name], Use.FLAG if name == _YEAR_NAME else Use.NONE)
    chosen = _CONNECT_TYPES.get(kind, "STRING")
    if chosen == "STRING":
        plain = _infer_use([value for value in values if isinstance(value, str)])
        named = Use.CATEGORY if name == _ENUM_NAME else Use.NONE if name else plain
        return ColumnGuess(chosen, named if kind == "string" else Use.NONE)
    measured = Use.MEASURE if chosen.startswith(_NUMBERS) else Use.NONE
    return ColumnGuess(chosen, Use.FLAG if chosen == "BOOLEAN" else measured)


# --- from the values alone ------------------------------------------------------------------------


def _infer(values: Sequence[Any]) -> ColumnGuess:
    """Return the narrowest type that fits all values; STRING in doubt."""
    if values and all(isinstance(value, bool) for value in values):
        return ColumnGuess("BOOLEAN", Use.FLAG)
    if not values or any(isinstance(value, bool | dict | list) for value in values):
        return ColumnGuess("STRING", Use.NONE)
    texts = [str(value) for value in values]
    number = _infer_number(values, texts)
    if number is not None:
        return ColumnGuess(number, Use.MEASURE)
    if all(map(_is_moment, texts)):
        digits = max(len(text[20:]) for text in texts)
        return ColumnGuess(f"TIMESTAMP({digits})", Use.NONE)
    if all(map(_is_day, texts)):
        return ColumnGuess("DATE", Use.NONE)
    return ColumnGuess("STRING", _infer_use(texts))


def _infer_use(texts: Sequence[str]) -> Use:
    return Use.LABEL if all(len(text) <= LABEL_CHARACTERS_MAX for text in texts) else Use.NONE


def _infer_number(values: Sequence[Any], texts: Sequence[str]) -> str | None:
    if all(map(_is_whole, texts)):
        return "INT" if all(abs(int(text)) < _INT_LIKELY for text in texts) else "BIGINT"
    if all(isinstance(value, int | float) for value in values):
        return "DOUBLE"
    scales = []
    for text in texts:
        whole, point, fraction = text.partition(".")
        if not _is_whole(whole) or (point and not _is_digits(fraction)) or len(fraction) > 10:
            return None
        scales.append(len(fraction))
    return f"DECIMAL({28 if max(scales) > 6 else 18}, {max(scales)})"


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return len(digits) <= _WHOLE_DIGITS_MAX and _is_digits(digits)


def _is_day(text: str) -> bool:
    return len(text) == 10 and text[7] == "-" and _is_date(text)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_moment(text: str) -> bool:
    """Return whether a text is like 2026-01-31 12:00:00, with at most nine digits after it."""
    return _is_day(text[:10]) and text[10:11] in (" ", "T") and _is_time_of_day(text[11:])


def _is_time_of_day(text: str) -> bool:
    parts = text[:8].split(":")
    if len(parts) != 3 or not all(len(part) == 2 and _is_digits(part) for part in parts):
        return False
    hour, minute, second = map(int, parts)
    exact = not text[8:] or (text[8] == "." and _is_digits(text[9:]) and len(text) <= 18)
    return exact and hour < 24 and minute < 60 and second < 60
