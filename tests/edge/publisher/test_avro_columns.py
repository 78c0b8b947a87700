"""Records in Avro are what fastavro reads with the registered schemas: the values of the rows."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.avro_schema import parse_schema, read_value
from jobs.core.publish.avro import schemas_of
from jobs.core.publish.formats import FORMATS, EpochFacts
from jobs.core.values.float_values import NAN
from jobs.edge.publisher.records import RecordWriter, partitions_of
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import Kind, SqlType
from tests.support.examples import examples

FACTS = EpochFacts("items", "items-changes", 2**40, 1_000, 2_000, ("k",), schema=258)
MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
NANOS = st.builds(
    "2020-05-13 12:38:{:02d}.{:09d}".format, st.integers(0, 59), st.integers(0, 10**9 - 1)
)
FLOATS = st.floats(allow_nan=False).map(lambda number: number + 0.0) | st.just(NAN)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**6 * 128**n for n in range(9)]),
    "FLOAT": st.floats(width=32, allow_nan=False).map(lambda number: number + 0.0),
    "DOUBLE": FLOATS,
    "DECIMAL(1, 1)": st.integers(-9, 9),
    "DECIMAL(10, 2)": st.integers(-(10**10) + 1, 10**10 - 1),
    "DECIMAL(38, 6)": st.integers(-(10**38) + 1, 10**38 - 1),
    "STRING": TEXT,
    "DATE": st.integers(-719_162, 2_932_896),
    "TIME": st.builds("{:02d}:{:02d}:{:02d}".format, *[st.integers(0, 23)] * 3),
    "TIMESTAMP(0)": MICROS.map(lambda micros: micros // 1_000_000 * 1_000_000),
    "TIMESTAMP(3)": MICROS.map(lambda micros: micros // 1_000 * 1_000),
    "TIMESTAMP(6)": MICROS,
    "TIMESTAMP(9)": NANOS,
    "TIMESTAMP_LTZ(3)": MICROS.map(lambda micros: micros // 1_000 * 1_000),
    "TIMESTAMP_LTZ(6)": MICROS,
    "BINARY": st.binary(max_size=80),
}
VALUES |= {
    f"ARRAY<{kind}>": st.lists(st.none() | VALUES[kind], max_size=4).map(tuple)
    for kind in ("INT", "DOUBLE", "STRING", "DECIMAL(38, 6)", "DATE", "BINARY", "TIMESTAMP(6)")
}
OPS = ["+I", "-U", "+U", "-U", "+U", "-D", "-U", "+U"]
_EPOCH = datetime(1970, 1, 1)


def read(schema: str, octets: bytes, number: int) -> Any:
    """Return what fastavro reads after a header of a schema; all bytes must be of the value."""
    assert struct.unpack(">BI", octets[:5]) == (0, number)
    stream = io.BytesIO(octets[5:])
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(schema)))
    assert not stream.read()
    return found


def as_fastavro(value: Any, sql_type: SqlType) -> Any:
    """Return a value as Python's types have it, which fastavro gives for logical types."""
    if value is None:
        return None
    if sql_type.kind is Kind.ARRAY:
        return [as_fastavro(each, sql_type.items[0]) for each in value]
    if sql_type.kind is Kind.DECIMAL:
        return Decimal(value).scaleb(-(sql_type.scale or 0), Context(prec=60))
    if sql_type.kind is Kind.DATE:
        return date(1970, 1, 1) + timedelta(days=value)
    if isinstance(value, int) and sql_type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        instant = _EPOCH + timedelta(microseconds=value)
        return instant.replace(tzinfo=UTC) if sql_type.kind is Kind.TIMESTAMP_LTZ else instant
    return value


def written(
    name: str, ops: list[str], group: dict[str, SqlType], **columns: tuple[SqlType, list[Any]]
) -> tuple[list[Any], list[Any], Any]:
    """Return the keys and the values of rows in a format, as fastavro reads them."""
    output = [(column, kind) for column, (kind, _) in columns.items()]
    writer = RecordWriter(FORMATS[name], list(group.items()), output, 4, key_schema=7)
    batch = pa.record_batch(
        {
            "op": pa.array(ops),
            "seq": pa.array([2**32 + n for n in range(len(ops))], pa.int64()),
            **{column: to_arrow(values, kind) for column, (kind, values) in columns.items()},
        }
    )
    records = writer.write(batch, FACTS)
    key, value = schemas_of(name, "items-changes", group.items(), output).values()
    keys = [read(key, each, 7) for each in records.keys]
    values = [None if each is None else read(value, each, 258) for each in records.values]
    texts = pa.array(records.keys, pa.binary())
    assert records.partitions == partitions_of(texts, 4)
    return keys, values, records


@pytest.mark.parametrize("kind", VALUES)
@examples(25)
@given(data=st.data())
def test_a_column_has_the_values_of_its_rows(kind: str, data: st.DataObject) -> None:
    sql_type = SqlType.read(kind)
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=20))
    ops, group = ["+I"] * len(values), {"k": sql_type}
    keys, found, _ = written("avro", ops, group, k=(sql_type, values))
    expected = [as_fastavro(value, sql_type) for value in values]
    shown = [record["row"]["k"] for record in found]
    assert repr(shown) == repr(expected)  # a NaN is not equal to itself
    assert repr([key["k"] for key in keys]) == repr(shown)


