"""Avro with a schema registry: what fastavro writes is read as debezium-json has it.

fastavro knows nothing of ours: it writes the messages, and it reads what random schemas hold.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.avro import AvroDecoder
from jobs.core.formats.avro_schema import parse_schema, read_value
from jobs.core.formats.registered import SchemaError, UnknownSchemaError
from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, ColumnGone, Filtered, RejectCode, Rejected, Skipped
from jobs.core.values.json_text import JsonNumber
from schemas import limits
from schemas.types.sql_types import SqlType
from tests.support.examples import examples

TYPES = {
    "id": "BIGINT",
    "name": "STRING",
    "price": "DECIMAL(12, 2)",
    "weight": "DOUBLE",
    "rate": "FLOAT",
    "day": "DATE",
    "clock": "TIME",
    "made": "TIMESTAMP(3)",
    "seen": "TIMESTAMP(6)",
    "exact": "TIMESTAMP(9)",
    "zoned": "TIMESTAMP_LTZ(3)",
    "ok": "BOOLEAN",
    "raw": "BINARY",
    "any": "DECIMAL(20, 4)",
    "tags": "STRING",
}
COLUMNS = tuple(Column(name, SqlType.parse(kind)) for name, kind in TYPES.items())


def connect(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


DECIMAL = connect(
    "bytes",
    "org.apache.kafka.connect.data.Decimal",
    **{"scale": 2, "precision": 12, "connect.parameters": {"scale": "2"}},
)
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
FIELDS: dict[str, Any] = {
    "id": "long",
    "other": ["null", "string"],
    "name": ["null", "string"],
    "price": ["null", DECIMAL],
    "weight": ["null", "double"],
    "rate": ["null", "float"],
    "day": ["null", connect("int", "io.debezium.time.Date")],
    "clock": ["null", connect("long", "io.debezium.time.MicroTime")],
    "made": ["null", connect("long", "io.debezium.time.Timestamp")],
    "seen": ["null", connect("long", "io.debezium.time.MicroTimestamp")],
    "exact": ["null", connect("long", "io.debezium.time.NanoTimestamp")],
    "zoned": ["null", connect("string", "io.debezium.time.ZonedTimestamp")],
    "ok": ["null", "boolean"],
    "raw": ["null", "bytes"],
    "any": ["null", VARIABLE],
    "tags": ["null", connect("string", "io.debezium.data.Enum")],
    "list": {"type": "array", "items": ["null", "int"]},
    "map": {"type": "map", "values": "double"},
}


def record(name: str, fields: dict[str, Any], **more: object) -> dict[str, Any]:
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed, **more}


SOURCE = record(
    "Source",
    {
        "version": "string",
        "ts_ms": "long",
        "snapshot": ["null", "string"],
        "db": "string",
        "table": ["null", "string"],
        "pos": "long",
    },
    namespace="io.debezium.connector.mysql",
)
VALUE = record("Value", FIELDS)
ENVELOPE = record(
    "Envelope",
    {
        "before": ["null", VALUE],
        "after": ["null", "Value"],
        "source": SOURCE,
        "transaction": ["null", record("block", {"id": "string", "order": "long"})],
        "op": "string",
        "ts_ms": ["null", "long"],
    },
    namespace="server.shop.product",
)


def avro(schema: Any, value: object, number: int = 7) -> bytes:
    """Return the message of a serializer of a schema registry."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return struct.pack(">BI", 0, number) + written.getvalue()


def decoder(
    schema: Any = ENVELOPE,
    format: str = "debezium-avro",
    columns: tuple[Column, ...] = COLUMNS,
    used: tuple[Column, ...] | None = None,
    **rules: Any,
) -> MessageDecoder:
    def find(number: int) -> tuple[str, ...]:
        if number != 7:
            raise UnknownSchemaError(f"the registry has no schema {number}")
        return (json.dumps(schema),)

    own = MessageRules(format, **rules)
    return own.decoder(columns, columns if used is None else used, find_schema=find)


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from([low, high, 0, 1, -1]), st.integers(low, high))


