"""Generate the code that reads the columns of usual Avro messages of one schema.

    before: [null, Value] ──► branch = value[at] ..   before0, before1, ..   a local for each column
    source: {.., ts_ms}   ──► at += ..                es                     others are skipped
    op, ts_ms             ──► at += ..                op, ts

The code has no name of a schema or spec in it. It raises for what it does not expect, and the
exact path then decodes the message. The lengths of values are checked once, at the end: a value
that is longer than the message ends beyond it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import UNSET

from jobs.core.formats.avro_schema import WHOLE, Node, read_long, read_size, read_value, to_json
from jobs.core.formats.debezium_fields import (
    DAYS,
    MICROSECONDS,
    UNAVAILABLE,
    UNITS_US,
    DebeziumFields,
)
from jobs.core.formats.registered import SchemaError
from jobs.core.formats.row_fields import Memo, compile_decoder, indent
from jobs.core.values.float_values import canonical_float
from schemas import limits
from schemas.types.sql_types import BIGINT, Kind, integer_range

_HASHABLE = (*WHOLE, "string", "bytes", "fixed", "enum")
_FLOATS = {"float": ("<f", 4), "double": ("<d", 8)}
# Of the first byte: a whole number, and the bytes of a text with its length; 0: see there.
_SMALL = tuple(raw >> 1 ^ -(raw & 1) for raw in range(128))
_SHORT_SIZES = bytes([(1 + each // 2) * (each % 2 == 0 and each < 128) for each in range(256)])
# The bytes of milliseconds since 1970, until 2039, and the bits that are in the first two.
_TIME_BYTES, _LOW = 6, (1 << 13) - 1
_LONG_BYTES = 10  # of a number that may have more than 64 bits
_BRANCHES_MAX = 64  # whose numbers have one byte; messages of others take the exact path
Lines = Iterator[str]


def _long_lines() -> Lines:
    """Yield the code of `read_long`, unrolled: a time has six bytes or eight, and each has some."""
    yield from ("def decode(value, at):", "    raw = value[at]")
    marks = 1 << 7  # the upper bits of the bytes before, which say that another one follows
    for number in range(1, 9):
        shift = 7 * number
        yield from (f"    byte = value[at + {number}]", f"    raw += byte << {shift}")
        yield f"    if byte < 128: raw -= {marks}; return raw >> 1 ^ -(raw & 1), at + {number + 1}"
        marks += 1 << shift + 7
    yield "    return read_long(value, at)"


_READ_LONG: Any = compile_decoder(_long_lines(), {"read_long": read_long})


class _Times:
    """Parts of times by their bytes: the lower two, and the others, which last eight seconds.

    Decoding six bytes one by one costs twice as much as looking both up."""

    def __init__(self) -> None:
        self.lows: dict[bytes, int] = {}
        self.highs: dict[bytes, int] = {}

    def read(self, value: bytes, at: int) -> tuple[int, int]:
        """Return a number, and where it ends; remember its parts if it has six bytes."""
        number, end = read_long(value, at)
        if number >= 0 and end - at == _TIME_BYTES:
            if len(self.highs) >= limits.MESSAGE_TIMES_CACHED_MAX:
                self.highs.clear()
            low = number & _LOW
            self.lows[value[at : at + 2]], self.highs[value[at + 2 : end]] = low, number - low
        return number, end


class MessageCode:
    """The lines of code for messages of a schema, and the names that they use."""

    def __init__(self, fields: DebeziumFields, tables: tuple[str, ...]) -> None:
        self._fields, self._tables = fields, tables
        times = _Times()
        self.names: dict[str, object] = {
            "UNSET": UNSET,
            "canonical_float": canonical_float,
            "read_long": _READ_LONG,
            "read_size": read_size,
            "read_value": read_value,
            "low_of": times.lows.get,
            "high_of": times.highs.get,
            "read_time": times.read,
            "small": _SMALL,
            "short_sizes": _SHORT_SIZES,
            "unavailable": UNAVAILABLE,
            "unavailable_bytes": UNAVAILABLE.encode(),
        }

    @property
    def plus(self) -> str:
        """The code of the inserted row."""
        return f"(1, {self._fields.tuple_code('after')})"

    @property
    def minus(self) -> str:
        """The code of the deleted row."""
        return f"(-1, {self._fields.tuple_code('before')})"

    def set_missing(self, names: Iterable[str]) -> Lines:
        """Yield lines for names that a message may lack."""
        return (f"{name} = UNSET" for name in names)

    def read_envelope(self, node: Node) -> Lines:
        """Yield lines that read a message of Debezium."""
        members = {
            "before": lambda part: self._read_row("before", part),
            "after": lambda part: self._read_row("after", part),
            "source": self._read_source,
            "op": lambda part: self._read_text("op", part),
            "ts_ms": lambda part: self._read_time("ts", part),
        }
        yield from self._read_members(node, members)
        yield "if at != len(value): raise ValueError('size')"

    def read_row(self, image: str, node: Node) -> Lines:
        """Yield lines that read a message that is a row."""
        yield from self._read_row(image, node)
        yield "if at != len(value): raise ValueError('size')"

    def _read_members(self, node: Node, known: dict[str, Callable[[Node], Lines]]) -> Lines:
        if node.kind != "record":
            raise SchemaError("the message is no record")
        for label, part in zip(node.labels, node.parts, strict=True):
            yield from self._read_branches(part, known.get(label, self._skip))

    def _read_branches(self, node: Node, read: Callable[[Node], Lines]) -> Lines:
        if node.kind != "union":
            yield from read(node)
            return
        yield from ("branch = value[at]", "at += 1")
        for number, part in enumerate(node.parts[:_BRANCHES_MAX]):
            yield f"{'elif' if number else 'if'} branch == {2 * number}:"
            yield from indent(4, ("pass", *self._read_branches(part, read)))
        yield "else: raise ValueError('branch')"

    def _read_source(self, node: Node) -> Lines:
        if node.kind != "record":
            return self._skip(node)
        known: dict[str, Callable[[Node], Lines]] = {
            "ts_ms": lambda part: self._read_time("es", part)
        }
        for name in self._tables:
            known[name] = lambda part, name=name: self._read_text(name, part)  # type: ignore[misc]
        return self._read_members(node, known)

    def _read_text(self, target: str, node: Node) -> Lines:
        yield from self._read_scalar(node)
        yield f"{target} = raw"

    def _read_time(self, target: str, node: Node) -> Lines:
        if node.kind not in WHOLE:
            yield from self._skip(node)
            return
        yield f"low, high = low_of(value[at:at + 2]), high_of(value[at + 2:at + {_TIME_BYTES}])"
        yield f"if low is None or high is None: {target}, at = read_time(value, at)"
        yield f"else: {target}, at = low + high, at + {_TIME_BYTES}"

    def _read_row(self, image: str, node: Node) -> Lines:
        if node.kind == "null":
            return
        columns = {column.name: index for index, column in enumerate(self._fields.columns)}
        known: dict[str, Callable[[Node], Lines]] = {}
        for name, index in columns.items():
            if node.field(name) is None:
                if not self._fields.missing_is_null:
                    raise SchemaError("the schema lacks a column")
                yield f"{image}{index} = None"
            known[name] = lambda part, index=index: self._read_column(  # type: ignore[misc]
                f"{image}{index}", index, part
            )
        yield from self._read_members(node, known)
        yield f"{image} = True"

    def _read_column(self, target: str, index: int, node: Node) -> Lines:
        fits = node.kind in WHOLE and self._fields.columns[index].type == BIGINT
        if fits and index not in self._fields.used_indexes:
            yield from self._skip(node)
            return
        yield from self._read_scalar(node)
        if node.kind != "null" and not fits:
            yield from self._convert(index, node)
        yield f"{target} = raw"

    def _convert(self, index: int, node: Node) -> Lines:
        """Yield lines from `raw`, which is not NULL, to the value of a column."""
        sql_type, (form, scale) = self._fields.columns[index].type, self._fields.encodings[index]
        kind, convert = sql_type.kind, self._fields.converters[index]
        is_used = index in self._fields.used_indexes
        wanted: tuple[int, int] | None = None
        factor = 1
        if node.kind in WHOLE:
            instant = kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ) and not sql_type.textual_time
            if sql_type.integer:
                wanted = integer_range(sql_type)
            elif kind is Kind.DATE and form in ("days", "iso"):
                wanted = DAYS
            elif instant and form in UNITS_US:
                factor = UNITS_US[form]
                wanted = -(-MICROSECONDS[0] // factor), MICROSECONDS[1] // factor
        if wanted is not None:
            yield f"if not {wanted[0]} <= raw <= {wanted[1]}: raise ValueError('range')"
            if factor > 1:
                yield f"raw *= {factor}"
        elif (kind, node.kind) == (Kind.STRING, "string"):
            yield "if raw == unavailable: raise ValueError('unavailable')"
        elif (kind, node.kind) == (Kind.BINARY, "bytes"):
            yield "if raw == unavailable_bytes: raise ValueError('unavailable')"
        elif (kind, node.kind) == (Kind.DOUBLE, "double"):
            yield "raw = canonical_float(raw)"
        elif (kind, node.kind) == (Kind.BOOLEAN, "boolean"):
            return
        elif node.kind in ("bytes", "fixed") and form == "base64" and scale == sql_type.scale:
            bound = 10 ** (sql_type.precision or 0)
            lines = [
                "if not raw: raise ValueError('empty')",
                "raw = int.from_bytes(raw, 'big', signed=True)",
                f"if not {-bound} < raw < {bound}: raise ValueError('digits')",
            ]
            if not is_used:  # so many bytes always fit
                lines = [f"if not 0 < len(raw) <= {bound.bit_length() // 8}:", *indent(4, lines)]
            yield from lines
        elif node.kind in _HASHABLE:
            entries = max(1, limits.MEMO_ENTRIES_MAX // len(self._fields.columns))
            memo = Memo(lambda raw: convert(to_json(node, raw)), entries)
            yield f"raw = {self._bind(memo)}[raw]"
        else:
            yield f"raw = {self._bind(lambda raw: convert(to_json(node, raw)))}(raw)"

    def _read_scalar(self, node: Node) -> Lines:
        """Yield lines that set `raw` to a value; of a type with parts, as JSON has it."""
        kind = node.kind
        if kind == "null":
            yield "raw = None"
        elif kind == "boolean":
            yield from ("raw = value[at] != 0", "at += 1")
        elif kind in WHOLE:
            yield "raw = value[at]"
            yield "if raw < 128: raw, at = small[raw], at + 1"
            yield "else: raw, at = read_long(value, at)"
        elif kind in _FLOATS:
            form, size = _FLOATS[kind]
            yield f"raw, = {self._bind(struct.Struct(form).unpack_from)}(value, at)"
            yield f"at += {size}"
        elif kind in ("string", "bytes", "fixed"):
            if kind == "fixed":
                yield f"start, at = at, at + {node.size}"
            else:
                yield "size = short_sizes[value[at]]"
                yield "if size: start, at = at + 1, at + size"
                yield "else: size, start = read_size(value, at); at = start + size"
            yield f"raw = value[start:at]{'.decode()' if kind == 'string' else ''}"
        else:
            yield f"raw, at = read_value({self._bind(node)}, value, at)"

    def _skip(self, node: Node) -> Lines:
        kind = node.kind
        if kind in WHOLE:
            yield from ("start = at", "while value[at] > 127: at += 1", "at += 1")
            yield f"if at - start >= {_LONG_BYTES}: read_long(value, start)"
        elif kind in ("string", "bytes"):
            yield "at += short_sizes[value[at]] or sum(read_size(value, at)) - at"
        elif kind == "record":
            yield from self._read_members(node, {})
        elif kind in ("enum", "array", "map"):
            yield f"_, at = read_value({self._bind(node)}, value, at)"
        elif kind != "null":
            yield f"at += {_FLOATS[kind][1] if kind in _FLOATS else node.size or 1}"

    def _bind(self, value: object) -> str:
        name = f"x{len(self.names)}"
        self.names[name] = value
        return name
