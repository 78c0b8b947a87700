"""Protobuf is read as Google's own library reads it; .proto texts as protoc compiles them."""

from __future__ import annotations

import base64
import re
import struct
import time
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.protobuf import decoder as protobuf_decoder
from jobs.core.formats.protobuf.decoder import ProtobufDecoder
from jobs.core.formats.protobuf.descriptors import write_proto
from jobs.core.formats.protobuf.messages import read_message
from jobs.core.formats.protobuf.schema import parse_schema
from jobs.core.formats.registered import SchemaError, UnknownSchemaError
from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.formats.row_fields import compile_decoder
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, ColumnGone, RejectCode, Rejected, Skipped
from jobs.core.values.json_text import JsonNumber
from schemas import limits
from schemas.types.sql_types import SqlType
from tests.support.examples import examples
from tests.support.network.protobuf_classes import message_class

SIZED = ("int", "uint", "sint", "fixed", "sfixed")
KINDS = ["double", "float", *(f"{kind}{bits}" for kind in SIZED for bits in (32, 64))]
KINDS += ["bool", "string", "bytes"]
EVERY_KIND = "\n".join(
    f"{kind} a_{kind} = {at}; optional {kind} b_{kind} = {at + 50}; repeated {kind} c_{kind} = "
    f"{at + 100}; repeated {kind} d_{kind} = {at + 150} {unpacked};"
    for at, kind in enumerate(KINDS, 1)
    for unpacked in ["" if kind in ("string", "bytes") else "[packed = false]"]
)
EVERYTHING = f"""
    // Comments, options and services say nothing about bytes.
    syntax = "proto3";
    package shop.v1;
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    option java_package = "com.shop"; option (own) = {{ a: "}}" }};
    import "google/protobuf/descriptor.proto";
    extend google.protobuf.FileOptions {{ Own own = 50000; }}
    message Own {{ string a = 1; }}
    message Empty {{ reserved 1, 4 to 6, 100 to max; reserved "a", 'b'; }}
    message All {{
        option deprecated = true;
        {EVERY_KIND}
        enum Color {{ option allow_alias = true; NONE = 0; RED = 1 [deprecated = true]; ROT = 1;
                      DARK = -5; }}
        Color color = 201; optional Color maybe = 202; repeated Color colors = 203;
        message Inner {{ int32 x = 1; Inner child = 2; .shop.v1.All.Color own = 3; }}
        Inner inner = 204; repeated v1.All.Inner inners = 205; Empty empty = 206;
        oneof choice {{ int32 left = 207; string right = 208 [json_name = "rechts"]; }}
        map<string, int64> counts = 209; map<bool, Inner> by_flag = 210;
        google.protobuf.Timestamp at = 211; google.protobuf.Int64Value number = 212;
        google.protobuf.StringValue text = 213; google.protobuf.BoolValue flag = 214;
    }}
    service Things {{
        rpc Get(Empty) returns (stream All) {{ option idempotency_level = NO_SIDE_EFFECTS; }}
    }}
"""


OLD = """
    syntax = "proto2";
    enum Size { SMALL = 1; LARGE = 2; }
    message Old { required int64 id = 1; optional Size size = 2; repeated string tags = 3; }
"""


def same(ours: Any, theirs: Any) -> bool:
    """Return whether our JSON is that of Google's library, which omits what is absent."""
    if isinstance(ours, dict):
        assert isinstance(theirs, dict)
        left = theirs.keys() - ours.keys()
        absent = [ours[name] for name in ours.keys() - theirs.keys()]
        return (
            not left
            and all(each is None or each in ([], {}) for each in absent)
            and all(same(ours[name], theirs[name]) for name in theirs)
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, JsonNumber):
        return float(ours) == float(theirs) or struct.pack("<f", float(ours)) == struct.pack(
            "<f", float(theirs)
        )
    return bool(ours == theirs)


SCHEMA = parse_schema([EVERYTHING])