ROWS: dict[str, st.SearchStrategy[Any]] = {
    "id": whole(-(2**63), 2**63 - 1),
    "name": st.text(max_size=90),
    "price": st.integers(-(10**13), 10**13).map(
        lambda number: number.to_bytes(6, "big", signed=True)
    ),
    "weight": st.floats(),
    "rate": st.floats(width=32),
    "day": whole(-800_000, 3_000_000),
    "clock": whole(-1, 86_400_000_001),
    "made": whole(-(10**14), 10**15),
    "seen": whole(-(10**17), 10**18),
    "exact": whole(-(2**63), 2**63 - 1),
    "zoned": st.sampled_from(["2020-05-13T12:38:35.477Z", "2020-05-13T12:38:35+02:00", "x"]),
    "ok": st.booleans(),
    "raw": st.binary(max_size=9),
    "any": st.tuples(st.integers(-3, 9), st.binary(max_size=5)).map(
        lambda pair: {"scale": pair[0], "value": pair[1]}
    ),
    "tags": st.sampled_from(["new", "__debezium_unavailable_value"]),
    "other": st.text(max_size=300),
}
NULLABLE = {name: st.one_of(st.none(), own) for name, own in ROWS.items() if name != "id"}
LISTS = {
    "list": st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), max_size=4),
    "map": st.dictionaries(st.text(max_size=3), st.floats(), max_size=3),
}
IMAGES = st.fixed_dictionaries({"id": ROWS["id"], **NULLABLE, **LISTS})
# Most values above are at the bounds of their types, so few rows of them are valid.
MODERATE = {
    "price": st.integers(-(10**9), 10**9).map(lambda n: n.to_bytes(5, "big", signed=True)),
    "rate": st.floats(-1e9, 1e9, width=32),
    "day": st.integers(-700_000, 2_000_000),
    "clock": st.integers(0, 86_400_000_000),
    "made": st.integers(-(10**13), 10**14),
    "seen": st.integers(-(10**16), 10**17),
    "zoned": st.just("2020-05-13T12:38:35+02:00"),
    "any": st.tuples(st.integers(-3, 4), st.binary(min_size=1, max_size=5)).map(
        lambda pair: {"scale": pair[0], "value": pair[1]}
    ),
    "tags": st.just("new"),
}
VALID = st.fixed_dictionaries(
    {
        "id": ROWS["id"],
        **{name: st.one_of(st.none(), MODERATE.get(name, ROWS[name])) for name in NULLABLE},
        **LISTS,
    }
)


