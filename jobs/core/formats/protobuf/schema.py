"""Parse .proto texts, as a schema registry has them, to the types of messages.

    texts, imported ones first ──► tokens ──► declarations ──► names resolved ──► Schema
                                                               from inside out

This is what decoding needs of the language: packages, messages, enums, fields, oneofs and maps.
Options, services and extensions are skipped. Editions are read with their defaults; a file that
sets features of an edition is refused, and so are groups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jobs.core.formats.registered import SchemaError
from jobs.core.values.json_text import describe
from schemas import limits

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<word>[A-Za-z_.][\w.]*)|(?P<number>[-+]?[0-9][\w.]*)|(?P<error>["'\w]|/\*)"""
    r"""|(?P<mark>[^\s\w])""",
    re.DOTALL,
)
_SIZED = [
    f"{kind}{bits}" for kind in ("int", "uint", "sint", "fixed", "sfixed") for bits in (32, 64)
]
SCALARS = frozenset(["double", "float", "bool", "string", "bytes", *_SIZED])
_LABELS = ("optional", "required", "repeated")
_SKIPPED = ("option", "extend", "service", "import", "syntax", "edition")
_SKIPPED_INSIDE = ("option", "extend", "extensions", "reserved")
# Confluent's serializers register no schema of these files, because every client has them.
_KNOWN = (
    """
syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message DoubleValue { double value = 1; }
message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; }
message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; }
message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; }
message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
""",
    """
syntax = "proto3"; package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
""",
    """
syntax = "proto3"; package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
)


class Field(NamedTuple):
    """A field of a message."""

    name: str
    number: int
    kind: str  # a scalar, or the full name of a message or an enum
    repeated: bool = False
    has_presence: bool = False  # without a value it is NULL, not 0 or empty
    is_map: bool = False


@dataclass(slots=True)
class Message:
    """A type of messages, with those inside it in their order, which a message's bytes name."""

    name: str
    fields: list[Field] = field(default_factory=list)
    inner: list[Message] = field(default_factory=list)

    def field(self, name: str) -> Field | None:
        return next((each for each in self.fields if each.name == name), None)


@dataclass(slots=True)
class Schema:
    """The types of some files by their full names, and the messages of the last file."""

    messages: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)
    roots: list[Message] = field(default_factory=list)

    def find_root(self, path: Sequence[int]) -> Message:
        """Return a message of the last file by its indexes, from outside in."""
        found, among = None, self.roots
        for index in path:
            if not 0 <= index < len(among):
                break
            found, among = among[index], among[index].inner
        else:
            if found is not None:
                return found
        raise SchemaError(f"the schema has no message {list(path)}")


def parse_schema(texts: Sequence[str]) -> Schema:
    """Return the types of some files, of which the last one has the message; raise SchemaError."""
    known, schema = Schema(), Schema()
    for text in _KNOWN:
        _Parser(known, _tokenize(text)).read_file()
    schema.messages.update(known.messages)
    for text in texts:
        schema.roots = []
        _Parser(schema, _tokenize(text)).read_file()
    for message in schema.messages.values():
        message.fields = [_resolve(schema, message.name, each) for each in message.fields]
    schema.messages |= known.messages  # a text may define them too, but their JSON is of these
    if twice := schema.messages.keys() & schema.enums:
        raise SchemaError(f"the schema defines {describe(min(twice))} twice")
    if len(schema.messages) > limits.SCHEMA_TYPES_MAX:
        raise SchemaError(f"the schema has more than {limits.SCHEMA_TYPES_MAX} types")
    return schema


def _tokenize(text: str) -> list[str]:
    tokens = []
    for each in _TOKEN.finditer(text):
        if each.lastgroup == "error":
            reason = (
                f"the schema is not a valid .proto file at {describe(text[each.start() :][:20])}"
            )
            raise SchemaError(reason)
        if each.lastgroup:
            tokens.append(each[0])
    return tokens


def _resolve(schema: Schema, scope: str, of: Field) -> Field:
    """Return a field with the full name of its type: the first one from inside out."""
    if of.kind in SCALARS:
        return of
    wanted, above = of.kind, scope.split(".")
    while not of.kind.startswith("."):
        wanted = ".".join([*above, of.kind])
        if wanted in schema.messages or wanted in schema.enums or not above:
            break
        above.pop()
    wanted = wanted.removeprefix(".")
    if wanted in schema.enums:
        return of._replace(kind=wanted)
    if wanted not in schema.messages:
        raise SchemaError(f"the schema names {describe(of.kind)}, which it does not define")
    return of._replace(kind=wanted, has_presence=not of.repeated)


