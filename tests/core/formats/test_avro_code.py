"""Avro of random schemas, also damaged, is read by generated code as the exact path reads it.

fastavro writes the messages, and says which values they have.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from bench.decoding import avro_writer
from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes
from schemas.types.sql_types import SqlType
from tests.support.examples import examples

Values = st.SearchStrategy[Any]


class Kind(NamedTuple):
    """A column: its type in SQL and in Avro, and its value of what fastavro reads."""

    sql: str
    avro: Any
    values: Values
    read: Callable[[Any], Any] = lambda raw: raw


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, **more}


def decimal(kind: str, **more: Any) -> dict[str, Any]:
    parameters = {"connect.parameters": {"scale": "2"}}
    return named(kind, "org.apache.kafka.connect.data.Decimal", **parameters, **more)


def whole(bits: int) -> Values:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    near = st.sampled_from([low, high, 0, -1, 63, 64, -64, -65, 8_191, 8_192, 1 << bits - 3])
    return st.one_of(near, st.integers(low, high), st.integers(-300, 300))


def unscaled(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


# Times of a topic: some are of the same eight seconds, and some have other sizes.
TIMES = st.one_of(
    st.integers(1_589_373_515_000, 1_589_373_535_000),
    st.sampled_from([0, -1, (1 << 34) - 1, 1 << 34, (1 << 41) - 1, 1 << 41, -(1 << 41), 1 << 62]),
    whole(64),
)
KINDS = [
    Kind("BIGINT", "long", whole(64)),
    Kind("BIGINT", "int", whole(32)),
    Kind("INT", "int", whole(32)),
    Kind("INT", "long", st.one_of(whole(32), st.just(1 << 31))),  # the last one is refused
    Kind("STRING", "string", st.text(max_size=90)),
    Kind("STRING", "string", st.sampled_from(["", "__debezium_unavailable_value"])),
    Kind("BOOLEAN", "boolean", st.booleans()),
    Kind("DOUBLE", "double", st.floats(), lambda raw: math.nan if math.isnan(raw) else raw + 0.0),
    Kind("BINARY", "bytes", st.binary(max_size=70)),
    Kind("BINARY", {"type": "fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
    Kind("DECIMAL(9, 2)", decimal("bytes"), st.binary(max_size=5), unscaled),
    Kind("DECIMAL(2, 2)", decimal("bytes"), st.binary(max_size=2), unscaled),
    Kind("DECIMAL(30, 2)", decimal("bytes"), st.binary(max_size=14), unscaled),
    Kind(
        "DECIMAL(9, 2)",
        decimal("fixed", size=4),
        st.binary(min_size=4, max_size=4),
        unscaled,
    ),
    Kind("DATE", named("int", "io.debezium.time.Date"), st.integers(-720_000, 3_000_000)),
    Kind(
        "TIMESTAMP(3)",
        named("long", "io.debezium.time.Timestamp"),
        st.integers(-(10**14), 10**15),
        lambda raw: raw * 1_000,
    ),
    Kind("TIMESTAMP(6)", named("long", "io.debezium.time.MicroTimestamp"), whole(58)),
]
OTHERS: list[tuple[Any, Values]] = [
    *(((kind.avro, kind.values)) for kind in KINDS),
    ({"type": "enum", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    ({"type": "array", "items": ["null", "long"]}, st.lists(st.none() | whole(64), max_size=3)),
    ({"type": "map", "values": "string"}, st.dictionaries(st.text(max_size=3), st.text())),
]


class Example(NamedTuple):
    """A schema, the columns of a job, and a message's rows."""

    schema: dict[str, Any]
    kinds: dict[str, Kind]  # of the columns
    used: tuple[str, ...]
    rows: Values


def record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    listed = []
    for number, (label, kind) in enumerate(fields.items()):
        own = kind
        if isinstance(kind, dict) and kind["type"] in ("enum", "fixed"):
            own = {**kind, "name": f"{name}{number}"}
        listed.append({"name": label, "type": own})
    return {"type": "record", "name": name, "fields": listed}