def test_a_descriptor_in_base64_is_the_file_that_it_was_made_from() -> None:
    """Some clients register it, and some registries answer with it."""
    for text, name in ((EVERYTHING, "shop.v1.All"), (OLD, "Old")):
        file = message_class(text, name).DESCRIPTOR.file.serialized_pb
        proto = write_proto(base64.b64encode(file).decode())
        assert parse_schema([proto]) == parse_schema([text])
    assert write_proto(EVERYTHING) == EVERYTHING
    for cut in range(0, len(file), 7):
        with suppress(SchemaError, IndexError):
            parse_schema([write_proto(base64.b64encode(file[:cut]).decode())])


INTEGERS = {
    kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if kind[0] in "is" and not kind.startswith("u")
    else st.integers(0, 2**bits - 1)
    for kind in KINDS
    for bits in [64 if kind.endswith("64") else 32]
    if kind[-1].isdigit()
}
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **INTEGERS,
    "double": st.floats(),
    "float": st.floats(width=32),
    "bool": st.booleans(),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


@st.composite
def messages(draw: st.DrawFn) -> Any:
    made = message_class(EVERYTHING, "shop.v1.All")()
    for kind in draw(st.lists(st.sampled_from(KINDS), max_size=5, unique=True)):
        values = SCALARS[kind]
        for form in draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True)):
            name = f"{form}_{kind}"
            if form in "ab":
                setattr(made, name, draw(values))
            else:
                getattr(made, name).extend(draw(st.lists(values, max_size=3)))
    color = st.sampled_from([0, 1, -5, 7, -(2**31)])
    made.color = draw(color)
    made.colors.extend(draw(st.lists(color, max_size=2)))
    if draw(st.booleans()):
        made.maybe = draw(color)
        made.inner.child.child.x = draw(SCALARS["int32"])
        made.inners.add(x=1, own=1)
        made.empty.SetInParent()
        made.by_flag[True].x = 3
        made.by_flag[False].SetInParent()
    if draw(st.booleans()):
        setattr(made, *draw(st.sampled_from([("left", 0), ("left", 5), ("right", "ü")])))
        made.counts.update(
            draw(st.dictionaries(st.text(max_size=3), INTEGERS["int64"], max_size=3))
        )
        made.at.seconds = draw(st.integers(-62_135_596_800, 253_402_300_799))
        made.at.nanos = draw(st.sampled_from([0, 500_000_000, 1, 999_999_999]))
        made.number.value = draw(INTEGERS["int64"])
        made.flag.SetInParent()
        made.text.value = draw(st.text(max_size=3))
    return made


def as_json(message: Any) -> Any:
    found = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    if "at" in found:  # theirs have 0, 3, 6 or 9 digits, ours those that they need
        whole, _, fraction = found["at"].removesuffix("Z").partition(".")
        fraction = fraction.rstrip("0")
        found["at"] = f"{whole}.{fraction}Z" if fraction else f"{whole}Z"
    return found


@given(messages())
@examples(300)
def test_any_message_is_the_json_of_googles_library(sent: Any) -> None:
    root = SCHEMA.find_root([2])
    assert root.name == "shop.v1.All"
    assert same(read_message(SCHEMA, root, sent.SerializeToString()), as_json(sent))


@given(messages(), messages())
@examples(100)
def test_messages_one_after_the_other_are_merged(one: Any, other: Any) -> None:
    """The last value counts, repeated fields add up, and messages inside are merged.

    Of a oneof, whose members Google's library clears for another one, each has its value."""
    one.ClearField(one.WhichOneof("choice") or "left")
    octets = one.SerializeToString() + other.SerializeToString()
    merged = type(one).FromString(octets)
    assert same(read_message(SCHEMA, SCHEMA.find_root([2]), octets), as_json(merged))


@given(messages(), st.data())
@examples(300)
def test_damaged_bytes_are_refused_where_googles_library_refuses_them(
    sent: Any, data: st.DataObject
) -> None:
    octets = sent.SerializeToString()
    start = data.draw(st.integers(0, len(octets)))
    piece = data.draw(st.binary(max_size=6))
    octets = octets[:start] + piece + octets[start + data.draw(st.integers(0, 6)) :]
    try:
        ours = read_message(SCHEMA, SCHEMA.find_root([2]), octets)
    except (SchemaError, IndexError):
        return  # it may refuse more: groups
    try:
        theirs = as_json(type(sent).FromString(octets))
    except Exception:  # ours may take texts that are no UTF-8, which a column then refuses
        return
    assert same(ours, theirs) or "NaN" in repr(theirs)


