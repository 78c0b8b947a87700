"""The columns of a message's row objects: msgspec structs, conversions, generated code.

    {"id": "7", "name": "a", "cnt": "3"}
        fast    struct(c0="7", c1="a", c2="3") ── generated lines     ──► ("a", 3)  the used columns
        exact   dict                           ── `parse_row`, `pick` ──► ("a", 3)  or RefusedError

A decoder tries the fast path, and takes the exact one for any message that the fast path does not
expect. So the fast path never has to explain a refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from jobs.core.plan.tree import Column
from jobs.core.values.change import ColumnGone, Decoded, Rejected, Row, Skipped, Value
from jobs.core.values.json_text import JsonNumber, describe, read_json
from jobs.core.values.json_values import Converter
from schemas import limits
from schemas.limits import MEMO_TEXT_CHARACTERS_MAX
from schemas.types.sql_types import Kind, SqlType, integer_range

TOMBSTONE = Skipped("tombstone")
DDL = Skipped("ddl")
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Exceptions of the fast path for a message that it does not expect.
UNEXPECTED = (ValueError, TypeError, RecursionError)

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
UNNAMEABLE = re.compile(r'[\\"\x00-\x1f]')  # msgspec does not allow these in a field's name


class Decode(Protocol):
    """Returns the outcome of a record from its value, and from its key if the format needs it."""

    def __call__(self, value: bytes | None, key: bytes | None = None, /) -> Decoded: ...


class RefusedError(Exception):
    """The message has no changes; `decoded` is its outcome."""

    def __init__(self, decoded: Rejected | ColumnGone) -> None:
        super().__init__(decoded)
        self.decoded = decoded


class Memo(dict[object, Value]):
    """A cache of the conversions of one column: `memo[text]` is the value.

    A full cache is cleared, so that it follows a column whose values advance, such as a time.
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
        if not isinstance(field, str | bytes) or len(field) <= MEMO_TEXT_CHARACTERS_MAX:
            self[field] = value
        return value


