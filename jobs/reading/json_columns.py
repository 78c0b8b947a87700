"""Render Arrow columns of a table as JSON text, a whole column at a time.

    name  total          {"name":   "bolt"    ,"total":   7   }      one array of texts a column,
    bolt      7   ──►    {"name":   "nut"     ,"total":  null }  ──► then joined into objects, all
    nut    NULL                                                      in Arrow

Hot path: every published record and every change that the service sends comes from here. Numbers,
times, short decimals and plain texts never become Python objects. Values of all other types are
rendered one by one. The text of a value is the text of its `JsonStyle.render`, except floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.aggregates.cell_json import JSON_INTEGER_MAX
from jobs.core.values.change import Value
from jobs.core.values.composite_values import array_renderer
from jobs.core.values.json_values import Json, renderer
from schemas.types.arrow_values import from_arrow, one_chunk, to_list
from schemas.types.sql_types import COMPOSITE, FLOATING, Kind, SqlType

_encode = msgspec.json.Encoder().encode
_ESCAPED = r'["\\\x00-\x1f]'  # the characters that JSON strings escape
_NULL = "null"
_LARGE = pa.large_string()  # the rows of an epoch may exceed the 2 GiB of `string`
_PLAIN_DECIMAL_SCALE_MAX = 6  # beyond it Arrow writes exponents, as Java does
_BARE = (Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_STAMPS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """How values become JSON. Published records and responses of the service differ a little."""

    render: Callable[[SqlType], Callable[[Any], Json]]  # renders single values of a type
    text: pa.DataType  # of the rendered columns
    # Floats as Arrow writes them (1e+16), which is fast, or as `render` does (1e16).
    arrow_floats: bool
    # Whole numbers beyond JSON_INTEGER_MAX are strings; then `render` must say the same.
    safe_integers: bool
    strings_only: bool = False  # every value but NULL is a JSON string, as canal-json has it


def safe_renderer(sql_type: SqlType) -> Callable[[Any], Json]:
    """Return a `renderer` that writes whole numbers beyond 2^53 as strings."""
    if sql_type.kind is Kind.ARRAY:
        write_items = array_renderer(safe_renderer(sql_type.items[0]))
        return lambda value: None if value is None else write_items(value)
    write = renderer(sql_type)
    if sql_type.kind is not Kind.BIGINT:  # no other type has such numbers
        return write

    def write_safely(value: Value) -> Json:
        if isinstance(value, int) and not -JSON_INTEGER_MAX <= value <= JSON_INTEGER_MAX:
            return str(value)
        return write(value)

    return write_safely


PUBLISHED = JsonStyle(renderer, pa.string(), arrow_floats=True, safe_integers=False)
PUBLISHED_STRINGS = JsonStyle(
    renderer, pa.string(), arrow_floats=True, safe_integers=False, strings_only=True
)
# Of responses; an epoch's rows may be more than 2 GiB of text.
SAFE = JsonStyle(safe_renderer, pa.large_string(), arrow_floats=False, safe_integers=True)


def render_column(
    column: pa.Array | pa.ChunkedArray, sql_type: SqlType, style: JsonStyle
) -> pa.Array:
    """Return each value as JSON text; NULL stays NULL."""
    array = one_chunk(column)
    kind = sql_type.kind
    if kind in FLOATING and style.arrow_floats:
        return _render_floats(array, style)
    if kind in _BARE and not (style.safe_integers and _has_unsafe_integers(array, sql_type)):
        text = pc.cast(array, style.text)
        return _quote(text) if style.strings_only else text
    if kind is Kind.STRING:
        return _quote(_escape(pc.cast(array, style.text)))
    if kind in _STAMPS:
        zone = "Z" if kind is Kind.TIMESTAMP_LTZ else ""
        return _quote(_format_timestamps(array, zone, style.text))
    short_decimal = kind is Kind.DECIMAL and (sql_type.scale or 0) <= _PLAIN_DECIMAL_SCALE_MAX
    if short_decimal or kind in (Kind.DATE, Kind.TIME):
        return _quote(pc.cast(array, style.text))
    return _render_values(array, sql_type, style)


def render_rows(columns: Iterable[tuple[str, pa.Array]]) -> pa.Array:
    """Return one JSON object for each row, from rendered columns."""
    parts: list[Any] = []
    for name, column in columns:
        parts += [f"{',' if parts else '{'}{_encode(name).decode()}:", column]
    return join_texts(*parts, "}" if parts else "{}")


def join_texts(*parts: Any) -> pa.Array:
    """Join arrays and constants row by row; NULL becomes `null`."""
    return pc.binary_join_element_wise(
        *(pa.scalar(part, _LARGE) if isinstance(part, str) else part for part in parts),
        pa.scalar("", _LARGE),
        null_handling="replace",
        null_replacement=_NULL,
    )


def encode_texts(text: pa.Array) -> list[bytes]:
    """Return an array of texts as UTF-8."""
    return to_list(text.cast(pa.large_binary()))


# --- columns of one kind ------------------------------------------------------------------------


def _render_values(array: pa.Array, sql_type: SqlType, style: JsonStyle) -> pa.Array:
    """Render value by value: types that Arrow cannot format, because they are rare or long."""
    render = style.render(sql_type)
    rendered = (render(value) for value in from_arrow(array, sql_type))
    texts = [None if each is None else _encode(each).decode() for each in rendered]
    column = pa.array(texts, style.text)
    if style.strings_only and sql_type.kind in COMPOSITE:
        return _quote(_escape(column))
    return column


def _render_floats(column: pa.Array, style: JsonStyle) -> pa.Array:
    text = pc.cast(column, style.text)
    whole = pc.invert(pc.match_substring_regex(text, "[.en]"))  # 1 is 1.0, as other floats are
    text = pc.if_else(whole, _join(text, ".0"), text)
    finite = pc.is_finite(column)
    all_finite = pc.all(finite).as_py() is not False
    if not all_finite:
        word = pc.if_else(pc.greater(column, 0.0), "Infinity", "-Infinity")
        word = pc.if_else(pc.is_nan(column), "NaN", word)
        text = pc.if_else(finite, text, word)
    if style.strings_only:
        return _quote(text)
    return text if all_finite else pc.if_else(finite, text, _quote(text))


def _format_timestamps(column: pa.Array, zone: str, text_type: pa.DataType) -> pa.Array:
    """Format timestamps with the fraction digits they need; the column may be text already."""
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("us"))
    text = pc.utf8_rtrim(pc.utf8_rtrim(pc.cast(column, text_type), "0"), ".")
    return _join(text, zone) if zone else text


def _has_unsafe_integers(array: pa.Array, sql_type: SqlType) -> bool:
    if sql_type.kind is not Kind.BIGINT:
        return False
    if not pa.types.is_int64(array.type):
        return True
    bounds = pc.min_max(array).as_py()
    return (bounds["min"] or 0) < -JSON_INTEGER_MAX or (bounds["max"] or 0) > JSON_INTEGER_MAX


def _escape(column: pa.Array) -> pa.Array:
    """Escape texts for JSON strings; one scan shows that most columns need no escape."""
    if not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return column
    escaped = [None if text is None else _encode(text)[1:-1].decode() for text in to_list(column)]
    return pa.array(escaped, column.type)


def _quote(text: pa.Array) -> pa.Array:
    quote = pa.scalar('"', text.type)
    return pc.binary_join_element_wise(quote, text, quote, pa.scalar("", text.type))


def _join(text: pa.Array, end: str) -> pa.Array:
    return pc.binary_join_element_wise(text, pa.scalar(end, text.type), pa.scalar("", text.type))