def test_a_value_of_another_wire_type_is_an_unknown_field() -> None:
    text = 'syntax = "proto3"; message Row { int64 a = 1; fixed32 b = 2; repeated int64 c = 3; }'
    octets = b"\x0a\1\7\x12\4\1\0\0\0\x1a\2\1\2\x18\3"
    schema = parse_schema([text])
    read = read_message(schema, schema.find_root([0]), octets)
    assert same(read, as_json(message_class(text, "Row").FromString(octets)))
    assert read == {"a": "0", "b": "0", "c": ["1", "2", "3"]}
    own = decoder(text, "protobuf", (Column("a", SqlType.parse("BIGINT")),))
    sent = b"\0\0\0\0\7\0" + octets
    assert own.decode(sent) == own.explain(sent) == Changes([(1, (0,))])


PROTO2 = """
    package p; enum Side { LEFT = 1; RIGHT = 2; }
    message Row { required int32 id = 1; optional string name = 2 [default = "x;]"]; repeated
    int32 many = 3 [packed = true]; optional Side side = 4; extensions 100 to 199;
    extend Row { optional int32 more = 100; } }
    extend Row { optional string other = 101; }
"""


def test_a_file_of_proto2_has_presence_everywhere() -> None:
    made = message_class(PROTO2, "p.Row")(id=0, many=[1, 300])
    schema = parse_schema([PROTO2])
    read = read_message(schema, schema.find_root([0]), made.SerializeToString())
    assert read == {"id": "0", "name": None, "many": ["1", "300"], "side": None}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message A { B b = 1; }", "names 'B', which it does not define"),
        ("message A { optional group G = 1 { } }", "group"),
        ('edition = "2023"; option features.field_presence = IMPLICIT;', "features"),
        ("message A { int32 x = ; }", "no number at ';'"),
        ("message A { int32 x", "ends too early"),
        ("lorem ipsum", "not a valid .proto file at 'lorem'"),
        ("message A {" * 80, "nested deeper"),
        ("enum A { X = 0; } message A { }", "defines 'A' twice"),
    ],
)
def test_a_schema_that_cannot_be_read_has_its_reason(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        parse_schema([text])


@pytest.mark.parametrize("broken", ['\\"', "\\'", "/*", "é"])
def test_a_schema_with_an_open_end_is_refused_at_once(broken: str) -> None:
    began = time.process_time()
    with pytest.raises(SchemaError, match=f"at .*{re.escape(broken[-1])}"):
        parse_schema(["/* */ ; " + f"{broken}\n" * 50_000])
    assert time.process_time() - began < 2


# --- rows ---------------------------------------------------------------------------------------


ORDER = """
    syntax = "proto3"; package shop;
    import "google/protobuf/timestamp.proto"; import "google/type/date.proto";
    import "confluent/type/decimal.proto";
    message Other {}
    message Outer { message Order {
      int64 id = 1; optional string name = 2; confluent.type.Decimal price = 3;
      google.protobuf.Timestamp seen = 4; google.type.Date day = 5; double weight = 6; bool ok = 7;
    } }
"""
TYPES = {
    "id": "BIGINT",
    "name": "STRING",
    "price": "DECIMAL(10, 2)",
    "seen": "TIMESTAMP(6)",
    "day": "DATE",
    "weight": "DOUBLE",
    "ok": "BOOLEAN",
}
COLUMNS = tuple(Column(name, SqlType.parse(kind)) for name, kind in TYPES.items())


def decoder(
    text: str, format: str, columns: tuple[Column, ...] = COLUMNS, **rules: Any
) -> MessageDecoder:
    def find(number: int) -> tuple[str, ...]:
        if number != 7:
            raise UnknownSchemaError(f"no schema {number}")
        return (text,)

    return MessageRules(format, **rules).decoder(columns, columns, find_schema=find)


def plain_message() -> bytes:
    """Return an Order, whose fields other libraries of the schema define, by its bytes."""
    known = ORDER.replace('import "google/type/date.proto";', "").replace(
        'import "confluent/type/decimal.proto";', ""
    )
    known = known.replace("confluent.type.Decimal", "Decimal").replace("google.type.Date", "Day")
    known += "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    known += "message Day { int32 year = 1; int32 month = 2; int32 day = 3; }"
    made = message_class(known, "shop.Outer.Order")(id=5, weight=0.5, ok=True)
    made.price.value, made.price.scale = (1_250).to_bytes(2, "big"), 2
    made.seen.seconds, made.seen.nanos = 10**9, 1_000
    made.day.year, made.day.month, made.day.day = 2020, 5, 13
    octets: bytes = made.SerializeToString()
    return octets


def test_a_plain_row_is_an_insert_by_the_indexes_of_its_message() -> None:
    sent = b"\0\0\0\0\7" + b"\4\2\0" + plain_message()  # [1, 0]
    decoded = decoder(ORDER, "protobuf").decode(sent)
    row = (5, None, 1_250, 10**15 + 1, 18_395, 0.5, True)
    assert decoded == Changes([(1, row)])


def test_a_column_that_the_schema_lacks_stops_or_is_null() -> None:
    sent = b"\0\0\0\0\7\0"  # the first message, which has no fields
    assert isinstance(decoder(ORDER, "protobuf").decode(sent), ColumnGone)
    decoded = decoder(ORDER, "protobuf", missing_is_null=True).decode(sent)
    assert decoded == Changes([(1, (None,) * len(COLUMNS))])


KNOWN_AGAIN = """
    syntax = "proto2"; package google.protobuf;
    message Timestamp { optional int64 seconds = 1; }
    message StringValue { optional int64 id = 1; optional string value = 2; }
    message Row { optional int64 id = 1; optional Timestamp seen = 2; }
    message Envelope { optional StringValue after = 1; optional string op = 2; }
"""


def test_a_schema_may_define_types_again_whose_json_is_known() -> None:
    """Below the root they are those that every client has; a root is a row, whatever its name."""
    id, seen = (Column(name, SqlType.parse(TYPES[name])) for name in ("id", "seen"))
    row = decoder(KNOWN_AGAIN, "protobuf", (id,))
    assert row.decode(b"\0\0\0\0\7\2\2\x08\5") == Changes([(1, (5,))])
    row = decoder(KNOWN_AGAIN, "protobuf", (id, seen))
    for sent in (b"\x08\5\x12\2\x08\1", b"\x08\5\x12\0\x12\2\x08\1"):
        sent = b"\0\0\0\0\7\2\4" + sent
        assert row.decode(sent) == row.explain(sent) == Changes([(1, (5, 10**6))])
    envelope = decoder(KNOWN_AGAIN, "debezium-protobuf", (id,))
    for column in (id, seen):
        envelope = decoder(KNOWN_AGAIN, "debezium-protobuf", (column,), missing_is_null=True)
        sent = b"\0\0\0\0\7\2\6\x0a\2\x08\5\x12\1c"
        assert envelope.decode(sent) == envelope.explain(sent) == Changes([(1, (None,))])


ENVELOPE = """
    syntax = "proto3";
    message Envelope { Value before = 1; Value after = 2; Source source = 3; string op = 4;
      optional int64 ts_ms = 5; }
    message Value { optional int64 id = 1; optional string price = 2; optional int64 seen = 3; }
    message Source { string db = 1; string table = 2; int64 ts_ms = 3; }
"""
OWN = (
    Column("id", SqlType.parse("BIGINT")),
    Column("price", SqlType.parse("DECIMAL(10, 2)")),
    Column("seen", SqlType.parse("TIMESTAMP(6)")),
)


def change(**members: Any) -> bytes:
    made = message_class(ENVELOPE, "Envelope")(
        source={"db": "shop", "table": "p", "ts_ms": 7}, ts_ms=8, **members
    )
    octets: bytes = made.SerializeToString()
    return b"\0\0\0\0\7\0" + octets


def test_an_envelope_has_the_changes_of_debezium_json() -> None:
    own = decoder(ENVELOPE, "debezium-protobuf", OWN, table="p")
    before, after = {"id": 1, "price": "1.50", "seen": 10**15}, {"id": 1, "price": "-2"}
    decoded = own.decode(change(op="u", before=before, after=after))
    assert decoded == Changes([(-1, (1, 150, 10**15)), (1, (1, -200, None))], 7, 8)
    deleted = own.decode(change(op="d", before=before))
    assert deleted == Changes([(-1, (1, 150, 10**15))], 7, 8)
    assert isinstance(own.decode(None), Skipped)
    rejected = own.decode(change(op="u", after=after))
    assert isinstance(rejected, Rejected)
    assert "cannot be retracted" in rejected.reason


IMAGES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "price": st.sampled_from(["1.50", "-2", "x"]),
        "seen": st.integers(-(10**18), 10**18),
    },
)