class RowFields:
    """Finds, checks and converts the declared columns in a row object of a message.

    It checks every declared column; the rows contain the used ones, in order. A format with other
    JSON types of fields overrides `json_type` and `_field_lines`.
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
        indexes = {column.name: index for index, column in enumerate(columns)}
        self.used_indexes = tuple(indexes[column.name] for column in used)
        self.nameable = not any(UNNAMEABLE.search(column.name) for column in columns)

    # --- the fast path ----------------------------------------------------------------------

    def make_struct(self, name: str, *, partial: bool) -> type[msgspec.Struct]:
        """Return a struct for the row object; with `partial`, absent fields are UNSET."""
        fields: list[tuple[str, object] | tuple[str, object, object]] = []
        for index in range(len(self.columns)):
            field = f"c{index}"
            if partial:
                fields.append((field, self.json_type(index) | UnsetType, UNSET))
            elif self.missing_is_null:
                fields.append((field, self.json_type(index), None))
            else:
                fields.append((field, self.json_type(index)))
        renamed = {f"c{index}": column.name for index, column in enumerate(self.columns)}
        return msgspec.defstruct(name, fields, rename=renamed, gc=False, kw_only=True)

    def json_type(self, index: int) -> Any:
        """Return the JSON types of a column that the fast path accepts."""
        return field_type(self.columns[index].type)

    def is_kept(self, index: int) -> bool:
        """Return whether fields are values as they are, because msgspec has checked them."""
        return self.columns[index].type.kind is Kind.STRING

    def names(self) -> dict[str, object]:
        """Return the names that the generated lines use: a memo for each column."""
        names: dict[str, object] = {"UNSET": UNSET}
        return names | {f"memo{index}": memo for index, memo in enumerate(self.memos)}

    @cached_property
    def memos(self) -> list[Memo]:
        """The cache of each column."""
        return self.make_memos()

    def make_memos(self) -> list[Memo]:
        """Return a new cache for each column."""
        entries_max = max(1, limits.MEMO_ENTRIES_MAX // max(1, len(self.columns)))
        return [Memo(convert, entries_max) for convert in self.converters]

    def read_lines(self, row: str, value: str) -> Iterator[str]:
        """Yield lines that check `row` and set `{value}N` for each used column N."""
        for index in range(len(self.columns)):
            yield from self._field_lines(index, f"{row}.c{index}", f"{value}{index}")

    def overlay_lines(self, old: str, value: str, otherwise: str) -> Iterator[str]:
        """Yield such lines for a partial image; absent columns are `{otherwise}N`."""
        for index in range(len(self.columns)):
            lines = list(self._field_lines(index, "field", f"{value}{index}"))
            used = index in self.used_indexes
            if not lines:
                continue
            yield f"field = {old}.c{index}"
            yield "if field is not UNSET:"
            yield from ("    " + line for line in lines)
            if used:
                yield "else:"
                yield f"    {value}{index} = {otherwise}{index}"

    def tuple_code(self, value: str) -> str:
        """Return the code of a row of the used columns."""
        inside = "".join(f"{value}{index}, " for index in self.used_indexes)
        return f"({inside.strip()})"

    def _field_lines(self, index: int, field: str, value: str) -> Iterator[str]:
        """Yield lines that check a field, and set `value` if its column is used.

        Integers of plain digits are not cached: an id has too many values, and converting it costs
        hardly more than a lookup.
        """
        sql_type, used = self.columns[index].type, index in self.used_indexes
        if self.is_kept(index):
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
            yield f"    {value} = memo{index}[{value}]"
        else:
            yield f"{value} = memo{index}[{field}]"

    # --- the exact path ---------------------------------------------------------------------

    def parse_row(self, node: object, path: str) -> list[Value]:
        """Return all declared columns of a full row object.

        Raise RefusedError for the first invalid field."""
        members = self._members(node, path)
        values: list[Value] = []
        for column, convert in zip(self.columns, self.converters, strict=True):
            if column.name in members:
                values.append(_convert_field(convert, members[column.name], path, column))
            elif self.missing_is_null:
                values.append(None)
            else:
                why = f"{field_path(path, column.name)} is missing in the message"
                raise RefusedError(ColumnGone(column.name, clip(why)))
        return values

    def overlay(self, row: list[Value], node: object, path: str) -> list[Value]:
        """Return `row` with the columns that `node` has; null is NULL, an absent one unchanged."""
        members = self._members(node, path)
        return [
            _convert_field(convert, members[column.name], path, column)
            if column.name in members
            else value
            for column, convert, value in zip(self.columns, self.converters, row, strict=True)
        ]

    def check_ddl(self, sql: object) -> Skipped | ColumnGone:
        """Return ColumnGone if a DDL statement drops or renames a declared column, else Skipped."""
        if self.missing_is_null or not isinstance(sql, str):
            return DDL
        # MySQL ignores the case of column names.
        declared = {column.name.casefold(): column.name for column in self.columns}
        for lost, new_name in find_lost_columns(sql):
            name = declared.get(lost.casefold())
            if name is not None and name != new_name:
                change = "drops it" if new_name is None else f"renames it to {describe(new_name)}"
                return ColumnGone(name, clip(f"DDL {change}: {describe(sql)}"))
        return DDL

    def pick(self, row: list[Value]) -> Row:
        """Return the used columns of a row."""
        return tuple(row[index] for index in self.used_indexes)

    def _members(self, node: object, path: str) -> dict[str, object]:
        if not isinstance(node, dict):
            raise RefusedError(rejection(f"{describe(node)} where a row object belongs", path))
        return node


class NumberFields(RowFields):
    """Row objects whose DECIMALs are JSON numbers or text.

    The fast path keeps the bytes of a DECIMAL, because a float would lose digits."""

    def json_type(self, index: int) -> Any:
        if self.columns[index].type.kind is Kind.DECIMAL:
            return msgspec.Raw
        return super().json_type(index)

    def names(self) -> dict[str, object]:
        names = super().names()
        for index, column in enumerate(self.columns):
            if column.type.kind is Kind.DECIMAL:
                memo = names[f"memo{index}"]
                assert isinstance(memo, Memo)
                memo.convert = _raw_converter(self.converters[index])
        return names

    def _field_lines(self, index: int, field: str, value: str) -> Iterator[str]:
        if self.columns[index].type.kind is Kind.DECIMAL:
            yield f"{value} = memo{index}[bytes({field})]"
        else:
            yield from super()._field_lines(index, field, value)


def _raw_converter(convert: Converter) -> Converter:
    def convert_raw(raw: object) -> Value:
        assert isinstance(raw, bytes)
        return convert(read_json(raw, len(raw)))

    return convert_raw


def compile_decoder(lines: Iterable[str], names: dict[str, object]) -> Callable[..., Decoded]:
    """Return the function `decode` that the lines define."""
    source = "\n".join(lines)
    namespace = dict(names)
    code = compile(source, "<generated decode>", "exec")
    exec(code, namespace)  # noqa: S102 - generated from types and numbers, without names
    decode: Callable[..., Decoded] = namespace["decode"]  # type: ignore[assignment]
    return decode


def indent(blanks: int, lines: Iterable[str]) -> Iterator[str]:
    return (" " * blanks + line for line in lines)


def field_type(sql_type: SqlType) -> Any:
    """Return the JSON types of a column: text, and the natural JSON type of its SQL type."""
    if sql_type.integer:
        return str | int | None
    if sql_type.floating:
        return str | float | None
    if sql_type.kind is Kind.BOOLEAN:
        return str | bool | None
    return str | None


def rejection(reason: str, path: str = "$") -> Rejected:
    """Return a rejection with a reason of bounded length."""
    return Rejected(clip(reason), path)


def clip(reason: str) -> str:
    """Return the reason with bounded length and valid as UTF-8."""
    reason = reason.encode("utf-8", "backslashreplace").decode("utf-8")
    maximum = limits.REASON_CHARACTERS_MAX
    return reason if len(reason) <= maximum else reason[: maximum - 1] + "…"


def name_truncate(database: object, table: object) -> str:
    """Return a TRUNCATE whose message has no statement, by the names that it has."""
    names = [name for name in (database, table) if isinstance(name, str) and name]
    return clip(f"TRUNCATE of {'.'.join(names) or 'a table'}")


def field_path(path: str, name: str) -> str:
    """Return the path of a member, whose name is quoted unless it is an identifier."""
    return f"{path}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{path}[{json.dumps(name)}]"


def parse_time_ms(node: object) -> int | None:
    """Return the time of a message, or None: an invalid time is no reason to refuse the rows."""
    if isinstance(node, JsonNumber) and re.fullmatch(r"-?[0-9]{1,19}", node):
        number = int(node)
        return number if -(2**63) <= number < 2**63 else None
    return None


def _convert_field(convert: Converter, node: object, path: str, column: Column) -> Value:
    try:
        return convert(node)
    except ValueError as error:
        raise RefusedError(rejection(str(error), field_path(path, column.name))) from None


# A comment or text is one token, so that COMMENT 'DROP ...' contains no DROP clause.
_TOKENS = re.compile(
    r"""\s+ | --[^\n]* | \#[^\n]* | /\*.*?\*/
    | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
    | `(?P<quoted>(?:[^`]|``)*)` | (?P<word>[\w$]+) | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_NOT_A_COLUMN = frozenset(
    ["INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK", "PARTITION", "IF"]
)

Token = tuple[str, str]  # "quoted", "word" or "mark", and its text


def find_lost_columns(sql: str) -> Iterator[tuple[str, str | None]]:
    """Yield each column that the statement drops or renames, and its new name or None.

    It reports only certain cases. An unknown statement is harmless: if it removed a column, the
    decoder notices the missing column in the next row.
    """
    if len(sql) > limits.QUERY_CHARACTERS_MAX:
        return
    tokens = [
        (match.lastgroup, match[match.lastgroup].replace("``", "`"))
        for match in _TOKENS.finditer(sql)
        if match.lastgroup
    ]
    words = [text.upper() if kind == "word" else "" for kind, text in tokens]
    if words[:1] != ["ALTER"] or "TABLE" not in words[:4]:
        return
    start = words.index("TABLE") + 2  # the table's name, `schema`.`table` or `table`
    if tokens[start : start + 1] == [("mark", ".")]:
        start += 2
    for clause in _clauses(tokens[start:]):
        yield from _find_lost(clause)


def _clauses(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the parts between commas outside of parentheses."""
    clause: list[Token] = []
    depth = 0
    for token in tokens:
        if token == ("mark", "("):
            depth += 1
        elif token == ("mark", ")"):
            depth -= 1
        if token == ("mark", ",") and depth == 0:
            yield clause
            clause = []
        else:
            clause.append(token)
    yield clause


def _find_lost(clause: list[Token]) -> Iterator[tuple[str, str | None]]:
    verb, named = _keyword(clause, 0), _keyword(clause, 1) == "COLUMN"
    names = [text for kind, text in clause[2 if named else 1 :] if kind != "mark"]
    first_is_keyword = not named and _keyword(clause, 1) in _NOT_A_COLUMN
    if verb == "DROP" and names and not first_is_keyword:
        yield names[0], None
    elif verb == "CHANGE" and len(names) > 1 and names[0] != names[1]:
        yield names[0], names[1]
    elif verb == "RENAME" and named and [name.upper() for name in names[1:2]] == ["TO"]:
        yield names[0], names[2] if len(names) > 2 else None


def _keyword(clause: list[Token], index: int) -> str:
    kind, text = clause[index] if index < len(clause) else ("mark", "")
    return text.upper() if kind == "word" else ""
