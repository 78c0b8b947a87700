"""Write a FileDescriptorProto in base64, which some clients register, as its .proto text.

base64 ──► bytes ── read_message by the schema of descriptors ──► JSON ──► .proto text
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jobs.core.formats.protobuf.messages import read_message
from jobs.core.formats.protobuf.schema import Schema, parse_schema

_OF_KINDS = """double float int64 uint64 int32 fixed64 fixed32 bool string group message bytes
    uint32 enum sfixed32 sfixed64 sint32 sint64"""
_KINDS = dict(enumerate(_OF_KINDS.split(), 1))
_LABELS = {2: "required ", 3: "repeated "}
_DESCRIPTORS = """
syntax = "proto2";
message File { optional string package = 2; repeated Message message_type = 4;
  repeated Enum enum_type = 5; optional string syntax = 12; }
message Message { optional string name = 1; repeated Field field = 2;
  repeated Message nested_type = 3; repeated Enum enum_type = 4; optional Options options = 7; }
message Options { optional bool map_entry = 7; }
message Field { optional string name = 1; optional int32 number = 3; optional int32 label = 4;
  optional int32 type = 5; optional string type_name = 6; optional int32 oneof_index = 9; }
message Enum { optional string name = 1; repeated Value value = 2; }
message Value { optional string name = 1; optional int32 number = 2; }
"""


def write_proto(schema: str) -> str:
    """Return a schema as .proto text; raise SchemaError or IndexError for other bytes."""
    try:
        value = base64.b64decode(schema, validate=True)
    except (binascii.Error, ValueError):
        return schema  # a .proto text has spaces
    types = _descriptors()
    file = read_message(types, types.messages["File"], value)
    package = [f"package {file['package']};"] if file["package"] else []
    syntax = f'syntax = "{file["syntax"] or "proto2"}";'
    messages = (_write_message(each) for each in file["message_type"])
    return "\n".join([syntax, *package, *_write_enums(file), *messages])


@cache
def _descriptors() -> Schema:
    return parse_schema([_DESCRIPTORS])


def _write_message(of: Mapping[str, Any]) -> str:
    entries = {each["name"]: each for each in of["nested_type"] if _is_entry(each)}
    inner = [_write_message(each) for each in of["nested_type"] if each["name"] not in entries]
    fields = [_write_field(each, entries) for each in of["field"]]
    return "\n".join([f"message {of['name']} {{", *_write_enums(of), *inner, *fields, "}"])


def _is_entry(of: Mapping[str, Any]) -> bool:
    return bool((of["options"] or {}).get("map_entry"))


def _write_field(of: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> str:
    entry = entries.get((of["type_name"] or "").rpartition(".")[2])
    if entry is not None:
        key, value = (_kind(each) for each in entry["field"])
        return f"map<{key}, {value}> {of['name']} = {of['number']};"
    label = _LABELS.get(int(of["label"] or 1), "")
    field = f"{label}{_kind(of)} {of['name']} = {of['number']};"
    if of["oneof_index"] is None:  # `optional` is a oneof of its own
        return field
    return f"oneof of_{of['number']} {{ {field} }}"


def _kind(of: Mapping[str, Any]) -> str:
    return of["type_name"] or _KINDS.get(int(of["type"]), "unknown")


def _write_enums(of: Mapping[str, Any]) -> Iterator[str]:
    for each in of["enum_type"]:
        values = " ".join(f"{value['name']} = {value['number']};" for value in each["value"])
        yield f"enum {each['name']} {{ {values} }}"