@pytest.mark.parametrize("last_images", [False, True])
@given(data=st.data())
@examples(300)
def test_usual_and_damaged_messages_are_what_the_exact_path_says(
    last_images: bool, data: st.DataObject
) -> None:
    images = {"before": data.draw(IMAGES), "after": data.draw(IMAGES)}
    sent = change(op=data.draw(st.sampled_from("crudx")), **images)
    if data.draw(st.booleans()):
        start = data.draw(st.integers(5, len(sent)))
        piece = data.draw(st.binary(max_size=4))
        sent = sent[:start] + piece + sent[start + data.draw(st.integers(0, 4)) :]
    elif data.draw(st.booleans()):
        sent += change(op="c", after=data.draw(IMAGES))[6:]  # messages are merged
    table = data.draw(st.sampled_from([None, "p", "q"]))
    own = decoder(ENVELOPE, "debezium-protobuf", OWN, table=table, last_images=last_images)
    assert own.decode(sent) == own.explain(sent)


@given(messages())
@examples(200)
def test_rows_of_every_kind_are_what_the_exact_path_says(sent: Any) -> None:
    kinds = {"float": "FLOAT", "double": "DOUBLE", "bool": "BOOLEAN", "bytes": "BINARY"}
    types = {
        f"{form}_{kind}": kinds.get(kind, "STRING" if kind == "string" else "BIGINT")
        for kind in KINDS
        for form in "ab"
    }
    types |= {"color": "STRING", "maybe": "STRING", "number": "BIGINT", "at": "TIMESTAMP(9)"}
    columns = tuple(Column(name, SqlType.parse(kind)) for name, kind in types.items())
    own = decoder(EVERYTHING, "protobuf", columns)
    octets = b"\0\0\0\0\7\2\4" + sent.SerializeToString()
    assert repr(own.decode(octets)) == repr(own.explain(octets))


