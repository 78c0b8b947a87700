"""Values in PostgreSQL's formats, as psycopg reads and writes them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import Format
from psycopg.types.numeric import Int2, Int4, Int8

from jobs.querying.postgres.types import PgColumn, find_type_oid, read_parameter
from jobs.querying.statement import StatementRefused

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**30))
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.decimal128(38, 5), DECIMALS.filter(lambda value: abs(value) < 10**32)),
    (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal)),
    (pa.string(), TEXTS),
    (pa.binary(), st.binary(max_size=8)),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda value: value.replace(tzinfo=dt.UTC))),
    (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-9, 2**60), max_size=4)),
    (pa.list_(pa.string()), st.lists(st.none() | TEXTS | st.just("NULL"), max_size=4)),
    (pa.list_(pa.decimal128(20, 5)), st.lists(DECIMALS.filter(lambda v: abs(v) < 9), max_size=4)),
    (pa.list_(pa.date32()), st.lists(st.dates(), max_size=3)),
]
PARAMETERS = st.one_of(
    st.booleans(), TEXTS, st.binary(max_size=8), st.dates(), st.times(), MOMENTS,
    st.floats(allow_nan=False), DECIMALS, MOMENTS.map(lambda value: value.replace(tzinfo=dt.UTC)),
    st.integers(-(2**15), 2**15 - 1).map(Int2), st.integers(-(2**31), 2**31 - 1).map(Int4),
    st.integers(-(2**63), 2**63 - 1).map(Int8), st.lists(st.booleans(), min_size=1, max_size=3),
    st.lists(st.integers(-9, 9).map(Int4), min_size=1, max_size=3).map(lambda some: [*some, None]),
    st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5)),
)  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_client_reads_the_value(
    binary: bool, kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    column = PgColumn(kind)
    (field, missing) = column.render(pa.array([value, None], kind), binary)
    assert field is not None and missing is None
    loader = Transformer().get_loader(column.oid, Format.BINARY if binary else Format.TEXT)
    read = loader.load(field)
    assert read == value or (kind == pa.float32() and np.float32(read) == np.float32(value))


@settings(max_examples=300, deadline=None)
@given(value=PARAMETERS, binary=st.booleans())
def test_a_parameter_of_a_client_is_read(value: Any, binary: bool) -> None:
    binary = binary or isinstance(value, bytes)  # its text depends on a connection
    wanted = PyFormat.BINARY if binary else PyFormat.TEXT
    dumper = Transformer().get_dumper(value, wanted)
    dumped = dumper.dump(value)
    if isinstance(value, list) and binary:
        dumper = dumper.upgrade(value, wanted)
        dumped = dumper.dump(value)
    assert dumped is not None
    found = read_parameter(dumper.oid, bytes(dumped), binary)
    database = duckdb.connect()
    cast = "::INTERVAL" if isinstance(value, dt.timedelta) else ""
    (read,) = database.execute(f"SELECT $1{cast}", [found]).fetchone() or ()
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        read = read.astimezone(dt.UTC)
    assert read == value or (dumper.oid == 0 and str(read) == str(value))


def test_what_is_nested_is_json() -> None:
    kind = pa.struct({"a": pa.list_(pa.date32()), "b": pa.decimal128(9, 2)})
    value = {"a": [dt.date(2026, 1, 2)], "b": Decimal("1.50")}
    (field,) = PgColumn(kind).render(pa.array([value], kind), binary=True)
    assert json.loads(field or b"") == {"a": ["2026-01-02"], "b": "1.50"}
    assert PgColumn(kind).oid == PgColumn(pa.list_(pa.list_(pa.int32()))).oid == 114


@pytest.mark.parametrize(
    ("oid", "value", "binary"),
    [
        (23, b"\0", True),
        (1007, b"{{1},{2}}", False),
        (1007, b"{1", False),
        (1007, b"\0\0\0\1", True),
        (1700, b"\0\5\0\0\0\0\0\0", True),
        (1184, b"\x7f" * 8, True),
        (17, b"\\xzz", False),
        (2950, b"\0", True),
        (4711, b"x", True),
        (25, b"\xff", True),
    ],
)
def test_a_parameter_that_is_none_of_its_type_is_refused(
    oid: int, value: bytes, binary: bool
) -> None:
    with pytest.raises(StatementRefused, match="a parameter cannot be read") as refused:
        read_parameter(oid, value, binary)
    assert refused.value.code == "22P02"


def test_names_of_types_are_those_of_casts() -> None:
    known = psycopg.adapters.types
    for ours, theirs in (
        ("int", "int4"),
        ("bigint", "int8"),
        ("text", "text"),
        ("double", "float8"),
    ):
        assert find_type_oid(ours) == known[theirs].oid
        assert find_type_oid(f"{ours}[]") == known[theirs].array_oid
    assert find_type_oid("nope") == 0
