from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, ColumnGone, Decoded, Op, Rejected, Row, Skipped
from jobs.core.values.float_values import NAN, canonical_float
from jobs.core.values.json_values import renderer
from schemas import limits
from schemas.types.sql_types import SqlType
from tests.support.examples import examples


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, SqlType.parse(text)) for name, text in types.items())


COLUMNS = columns(name="STRING", total="DECIMAL(38,2)", n="BIGINT")
ROW = {"name": "a", "total": "1.50", "n": 3}


def record(**members: Any) -> bytes:
    return json.dumps({"op": "+I", "row": ROW, "epoch": 7, "seq": 3} | members).encode()


def decode(value: bytes | None, bytes_max: int = limits.MESSAGE_BYTES_MAX, **rules: Any) -> Decoded:
    made = MessageRules("changelog-json", **rules).decoder(COLUMNS, COLUMNS, bytes_max=bytes_max)
    decoded = made.decode(value)
    assert decoded == made.explain(value)
    return decoded


@pytest.mark.parametrize("op", list(Op))
def test_each_record_is_one_signed_row(op: Op) -> None:
    assert decode(record(op=op)) == Changes([(op.weight, ("a", 150, 3))])


def test_only_used_columns_are_in_the_row_and_the_others_are_checked() -> None:
    made = MessageRules("changelog-json").decoder(COLUMNS, COLUMNS[2:])
    assert made.decode(record()) == Changes([(1, (3,))])
    bad = made.decode(record(row=ROW | {"total": "x"}))
    assert isinstance(bad, Rejected) and bad.path == "$.row.total"


def test_tombstones_are_skipped() -> None:
    assert decode(None) == decode(b"") == Skipped("tombstone")


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"op": "c"}, "$.op"),
        ({"op": None}, "$.op"),
        ({"op": ["+I"]}, "$.op"),
        ({"row": None}, "$.row"),
        ({"row": []}, "$.row"),
        ({"row": ROW | {"name": 5}}, "$.row.name"),
        ({"row": ROW | {"n": 2**63}}, "$.row.n"),
        ({"row": ROW | {"n": 1.5}}, "$.row.n"),
    ],
)
def test_a_bad_record_names_the_field(members: dict[str, Any], path: str) -> None:
    decoded = decode(record(**members))
    assert isinstance(decoded, Rejected) and decoded.path == path and decoded.reason


def test_an_absent_column_is_gone_or_null_as_the_job_says() -> None:
    value = record(row={"name": "a", "n": 3})
    assert isinstance(decode(value), ColumnGone)
    assert decode(value, missing_is_null=True) == Changes([(1, ("a", None, 3))])


def test_a_big_integer_may_be_text() -> None:
    assert decode(record(row=ROW | {"n": str(2**60)})) == Changes([(1, ("a", 150, 2**60))])


@pytest.mark.parametrize("value", [b"x", b"[]", b"{}", b"\xff", b"[" * 2_000, b"x" * 200])
def test_what_is_no_record_is_rejected(value: bytes) -> None:
    assert isinstance(decode(value, bytes_max=100), Rejected)


def test_a_decoder_travels_in_a_pickle() -> None:
    again = pickle.loads(
        pickle.dumps(MessageRules("changelog-json", missing_is_null=True).decoder(COLUMNS, COLUMNS))
    )
    assert again.decode(record(row={})) == Changes([(1, (None, None, None))])


EVERY = columns(
    s="STRING", i="TINYINT", d="DECIMAL(12,3)", f="FLOAT", g="DOUBLE", b="BOOLEAN", x="BINARY"
)


@examples(100)
@given(
    st.tuples(
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | st.integers(-128, 127),
        st.none() | st.integers(-(10**12) + 1, 10**12 - 1),
        st.none() | st.floats(width=32).map(canonical_float),
        st.none() | st.floats().map(canonical_float),
        st.none() | st.booleans(),
        st.none() | st.binary(),
    )
)
def test_what_one_job_publishes_the_next_one_reads(row: Row) -> None:
    pairs = zip(EVERY, row, strict=True)
    rendered = {column.name: renderer(column.type)(value) for column, value in pairs}
    decoded = MessageRules("changelog-json").decoder(EVERY, EVERY).decode(record(row=rendered))
    assert isinstance(decoded, Changes)
    ((_, back),) = decoded.changes
    assert [type(value) for value in back] == [type(value) for value in row]
    for ours, theirs in zip(row, back, strict=True):
        assert ours == theirs or (isinstance(ours, float) and math.isnan(ours) and theirs is NAN)


@examples(100)
@given(st.binary(max_size=60), st.integers(0, 100))
def test_no_bytes_ever_raise(noise: bytes, cut: int) -> None:
    made = MessageRules("changelog-json").decoder(COLUMNS, COLUMNS)
    for value in (noise, record()[:cut], record()[:cut] + noise + record()[cut + 3 :]):
        made.decode(value)


def test_the_time_of_a_window_is_read_as_the_time_of_the_message() -> None:
    columns = (Column("n", SqlType.parse("INT")),)
    decoder = MessageRules("changelog-json").decoder(columns, columns)
    for time, decoded in (("59999", 59_999), ("null", None), ('"noon"', None)):
        value = b'{"op": "+I", "row": {"n": 3}, "epoch": 1, "seq": 2, "time": %s}' % time.encode()
        for decode in (decoder.decode, decoder.explain):
            assert decode(value) == Changes([(1, (3,))], decoded)