def test_usual_messages_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    own = decoder(ENVELOPE, "debezium-protobuf", OWN)
    monkeypatch.setattr(ProtobufDecoder, "explain", lambda *_: pytest.fail("the exact path"))
    images = {"before": {"id": -1, "price": "1.50"}, "after": {"id": 2**40, "seen": 10**15}}
    decoded = own.decode(change(op="u", **images))
    assert decoded == Changes([(-1, (-1, 150, None)), (1, (2**40, None, 10**15))], 7, 8)


@pytest.mark.parametrize(
    ("value", "reason", "code"),
    [
        (b'{"op": "c"}', "does not start with 0", RejectCode.MESSAGE),
        (b"\0\0\0\0\7", "ends within", RejectCode.MESSAGE),
        (b"\0\0\0\0\x08\0", "no schema 8", RejectCode.SCHEMA),
        (b"\0\0\0\0\7\4\2\4", r"no message \[1, 2\]", RejectCode.MESSAGE),
        (b"\0\0\0\0\7\1", "names no type", RejectCode.MESSAGE),
        (b"\0\0\0\0\7\2\3", "names no type", RejectCode.MESSAGE),
        (b"\0\0\0\0\7\x82\0\2", "names no type", RejectCode.MESSAGE),
        (b"\0\0\0\0\7\2\x82\x80\0", "names no type", RejectCode.MESSAGE),
        (b"\0\0\0\0\7\0\x0a\xff", "ends within", RejectCode.MESSAGE),
        (b"\0\0\0\0\7\0\x0b", "group", RejectCode.MESSAGE),
        (b"\0\0\0\0\7\0" + b"\xff" * 12, "more than 64 bits", RejectCode.MESSAGE),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    value: bytes, reason: str, code: RejectCode
) -> None:
    decoded = decoder(ENVELOPE, "debezium-protobuf", OWN).decode(value)
    assert isinstance(decoded, Rejected)
    assert re.search(reason, decoded.reason), decoded.reason
    assert decoded.code is code


def test_a_message_may_contain_itself_but_not_for_ever() -> None:
    text = 'syntax = "proto3"; message Tree { int32 id = 1; Tree child = 2; }'
    octets = b"\x08\1"
    for _ in range(80):
        octets = b"\x12" + encode(len(octets)) + octets
    columns: tuple[Column, ...] = (Column("id", SqlType.parse("INT")),)
    sent = b"\0\0\0\0\7\0" + octets
    assert decoder(text, "protobuf", columns).decode(sent) == Changes([(1, (0,))])  # nothing in it
    columns += (Column("child", SqlType.parse("STRING")),)
    decoded = decoder(text, "protobuf", columns).decode(sent)
    assert isinstance(decoded, Rejected)
    assert "deeper" in decoded.reason


IMPLICIT = """
    syntax = "proto3";
    message Row { string day = 1; string price = 2; bytes amount = 3; string seen = 4; }
"""


def test_columns_that_have_no_value_without_their_field_compile_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An implicit field that is absent is "", which is no date and no decimal."""
    compiled = []

    def count(*given: Any) -> Any:
        compiled.append(given)
        return compile_decoder(*given)

    monkeypatch.setattr(protobuf_decoder, "compile_decoder", count)
    kinds = {"day": "DATE", "price": "DECIMAL(10, 2)", "amount": "DECIMAL(10, 2)"}
    kinds["seen"] = "TIMESTAMP(6)"
    columns = tuple(Column(name, SqlType.parse(kind)) for name, kind in kinds.items())
    own = decoder(IMPLICIT, "protobuf", columns)
    made = message_class(IMPLICIT, "Row")(day="2020-05-13", price="1.50", amount=b"\1")
    for seen in ("", "1970-01-01T00:00:01Z", ""):
        made.seen = seen
        sent = b"\0\0\0\0\7\0" + made.SerializeToString()
        decoded = own.decode(sent)
        assert decoded == own.explain(sent)
        assert isinstance(decoded, Changes) is bool(seen)
        assert len(compiled) == 1
    monkeypatch.setattr(ProtobufDecoder, "explain", lambda *_: pytest.fail("the exact path"))
    made.seen = "1970-01-01T00:00:01Z"
    row = (18_395, 150, 1, 10**6)
    assert own.decode(b"\0\0\0\0\7\0" + made.SerializeToString()) == Changes([(1, row)])


def test_a_message_has_no_more_values_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes may be a message of all its fields, and one byte a value of a packed field."""
    monkeypatch.setattr(limits, "MESSAGE_VALUES_MAX", 1_000)
    fields = "".join(f"int64 f{number} = {number};" for number in range(1, 101))
    text = f"""
        syntax = "proto3"; message Row {{ Many many = 1; }}
        message Many {{ repeated Wide wide = 1; repeated int64 packed = 2; }}
        message Wide {{ {fields} }}
    """
    own = decoder(text, "protobuf", (Column("many", SqlType.parse("STRING")),))
    few = b"\x0a\0" * 4
    for many in (
        few,
        few * 5,
        few + b"\x12\x64" + b"\1" * 100,
        few + b"\x12\xe8\7" + b"\1" * 1_000,
    ):
        sent = b"\0\0\0\0\7\0\x0a" + encode(len(many)) + many
        decoded = own.decode(sent)
        assert decoded == own.explain(sent)
        if len(many) < 200 and many != few * 5:
            assert isinstance(decoded, Changes)
        else:
            assert isinstance(decoded, Rejected)
            assert "more than 1,000 values" in decoded.reason


def encode(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7]) if number > 127 else bytes([number])
