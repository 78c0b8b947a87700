"""JSON columns: rows of a table as JSON text, a column at a time.

    name  total          {"name":   bolt    ,"total":   7   }        one piece of text a column,
    bolt      7   ──►    {"name":   nut     ,"total":  null }   ──►  then joined across, all in
    nut    NULL                                                      Arrow

What every follower and every lookup is told goes through here, so rows are not built one by one:
whole numbers, booleans, decimals and plain text never become Python objects. Of all other types
each value is written as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.values.json_values import Json
from schemas.types.arrow_values import from_arrow, listed, one_chunk
from schemas.types.sql_types import Kind, SqlType

Write = Callable[[Any], Json]
JSON_INTEGER_MAX = 2**53 - 1

_encode = msgspec.json.Encoder().encode
_TEXT = pa.large_string()  # an epoch's rows may be more text than 32 bits count
_ESCAPED = r'["\\\x00-\x1f]'  # what JSON text has to escape
_NULL = "null"
# Arrow writes a decimal of more digits behind the point with an exponent where it is small.
_PLAIN_SCALE_MAX = 6


def json_rows(columns: Iterable[tuple[str, pa.Array]]) -> pa.Array:
    """An object a row, of columns that are JSON text already."""
    parts: list[Any] = []
    for name, column in columns:
        parts += [f"{',' if parts else '{'}{_encode(name).decode()}:", column]
    return joined(*parts, "}" if parts else "{}")


def joined(*parts: Any) -> pa.Array:
    """Columns and constants, one after the other."""
    return pc.binary_join_element_wise(
        *(pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts),
        pa.scalar("", _TEXT),
        null_handling="replace",
        null_replacement=_NULL,
    )


def as_bytes(text: pa.Array) -> list[bytes]:
    return listed(text.cast(pa.large_binary()))


def json_column(column: pa.ChunkedArray, sql_type: SqlType, write: Write) -> pa.Array:
    """The JSON text of each value; NULL stays NULL."""
    array = one_chunk(column)
    if _as_arrow_writes(array, sql_type):
        return pc.cast(array, _TEXT)
    if sql_type.kind is Kind.DECIMAL and (sql_type.scale or 0) <= _PLAIN_SCALE_MAX:
        return _quoted(pc.cast(array, _TEXT))
    if sql_type.kind is Kind.STRING and not _any(pc.match_substring_regex(array, _ESCAPED)):
        return _quoted(pc.cast(array, _TEXT))
    told = (_encode(write(value)).decode() for value in from_arrow(array, sql_type))
    return pa.array(told, _TEXT, size=len(array))


def _as_arrow_writes(array: pa.Array, sql_type: SqlType) -> bool:
    if sql_type.kind is Kind.BIGINT and pa.types.is_int64(array.type):
        bounds = pc.min_max(array).as_py()
        low, high = bounds["min"] or 0, bounds["max"] or 0
        return bool(low >= -JSON_INTEGER_MAX and high <= JSON_INTEGER_MAX)
    plain = (Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT)
    return sql_type.kind in plain


def _quoted(text: pa.Array) -> pa.Array:
    quote = pa.scalar('"', _TEXT)
    return pc.binary_join_element_wise(quote, text, quote, pa.scalar("", _TEXT))


def _any(found: pa.Array) -> bool:
    return bool(pc.any(found).as_py())