def test_a_slice_of_a_table_has_its_own_values() -> None:
    """A chunk of rows is a part of its table's arrays."""
    kinds = ["INT", "DECIMAL(10, 2)", "STRING", "ARRAY<STRING>", "DATE", "BOOLEAN"]
    rows: list[list[Any]] = [
        [1, 250, "a", ("b", None), 3, True],
        [None] * 6,
        [7, -1, "ü", (), 0, False],
    ]
    types = [SqlType.read(kind) for kind in kinds]
    names = [f"c{number}" for number in range(6)]
    output = list(zip(names, types, strict=True))
    arrays = [to_arrow([row[at] for row in rows * 2], each) for at, each in enumerate(types)]
    whole = pa.record_batch(
        {
            "op": pa.array(["+I"] * 6),
            "seq": pa.array(range(6), pa.int64()),
            **dict(zip(names, arrays, strict=True)),
        }
    )
    writer = RecordWriter(FORMATS["upsert-avro"], output, output, 4)
    values = writer.write(whole, FACTS).values
    assert writer.write(whole.slice(2, 3), FACTS).values == values[2:5]
    assert values[:3] == values[3:]


STRING, INT = SqlType.parse("STRING"), SqlType.parse("INT")
ROWS: dict[str, tuple[SqlType, list[Any]]] = {
    "k": (STRING, ["a", "b", None, "c", "c", "d", "e", "e"]),
    "n": (INT, [1, 2, 3, 4, 5, None, 7, 7]),
}


def test_a_change_has_its_op_its_row_and_its_position() -> None:
    keys, values, _ = written("avro", OPS, {"k": STRING}, **ROWS)
    assert values == [
        {"op": op, "row": {"k": k, "n": n}, "epoch": 2**40, "seq": 2**32 + at, "time": None}
        for at, (op, k, n) in enumerate(zip(OPS, ROWS["k"][1], ROWS["n"][1], strict=True))
    ]
    assert keys == [{"k": k} for k in ROWS["k"][1]]


def test_envelopes_of_debezium_have_both_images_and_their_source() -> None:
    _, values, records = written("debezium-avro", OPS, {"k": STRING}, **ROWS)
    images = [(value["op"], value["before"], value["after"]) for value in values]
    assert images == [
        ("c", None, {"k": "a", "n": 1}),
        ("u", {"k": "b", "n": 2}, {"k": None, "n": 3}),
        ("u", {"k": "c", "n": 4}, {"k": "c", "n": 5}),
        ("d", {"k": "d", "n": None}, None),
        ("u", {"k": "e", "n": 7}, {"k": "e", "n": 7}),
    ]
    assert values[1]["source"] == {
        "connector": "retally",
        "name": "items",
        "db": "items",
        "table": "items-changes",
        "ts_ms": 1_000,
        "epoch": 2**40,
        "seq": 2**32 + 2,
    }
    assert {value["ts_ms"] for value in values} == {2_000}
    assert records.seqs == [str(2**32 + n).encode() for n in (0, 2, 4, 5, 7)]


def test_upserts_are_the_new_row_or_a_tombstone() -> None:
    _, values, _ = written("upsert-avro", OPS, {"k": STRING}, **ROWS)
    last = {"k": "e", "n": 7}
    assert values == [{"k": "a", "n": 1}, {"k": None, "n": 3}, {"k": "c", "n": 5}, None, last]


def test_a_query_without_group_has_one_key() -> None:
    keys, _, records = written("avro", OPS, {}, **ROWS)
    assert keys == [{}] * 8
    assert set(records.keys) == {b"\0\0\0\0\7"}


@pytest.mark.parametrize("kind", ["BIGINT", "TIMESTAMP(3)", "TIMESTAMP_LTZ(6)"])
def test_a_row_of_a_window_has_its_last_millisecond(kind: str) -> None:
    end = ("window_end", SqlType.parse(kind))
    ends = [0, 60_000, 1_767_225_660_000]
    column = to_arrow([each * (1 if kind == "BIGINT" else 1_000) for each in ends], end[1])
    seqs, ops = pa.array([1, 2, 3], pa.int64()), pa.array(["+I"] * 3)
    batch = pa.record_batch({"op": ops, "seq": seqs, "window_end": column})
    records = RecordWriter(FORMATS["avro"], [end], [end], 4, end).write(batch, FACTS)
    schema = schemas_of("avro", "t", [end], [end])["t-value"]
    times = [read(schema, value or b"", 258)["time"] for value in records.values]
    assert times == [each - 1 for each in ends]


@pytest.mark.parametrize("name", ["avro", "debezium-avro", "upsert-avro"])
@pytest.mark.parametrize("topic", ["items-changes", "9.lives", "a_b"])
def test_schemas_are_valid_and_a_source_in_avro_reads_them(name: str, topic: str) -> None:
    columns = [(f"c{number}", SqlType.read(kind)) for number, kind in enumerate(VALUES)]
    for schema in schemas_of(name, topic, columns, columns).values():
        fastavro.parse_schema(json.loads(schema))
        assert parse_schema([schema]).kind == "record"
    members, _ = read_value(parse_schema([schema]), bytes(200), 0)
    assert members
