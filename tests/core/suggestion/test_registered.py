"""A suggestion for messages with schemas in a registry: their format, registry, types and key."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest

from jobs.core.formats.registered import FindSchema, UnknownSchemaError
from jobs.core.formats.registry import MessageRules
from jobs.core.job.job_plan import plan_of
from jobs.core.suggestion.spec_text import Suggestion, suggest_spec
from jobs.core.values.change import Changes
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from tests.support.network.protobuf_classes import message_class

CONNECT = "org.apache.kafka.connect.data."
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "shop", "type": ["null", "string"]},
    {
        "name": "price",
        "type": [
            "null",
            {
                "type": "bytes",
                "connect.name": f"{CONNECT}Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            },
        ],
    },
    {"name": "made", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
    {"name": "weight", "type": "double"},
]
VALUE = {"type": "record", "name": "Value", "fields": FIELDS}
SOURCE = [{"name": name, "type": "string"} for name in ("db", "table")]
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", VALUE]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": SOURCE}},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": FIELDS[:1]}
ROW = {"id": 5, "shop": "a", "price": b"\x04\xe2", "made": 10**15, "weight": 0.5}
PROTO = """
    syntax = "proto3"; package shop;
    import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
    enum Kind { NONE = 0; SOME = 1; }
    message Order { int64 id = 1; string shop = 2; google.protobuf.Timestamp made = 3;
      google.protobuf.DoubleValue weight = 4; bool ok = 5; Kind kind = 6; repeated int32 many = 7; }
"""
SCHEMAS = {1: json.dumps(KEY), 2: json.dumps(ENVELOPE), 3: json.dumps(VALUE)}


def finder(texts: dict[int, str]) -> FindSchema:
    def find(number: int) -> tuple[str, ...]:
        if number not in texts:
            raise UnknownSchemaError(f"no schema {number}")
        return (texts[number],)

    return find


FINDERS = {
    "empty": {"avro": finder({}), "protobuf": finder({})},
    "own": {"avro": finder(SCHEMAS), "protobuf": finder({4: PROTO})},
}


def avro(number: int, value: Any) -> bytes:
    written = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(SCHEMAS[number]))
    fastavro.schemaless_writer(written, schema, value)
    return struct.pack(">BI", 0, number) + written.getvalue()


def protobuf() -> bytes:
    made = message_class(PROTO, "shop.Order")(id=1, shop="a", made={"seconds": 1}, kind=1)
    made.weight.value = 0.5
    octets: bytes = struct.pack(">BI", 0, 4) + b"\0" + made.SerializeToString()
    return octets


CHANGE = {"before": None, "after": ROW, "source": {"db": "shop", "table": "orders"}, "op": "c"}
OTHERS = "# Other columns: "


def load(found: Suggestion) -> JobSpec:
    assert found.text is not None, found.reason
    spec = load_spec(found.text)
    plan_of(spec)
    return spec


def must_read(spec: JobSpec, value: bytes) -> None:
    plan, format = plan_of(spec), spec.source.format.removeprefix("debezium-")
    rules = MessageRules.of(spec)
    find = FINDERS["own"][format]
    decoded = rules.decoder(plan.columns, plan.used, find_schema=find).decode(value)
    assert isinstance(decoded, Changes), decoded


def test_a_table_in_avro_gets_its_types_its_key_and_its_registry() -> None:
    message = avro(1, {"id": 5}), avro(2, CHANGE)
    found = suggest_spec("t", "default", [message], None, FINDERS)
    spec = load(found)
    assert (spec.source.format, spec.source.schema_registry) == ("debezium-avro", "own")
    assert (spec.source.database, spec.source.table) == ("^shop$", "^orders$")
    assert spec.primary_key == ("id",)
    kinds = {name: str(kind) for name, kind in spec.columns.items()}
    assert kinds["id"] == "BIGINT"
    assert kinds["price"] == "DECIMAL(38, 2)"
    assert "made TIMESTAMP(6)" in (found.text or "")
    must_read(spec, message[1])


@pytest.mark.parametrize(
    ("value", "format", "others"),
    [
        (avro(3, ROW), "avro", ("made TIMESTAMP(6)",)),
        (protobuf(), "protobuf", ("made TIMESTAMP_LTZ(6)", "ok BOOLEAN", "many STRING")),
    ],
)
def test_plain_rows_are_suggested_by_their_schema(
    value: bytes, format: str, others: tuple[str, ...]
) -> None:
    found = suggest_spec("t", "default", [(None, value)], None, FINDERS)
    spec = load(found)
    assert (spec.source.format, spec.source.schema_registry) == (format, "own")
    assert spec.primary_key is None
    assert all(each in (found.text or "") for each in others), found.text
    assert str(spec.columns["weight"]) == "DOUBLE"
    must_read(spec, value)


def test_messages_whose_schema_nobody_knows_have_the_reason() -> None:
    unknown = b"\0\0\0\0\x09\2"
    found = suggest_spec("t", "default", [(None, unknown)], None, FINDERS)
    assert "no schema 9" in (found.reason or "")
    found = suggest_spec("t", "default", [(None, unknown)])
    assert "the connections file names none" in (found.reason or "")


def test_json_after_the_header_of_a_registry_is_json() -> None:
    value = struct.pack(">BI", 0, 7) + b'{"a": 1, "b": "x"}'
    spec = load(suggest_spec("t", "default", [(None, value)], None, FINDERS))
    assert (spec.source.format, spec.source.schema_registry) == ("json", None)