class _Parser:
    """Reads the tokens of one file."""

    def __init__(self, schema: Schema, tokens: list[str]) -> None:
        self._schema, self._tokens, self._at = schema, tokens, 0
        self._package = ""
        self._presence = tokens[:3] != ["syntax", "=", '"proto3"'] and tokens[:3] != [
            *("syntax", "=", "'proto3'")
        ]
        if any(each.startswith("features.") for each in tokens):
            raise SchemaError("the schema sets features of an edition, which retally does not read")

    def read_file(self) -> None:
        while self._at < len(self._tokens):
            word = self._take()
            if word == "package":
                self._package = self._take()
                self._skip()
            elif word == "message":
                self._schema.roots.append(self._read_message(self._package, 1))
            elif word == "enum":
                self._read_enum(self._package)
            elif word in _SKIPPED:
                self._skip()
            elif word != ";":
                raise SchemaError(f"the schema is not a valid .proto file at {describe(word)}")

    def _take(self, *wanted: str) -> str:
        if self._at >= len(self._tokens):
            raise SchemaError("the schema is not a valid .proto file: it ends too early")
        word = self._tokens[self._at]
        if wanted and word not in wanted:
            raise SchemaError(f"the schema is not a valid .proto file at {describe(word)}")
        self._at += 1
        return word

    def _take_number(self) -> int:
        word = self._take()
        try:
            return int(word, 0)
        except ValueError:
            raise SchemaError(f"the schema has no number at {describe(word)}") from None

    def _skip(self) -> None:
        """Skip the rest of a statement, with the blocks in it."""
        depth = 0
        while True:
            word = self._take()
            depth += (word in "{[(") - (word in "}])")
            if depth == 0 and word in (";", "}"):
                return

    def _read_message(self, scope: str, depth: int) -> Message:
        if depth > limits.MESSAGE_DEPTH_MAX:
            raise SchemaError(f"the schema is nested deeper than {limits.MESSAGE_DEPTH_MAX} levels")
        name = ".".join(filter(None, (scope, self._take())))
        message = self._schema.messages[name] = Message(name)
        self._take("{")
        in_oneof = False
        while True:
            word = self._take()
            if word == "}":
                if not in_oneof:
                    return message
                in_oneof = False
            elif word == "message":
                message.inner.append(self._read_message(name, depth + 1))
            elif word == "enum":
                self._read_enum(name)
            elif word == "oneof":
                self._take()
                self._take("{")
                in_oneof = True
            elif word in _SKIPPED_INSIDE:
                self._skip()
            elif word != ";":
                self._read_field(message, word, in_oneof=in_oneof)

    def _read_field(self, message: Message, word: str, *, in_oneof: bool) -> None:
        label = word if word in _LABELS else ""
        kind = self._take() if label else word
        is_map = kind == "map" and self._tokens[self._at] == "<"
        if kind == "group":
            raise SchemaError("the schema has a group, which retally does not read")
        if is_map:
            kind = self._read_map(message)
        name = self._take()
        self._take("=")
        number = self._take_number()
        self._skip()  # options
        repeated = is_map or label == "repeated"
        has_presence = not repeated and (self._presence or in_oneof or label != "")
        message.fields.append(Field(name, number, kind, repeated, has_presence, is_map))

    def _read_map(self, message: Message) -> str:
        """Return the name of the message that an entry of a map is."""
        self._take("<")
        key = self._take()
        self._take(",")
        value = self._take()
        self._take(">")
        name = f"{message.name}.{len(message.fields)} entry"
        fields = [Field("key", 1, key), Field("value", 2, value)]
        self._schema.messages[name] = Message(name, fields)
        return f".{name}"

    def _read_enum(self, scope: str) -> None:
        name = ".".join(filter(None, (scope, self._take())))
        values = self._schema.enums[name] = {}
        self._take("{")
        while (word := self._take()) != "}":
            if word in _SKIPPED_INSIDE and self._tokens[self._at : self._at + 1] != ["="]:
                self._skip()
            elif word != ";":
                self._take("=")
                values.setdefault(self._take_number(), word)
                self._skip()  # options