@st.composite
def fields_and_rows(draw: st.DrawFn, name: str) -> Example:
    """Draw a record of columns and other fields, some of them nullable, in any order."""
    kinds = {f"c{n}": kind for n, kind in enumerate(draw(st.lists(st.sampled_from(KINDS))))}
    own = {label: (kind.avro, kind.values) for label, kind in kinds.items()}
    others = draw(st.lists(st.sampled_from(OTHERS), max_size=3))
    own |= {f"other{number}": each for number, each in enumerate(others)}
    types: dict[str, Any] = {}
    values: dict[str, Values] = {}
    for label in draw(st.permutations(list(own))):
        types[label], values[label] = own[label]
        first = draw(st.sampled_from([None, 0, 0, 1]))
        if first is not None:
            if isinstance(types[label], dict) and types[label]["type"] in ("enum", "fixed"):
                types[label] = {**types[label], "name": f"{name}_{label}"}
            types[label] = ["null", types[label]] if first == 0 else [types[label], "null"]
            values[label] = st.one_of(st.none(), values[label], values[label])
    used = tuple(label for label in kinds if draw(st.booleans()))
    return Example(record(name, types), kinds, used, st.fixed_dictionaries(values))


def envelope(row: dict[str, Any]) -> dict[str, Any]:
    source = {"version": "string", "ts_ms": "long", "sequence": ["null", "string"], "pos": "long"}
    members = {
        "before": ["null", row],
        "after": ["null", row["name"]],
        "source": record("Source", source),
        "op": "string",
        "ts_ms": ["null", "long"],
    }
    return record("Envelope", members)


def messages_of(rows: Values) -> Values:
    source = {
        "version": st.text(max_size=70),
        "ts_ms": TIMES,
        "sequence": st.one_of(st.none(), st.text(max_size=5)),
        "pos": whole(64),
    }
    return st.fixed_dictionaries(
        {
            "before": st.one_of(st.none(), rows, rows),
            "after": st.one_of(st.none(), rows, rows),
            "source": st.fixed_dictionaries(source),
            "op": st.sampled_from(["c", "r", "u", "u", "d", "x", "", "upd"]),
            "ts_ms": st.one_of(st.none(), TIMES),
        }
    )


@given(st.data())
@examples(400)
def test_random_schemas_are_read_as_the_exact_path_and_fastavro_read_them(
    data: st.DataObject,
) -> None:
    is_envelope, last_images = data.draw(st.booleans()), data.draw(st.booleans())
    example = data.draw(fields_and_rows("Row"))
    schema = envelope(example.schema) if is_envelope else example.schema
    columns = {name: Column(name, SqlType.parse(kind.sql)) for name, kind in example.kinds.items()}
    rules = MessageRules("debezium-avro" if is_envelope else "avro", last_images=last_images)
    own = rules.decoder(
        tuple(columns.values()),
        tuple(columns[name] for name in example.used),
        find_schema=lambda _: (json.dumps(schema),),
    )
    write, parsed = avro_writer(schema), fastavro.parse_schema(schema)
    sent = messages_of(example.rows) if is_envelope else example.rows
    for _ in range(data.draw(st.integers(1, 4))):  # one decoder, which remembers times
        value = write(data.draw(sent))
        decoded = own.decode(value)
        assert repr(decoded) == repr(own.explain(value))
        if isinstance(decoded, Changes):
            message: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)
            assert repr(decoded) == repr(expected(message, example, is_envelope))
        damaged = damage(data, value)
        assert repr(own.decode(damaged)) == repr(own.explain(damaged))


def expected(message: dict[str, Any], example: Example, is_envelope: bool) -> Changes:
    """Return the changes of a message, of what fastavro has read."""

    def row(image: dict[str, Any]) -> tuple[Any, ...]:
        pairs = ((example.kinds[name], image[name]) for name in example.used)
        return tuple(None if raw is None else kind.read(raw) for kind, raw in pairs)

    if not is_envelope:
        return Changes([(1, row(message))])
    signs = {"c": [1], "r": [1], "d": [-1], "u": [-1, 1]}[message["op"]]
    images = [(sign, message["after" if sign > 0 else "before"]) for sign in signs]
    changes = [(sign, row(image)) for sign, image in images if image is not None]
    return Changes(changes, message["source"]["ts_ms"], message["ts_ms"])


def damage(data: st.DataObject, value: bytes) -> bytes:
    start = data.draw(st.integers(0, len(value)))
    piece = data.draw(st.one_of(st.binary(max_size=12), st.just(b"\xff" * 11)))
    return value[:start] + piece + value[start + data.draw(st.integers(0, 12)) :]