def image_json(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a row as Debezium writes it into JSON."""
    if row is None:
        return None
    found: dict[str, Any] = {}
    for name, value in row.items():
        own = value
        if isinstance(value, bytes):
            own = base64.b64encode(value).decode()
        elif name == "any" and value is not None:
            own = {**value, "value": base64.b64encode(value["value"]).decode()}
        elif isinstance(value, float):
            own = value if abs(value) < float("inf") else str(value)
            own = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(own), own)
            if name == "rate" and isinstance(own, float):
                own = float(f"{own:.9g}")  # of 32 bits: these digits are enough
        if name not in LISTS:
            found[name] = own
    return found


def connect_schema() -> dict[str, Any]:
    """Return the schema that Debezium writes into a JSON message."""
    fields: list[dict[str, Any]] = []
    for name, kind in FIELDS.items():
        own = next(each for each in kind if each != "null") if isinstance(kind, list) else kind
        if isinstance(own, dict) and "connect.name" in own:
            parameters = own.get("connect.parameters")
            fields.append({"field": name, "name": own["connect.name"], "parameters": parameters})
        else:
            fields.append({"field": name})
    return {"fields": [{"field": "after", "fields": fields}]}


def message(op: str, before: Any, after: Any, **source: Any) -> dict[str, Any]:
    own = {"version": "3", "ts_ms": 1589373515477, "snapshot": None, "db": "shop", "table": "p"}
    return {
        "before": before,
        "after": after,
        "source": {**own, "pos": 300, **source},
        "transaction": None,
        "op": op,
        "ts_ms": 1589373515999,
    }


@pytest.mark.parametrize("branch", [0, 63, 64, 70, 2_999])
def test_a_union_may_have_thousands_of_branches(branch: int) -> None:
    """The number of a branch above 63 has two bytes."""
    parts = [{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(3_000)]
    fields = [{"name": "other", "type": parts}, {"name": "id", "type": "long"}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    own = decoder(schema, "avro", COLUMNS[:1])
    out = io.BytesIO()
    row = {"other": (f"F{branch}", b"x"), "id": 5}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    assert must_agree(own, b"\0\0\0\0\7" + out.getvalue()) == Changes([(1, (5,))])


def must_agree(own: MessageDecoder, value: bytes) -> Any:
    """Decode fast and exactly, to the same."""
    decoded = own.decode(value)
    assert decoded == own.explain(value)
    return decoded


@pytest.mark.parametrize("last_images", [False, True])
@given(data=st.data())
@examples(300)
def test_a_message_gives_the_changes_of_debezium_json(
    data: st.DataObject, last_images: bool
) -> None:
    """Also the same refusals, with the same reason and path."""
    op = data.draw(st.sampled_from("crudx"))
    image = data.draw(st.sampled_from([IMAGES, VALID, VALID, st.one_of(st.none(), VALID)]))
    sent = message(op, data.draw(image), data.draw(image))
    used = tuple(column for column in COLUMNS if data.draw(st.booleans()))
    found = must_agree(decoder(used=used, last_images=last_images), avro(ENVELOPE, sent))
    payload = {**sent, "before": image_json(sent["before"]), "after": image_json(sent["after"])}
    text = json.dumps({"schema": connect_schema(), "payload": payload}).encode()
    rules = MessageRules("debezium-json", last_images=last_images)
    expected = rules.decoder(COLUMNS, used).decode(text)
    if isinstance(expected, Rejected) and isinstance(found, Rejected):
        assert (found.reason, f"$.payload{found.path[1:]}") == (expected.reason, expected.path)
    else:
        assert repr(found) == repr(expected)  # a NaN is not equal to itself


def test_usual_messages_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    own = decoder()
    row = dict.fromkeys(FIELDS) | {"id": 2**40, "name": "né", "list": [1], "map": {}}
    row |= {"price": b"\x04\xe2", "day": 18_395, "seen": 10**15, "ok": True, "weight": 0.5}
    monkeypatch.setattr(AvroDecoder, "explain", lambda *_: pytest.fail("the exact path"))
    decoded = own.decode(avro(ENVELOPE, message("u", row, {**row, "id": 1})))
    assert isinstance(decoded, Changes)
    assert [(sign, values[:3]) for sign, values in decoded.changes] == [
        (-1, (2**40, "né", 1_250)),
        (1, (1, "né", 1_250)),
    ]
    assert (decoded.es, decoded.ts) == (1589373515477, 1589373515999)


@given(st.data())
@examples(500)
def test_damaged_messages_are_refused_as_the_exact_path_does(data: st.DataObject) -> None:
    sent = avro(ENVELOPE, message("u", data.draw(IMAGES), data.draw(IMAGES)))
    start = data.draw(st.integers(0, len(sent)))
    piece = data.draw(st.binary(max_size=12))
    must_agree(decoder(), sent[:start] + piece + sent[start + data.draw(st.integers(0, 12)) :])


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": whole(-(2**31), 2**31 - 1),
    "long": whole(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "bytes": st.binary(max_size=80),
    "string": st.text(max_size=80),
}


@st.composite
def schemas_and_values(draw: st.DrawFn, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    kinds = ["array", "map", "record", "enum", "fixed"] if depth else []
    kind = draw(st.sampled_from([*SCALARS, *kinds]))
    if kind in SCALARS:
        return kind, SCALARS[kind]
    name = f"n{draw(st.uuids()).hex}"
    if kind == "enum":
        return {"type": kind, "name": name, "symbols": ["A", "B"]}, st.sampled_from("AB")
    if kind == "fixed":
        return {"type": kind, "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    parts = [draw(schemas_and_values(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    if kind == "record":
        fields = {f"f{number}": schema for number, (schema, _) in enumerate(parts)}
        values = {f"f{number}": each for number, (_, each) in enumerate(parts)}
        return record(name, fields), st.fixed_dictionaries(values)
    item, values_of = (["null", "long"], st.one_of(st.none(), SCALARS["long"]))
    if parts[0][0] != "null" and kind == "map":
        item, values_of = parts[0]
    if kind == "array":
        return {"type": kind, "items": item}, st.lists(values_of, max_size=3)
    return {"type": kind, "values": item}, st.dictionaries(st.text(max_size=2), values_of)


def plain(node: Any, kind: Any = None) -> Any:
    """Return what `read_value` returns, as fastavro has it; bytes as their base64."""
    if isinstance(node, dict):
        return {name: plain(each) for name, each in node.items()}
    if isinstance(node, list):
        return [plain(each) for each in node]
    if isinstance(node, bytes):
        return base64.b64encode(node).decode()
    if isinstance(node, JsonNumber):
        return float(node)
    return float(node) if isinstance(node, int | float) and not isinstance(node, bool) else node


@given(st.data())
@examples(300)
def test_any_value_of_any_schema_is_read_as_fastavro_reads_it(data: st.DataObject) -> None:
    schema, values = data.draw(schemas_and_values())
    value = data.draw(values)
    sent = avro(schema, value)
    read, end = read_value(parse_schema([json.dumps(schema)]), sent, 5)
    assert end == len(sent)
    again = fastavro.schemaless_reader(io.BytesIO(sent[5:]), fastavro.parse_schema(schema))
    assert json.dumps(plain(read)) == pytest.approx(json.dumps(plain(again))) or _close(read, again)


def _close(read: Any, again: Any) -> bool:
    """Return whether only floats of 32 bits differ, whose shortest digits are read."""
    ours, theirs = plain(read), plain(again)
    if isinstance(ours, dict):
        return all(_close(ours[name], theirs[name]) for name in theirs)
    return bool(ours == theirs or struct.pack("<f", ours) == struct.pack("<f", theirs))


# --- rows without an envelope -----------------------------------------------------------------


LOGICAL = record(
    "Order",
    {
        "id": "long",
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "day": {"type": "int", "logicalType": "date"},
        "seen": {"type": "long", "logicalType": "timestamp-micros"},
    },
)


def columns_of(*names: str) -> tuple[Column, ...]:
    return tuple(column for column in COLUMNS if column.name in names)


def test_a_plain_row_is_an_insert_with_the_logical_types_of_avro() -> None:
    columns = columns_of("id", "price", "day", "seen")
    value = {"id": 1, "price": Decimal("12.50"), "day": 18_395, "seen": 10**15}
    decoded = must_agree(decoder(LOGICAL, "avro", columns), avro(LOGICAL, value))
    assert decoded == Changes([(1, (1, 1_250, 18_395, 10**15))])


def test_a_number_without_a_logical_type_is_no_time() -> None:
    schema = record("Order", {"seen": "long"})
    decoded = must_agree(decoder(schema, "avro", columns_of("seen")), avro(schema, {"seen": 5}))
    assert isinstance(decoded, Rejected)
    assert decoded.path == "$.seen"


@pytest.mark.parametrize("missing_is_null", [False, True])
def test_a_column_that_the_schema_lacks_is_missing_or_null(missing_is_null: bool) -> None:
    schema = record("Order", {"id": "long"})
    own = decoder(schema, "avro", columns_of("id", "name"), missing_is_null=missing_is_null)
    decoded = must_agree(own, avro(schema, {"id": 3}))
    if missing_is_null:
        assert decoded == Changes([(1, (3, None))])
    else:
        assert isinstance(decoded, ColumnGone)
        assert decoded.column == "name"


# --- schemas and headers ----------------------------------------------------------------------


def test_a_message_of_another_table_is_filtered() -> None:
    row = dict.fromkeys(FIELDS) | {"id": 1, "list": [], "map": {}}
    own = decoder(table="p")
    assert isinstance(must_agree(own, avro(ENVELOPE, message("c", None, row))), Changes)
    other = avro(ENVELOPE, message("c", None, row, table="q"))
    assert isinstance(must_agree(own, other), Filtered)


def test_rows_get_the_metadata_of_their_message() -> None:
    row = dict.fromkeys(FIELDS) | {"id": 1, "list": [], "map": {}}
    used = (COLUMNS[0], Column("__table", SqlType.parse("STRING")))
    decoded = must_agree(decoder(used=used), avro(ENVELOPE, message("c", None, row, table="q")))
    assert isinstance(decoded, Changes)
    assert decoded.changes == [(1, (1, "q"))]


def test_a_tombstone_is_skipped() -> None:
    assert isinstance(must_agree(decoder(), b""), Skipped)
    assert isinstance(decoder().decode(None), Skipped)


RECURSIVE = record("Tree", {"id": "long", "child": ["null", "Tree"]})
HOLLOW = record("Hollow", {"id": {"type": "array", "items": "null"}})


@pytest.mark.parametrize(
    ("value", "schema", "reason"),
    [
        (b'{"op": "c"}', ENVELOPE, "does not start with 0"),
        (b"\0\0\0", ENVELOPE, "does not start with 0"),
        (b"\0\0\0\0\7", ENVELOPE, "ends within"),
        (b"\0\0\0\0\7\2", RECURSIVE, "recursive: 'Tree' contains itself"),
        (b"\0\0\0\0\7\2", HOLLOW, "elements take no bytes"),
        (b"\0\0\0\0\7\2", {"type": "Unknown"}, "names 'Unknown', which it does not define"),
        (b"\0\0\0\0\7\2", {"type": "record"}, "not a valid Avro schema"),
        (b"\0\0\0\0\7" + bytes([255] * 12), "long", "more than 64 bits"),
        (b"\0\0\0\0\7\2\2", "long", "1 bytes follow"),
        (b"\0\0\0\0\7\2", "long", "is not a debezium-avro object"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    value: bytes, schema: Any, reason: str
) -> None:
    decoded = must_agree(decoder(schema), value)
    assert isinstance(decoded, Rejected)
    assert reason in decoded.reason
    assert decoded.code is RejectCode.MESSAGE


def test_an_unknown_id_has_a_code_of_its_own() -> None:
    decoded = must_agree(decoder(), b"\0\0\0\0\x08\2")
    assert isinstance(decoded, Rejected)
    assert decoded.code is RejectCode.SCHEMA


def test_a_schema_that_doubles_itself_is_bounded() -> None:
    fields: dict[str, Any] = {"r0": record("R0", {"x": "int"})}
    for number in range(1, 40):
        below = f"R{number - 1}"
        fields[f"r{number}"] = record(f"R{number}", {"a": below, "b": below})
    with pytest.raises(SchemaError, match=str(limits.SCHEMA_TYPES_MAX)):
        parse_schema([json.dumps(record("All", fields))])


def test_a_schema_may_name_types_of_those_before_it() -> None:
    inner = record("Money", {"amount": "long"}, namespace="a.b")
    outer = record("Order", {"cost": "Money", "again": "a.b.Money"}, namespace="a.b")
    node = parse_schema([json.dumps(inner), json.dumps(outer)])
    assert read_value(node, b"\2\4", 0) == ({"cost": {"amount": "1"}, "again": {"amount": "2"}}, 2)
