"""The columns of a message's row objects: msgspec structs, conversions, generated code.

    {"id": "7", "name": "a", "cnt": "3"}
        fast    struct(c0="7", c1="a", c2="3") ── generated lines ──► ("a", 3)   the used columns
        exact   dict                           ── `row`, `pick`   ──► ("a", 3)   or a RefusedError

A decoder tries the fast way and takes the exact one for whatever the fast one does not expect, so
the fast way never has to explain anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from jobs.core.formats.ddl import lost_columns
from jobs.core.plan.tree import Column
from jobs.core.values.change import ColumnGone, Decoded, Rejected, Row, Skipped, Value
from jobs.core.values.json_text import JsonNumber, read, shown
from jobs.core.values.json_values import Converter
from schemas import limits
from schemas.types.sql_types import Kind, SqlType, integer_range

Decode = Callable[[bytes | None], Decoded]
KeyedDecode = Callable[[bytes | None, bytes | None], Decoded]  # of a record's value and its key

TOMBSTONE = Skipped("tombstone")
DDL = Skipped("ddl")
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# What the fast way may raise for a message that it does not expect.
UNEXPECTED = (ValueError, TypeError, RecursionError)

# How every generated decoder begins. A short ASCII message can hide nothing that matters in the
# parts that msgspec skips; any other one is looked at first.
HEAD_LINES = (
    "def decode(value):",
    "    if not value:",
    "        return tombstone",
    f"    if len(value) > {limits.SHORT_MESSAGE_BYTES_MAX} or not value.isascii():",
    "        if not acceptable(value, bytes_max):",
    "            return explain(value)",
)

_MEMO_TEXT_CHARACTERS_MAX = 64
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_UNNAMEABLE = re.compile(r'[\\"\x00-\x1f]')  # what msgspec does not take in a field's name


class RefusedError(Exception):
    """A row cannot be taken; `decoded` is what the message becomes."""

    def __init__(self, decoded: Rejected | ColumnGone) -> None:
        super().__init__(decoded)
        self.decoded = decoded


class Memo(dict[object, Value]):
    """Conversions of one column, remembered: `memo[text]` is the value.

    A full memo starts anew, so that it follows a column whose values move on, such as a time.
    """

    __slots__ = ("convert", "entries_max")

    def __init__(self, convert: Converter, entries_max: int) -> None:
        super().__init__()
        self.convert = convert
        self.entries_max = entries_max

    def __missing__(self, field: object) -> Value:
        value = self.convert(field)
        if len(self) >= self.entries_max:
            self.clear()
        if not isinstance(field, str | bytes) or len(field) <= _MEMO_TEXT_CHARACTERS_MAX:
            self[field] = value
        return value


class RowFields:
    """How the declared columns are found, checked and converted in a row object of a message.

    Every declared column is checked; the rows hold the used ones, in order. A format whose fields
    look otherwise says so in a class of its own: `json_type`, `_field_lines`.
    """

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        convert: Callable[[SqlType], Converter],
        *,
        missing_is_null: bool,
    ) -> None:
        self.columns = columns
        self.converters = tuple(convert(column.type) for column in columns)
        self.missing_is_null = missing_is_null
        places = {column.name: place for place, column in enumerate(columns)}
        self.used_places = tuple(places[column.name] for column in used)
        self.nameable = not any(_UNNAMEABLE.search(column.name) for column in columns)

    # --- the fast way -----------------------------------------------------------------------

    def struct(self, name: str, *, partial: bool) -> type[msgspec.Struct]:
        """The row object as msgspec reads it; `partial`: a field that is absent is UNSET."""
        fields: list[tuple[str, object] | tuple[str, object, object]] = []
        for place in range(len(self.columns)):
            field = f"c{place}"
            if partial:
                fields.append((field, self.json_type(place) | UnsetType, UNSET))
            elif self.missing_is_null:
                fields.append((field, self.json_type(place), None))
            else:
                fields.append((field, self.json_type(place)))
        renamed = {f"c{place}": column.name for place, column in enumerate(self.columns)}
        return msgspec.defstruct(name, fields, rename=renamed, gc=False, kw_only=True)

    def json_type(self, place: int) -> Any:
        """What the fast way takes for a column."""
        return field_type(self.columns[place].type)

    def names(self) -> dict[str, object]:
        """What the generated lines refer to: a memo for each column."""
        names: dict[str, object] = {"UNSET": UNSET}
        return names | {f"memo{place}": memo for place, memo in enumerate(self._memos)}

    @cached_property
    def _memos(self) -> list[Memo]:
        entries_max = max(1, limits.MEMO_ENTRIES_MAX // max(1, len(self.columns)))
        return [Memo(convert, entries_max) for convert in self.converters]

    def column(self, place: int) -> Callable[[list[Any]], list[Value]]:
        """How many fields of a column are checked and read at once. The function raises where one
        of them is not as it should be."""
        sql_type, memo = self.columns[place].type, self._memos[place]
        if sql_type.kind is Kind.STRING:  # msgspec has checked it
            return _as_they_are
        if sql_type.integer:
            return _integers(integer_range(sql_type), memo)
        if sql_type.kind is Kind.DECIMAL:
            return _decimals(sql_type, memo)
        return lambda fields: list(map(memo.__getitem__, fields))

    def read_lines(self, row: str, value: str) -> Iterator[str]:
        """Lines that check `row` and set `{value}N` for each used column N."""
        for place in range(len(self.columns)):
            yield from self._field_lines(place, f"{row}.c{place}", f"{value}{place}")

    def overlay_lines(self, old: str, value: str, otherwise: str) -> Iterator[str]:
        """The same for an image that holds only some columns; the others are `{otherwise}N`."""
        for place in range(len(self.columns)):
            lines = list(self._field_lines(place, "field", f"{value}{place}"))
            used = place in self.used_places
            if not lines:
                continue
            yield f"field = {old}.c{place}"
            yield "if field is not UNSET:"
            yield from ("    " + line for line in lines)
            if used:
                yield "else:"
                yield f"    {value}{place} = {otherwise}{place}"

    def tuple_code(self, value: str) -> str:
        inside = "".join(f"{value}{place}, " for place in self.used_places)
        return f"({inside.strip()})"

    def _field_lines(self, place: int, field: str, value: str) -> Iterator[str]:
        """Check a field, and set `value` if its column is used.

        Integers are not looked up in a memo as long as they are plain digits: an id has too many
        values to be remembered, and to read it costs hardly more.
        """
        sql_type, used = self.columns[place].type, place in self.used_places
        if sql_type.kind is Kind.STRING:  # msgspec has checked it
            if used:
                yield f"{value} = {field}"
        elif sql_type.integer:
            low, high = integer_range(sql_type)
            digits = len(str(high)) - 1
            yield f"{value} = {field}"
            short = f"len({value}) <= {digits} and {value}.isdecimal()"
            yield f"if {value}.__class__ is str and {short}:"
            yield f"    {value} = int({value})" if used else "    pass"
            yield f"elif {value}.__class__ is not int or not {low} <= {value} <= {high}:"
            yield f"    {value} = memo{place}[{value}]"
        else:
            yield f"{value} = memo{place}[{field}]"

    # --- the exact way ----------------------------------------------------------------------

    def row(self, node: object, path: str) -> list[Value]:
        """All declared columns of a full row object; RefusedError names the first bad field."""
        members = self._members(node, path)
        values: list[Value] = []
        for column, convert in zip(self.columns, self.converters, strict=True):
            if column.name in members:
                values.append(_converted(convert, members[column.name], path, column))
            elif self.missing_is_null:
                values.append(None)
            else:
                why = f"{field_path(path, column.name)} is absent from the message"
                raise RefusedError(ColumnGone(column.name, clipped(why)))
        return values

    def overlaid(self, row: list[Value], node: object, path: str) -> list[Value]:
        """`row` with the columns that `node` has: present with null is NULL, absent unchanged."""
        members = self._members(node, path)
        return [
            _converted(convert, members[column.name], path, column)
            if column.name in members
            else value
            for column, convert, value in zip(self.columns, self.converters, row, strict=True)
        ]

    def after_ddl(self, sql: object) -> Skipped | ColumnGone:
        """What a statement means to those who read the declared columns."""
        if self.missing_is_null or not isinstance(sql, str):
            return DDL
        # MySQL does not tell the case of column names apart.
        declared = {column.name.casefold(): column.name for column in self.columns}
        for lost, new_name in lost_columns(sql):
            name = declared.get(lost.casefold())
            if name is not None and name != new_name:
                what = "drops it" if new_name is None else f"renames it to {shown(new_name)}"
                return ColumnGone(name, clipped(f"DDL {what}: {shown(sql)}"))
        return DDL

    def pick(self, row: list[Value]) -> Row:
        return tuple(row[place] for place in self.used_places)

    def _members(self, node: object, path: str) -> dict[str, object]:
        if not isinstance(node, dict):
            raise RefusedError(rejected(f"{shown(node)} where a row object belongs", path))
        return node


class NumberFields(RowFields):
    """Row objects whose DECIMALs are JSON numbers, or text: the fast way takes them as the bytes
    they are, for a float would lose digits."""

    def json_type(self, place: int) -> Any:
        if self.columns[place].type.kind is Kind.DECIMAL:
            return msgspec.Raw
        return super().json_type(place)

    def names(self) -> dict[str, object]:
        names = super().names()
        for place, column in enumerate(self.columns):
            if column.type.kind is Kind.DECIMAL:
                memo = names[f"memo{place}"]
                assert isinstance(memo, Memo)
                memo.convert = _of_bytes(self.converters[place])
        return names

    def _field_lines(self, place: int, field: str, value: str) -> Iterator[str]:
        if self.columns[place].type.kind is Kind.DECIMAL:
            yield f"{value} = memo{place}[bytes({field})]"
        else:
            yield from super()._field_lines(place, field, value)


def _of_bytes(convert: Converter) -> Converter:
    def of_bytes(raw: object) -> Value:
        assert isinstance(raw, bytes)
        return convert(read(raw, len(raw)))

    return of_bytes


def _as_they_are(fields: list[Any]) -> list[Value]:
    return fields


def _integers(bounds: tuple[int, int], memo: Memo) -> Callable[[list[Any]], list[Value]]:
    """Almost always all of them are plain digits, which is told by one look."""
    low, high = bounds
    digits_max = len(str(high)) - 1

    def integers(fields: list[Any]) -> list[Value]:
        try:
            plain = "".join(fields).isdecimal() and max(map(len, fields)) <= digits_max
        except TypeError:  # a NULL, or a number of JSON
            plain = False
        if plain:
            return list(map(int, fields))  # which refuses an empty one
        return list(map(integer, fields))

    def integer(field: Any) -> Value:
        if field.__class__ is str and len(field) <= digits_max and field.isdecimal():
            return int(field)  # an id has too many values to be remembered
        return field if field.__class__ is int and low <= field <= high else memo[field]

    return integers


def _decimals(sql_type: SqlType, memo: Memo) -> Callable[[list[Any]], list[Value]]:
    """As databases write them, with just the digits behind the point that the type has."""
    assert sql_type.precision is not None
    assert sql_type.scale is not None
    digits_max, scale = sql_type.precision, sql_type.scale

    def decimals(fields: list[Any]) -> list[Value]:
        plain = False
        with suppress(TypeError):  # a NULL
            digits = fields
            if scale:
                digits = [field[: -scale - 1] + field[-scale:] for field in fields]
            text, sizes = "".join(digits), set(map(len, digits))
            plain = (
                text.isdecimal()
                and text.isascii()
                and scale < min(sizes) <= max(sizes) <= digits_max
                and (not scale or {field[-scale - 1] for field in fields} == {"."})
            )
        if plain:
            return list(map(int, digits))
        return list(map(memo.__getitem__, fields))

    return decimals


def compiled(lines: Iterable[str], names: dict[str, object]) -> Callable[..., Decoded]:
    """The function `decode` that the lines define."""
    source = "\n".join(lines)
    namespace = dict(names)
    code = compile(source, "<generated decode>", "exec")
    exec(code, namespace)  # noqa: S102 - made of types and places; no name is in it
    decode: Callable[..., Decoded] = namespace["decode"]  # type: ignore[assignment]
    return decode


def indented(blanks: int, lines: Iterable[str]) -> Iterator[str]:
    return (" " * blanks + line for line in lines)


def field_type(sql_type: SqlType) -> Any:
    """What the fast way takes for a column: text, and the JSON type that is natural for it."""
    if sql_type.integer:
        return str | int | None
    if sql_type.floating:
        return str | float | None
    if sql_type.kind is Kind.BOOLEAN:
        return str | bool | None
    return str | None


def rejected(reason: str, path: str = "$") -> Rejected:
    return Rejected(clipped(reason), path)


def clipped(reason: str) -> str:
    """A reason within its bound, and always writable as UTF-8 whatever a message had in it."""
    reason = reason.encode("utf-8", "backslashreplace").decode("utf-8")
    maximum = limits.REASON_CHARACTERS_MAX
    return reason if len(reason) <= maximum else reason[: maximum - 1] + "…"


def field_path(path: str, name: str) -> str:
    """The path of a member; a name that is no identifier is quoted."""
    return f"{path}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{path}[{json.dumps(name)}]"


def milliseconds(node: object) -> int | None:
    """A message's own time stamp; one that cannot be read is no reason to refuse the rows."""
    if isinstance(node, JsonNumber) and re.fullmatch(r"-?[0-9]{1,19}", node):
        number = int(node)
        return number if -(2**63) <= number < 2**63 else None
    return None


def _converted(convert: Converter, node: object, path: str, column: Column) -> Value:
    try:
        return convert(node)
    except ValueError as error:
        raise RefusedError(rejected(str(error), field_path(path, column.name))) from None
