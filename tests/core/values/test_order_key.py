"""Order keys: bytes sort as SQL sorts the values, for every type and for tuples of them.

Any two keys must compare as their values do. The tests compare random values of every type, and
often special ones (NULL, NUL bytes, limits, NaN), with Python's sort.
"""

from __future__ import annotations

import math
import string
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.values.change import Value
from jobs.core.values.order_key import (
    HASH_BYTES,
    encode_key,
    encoder,
    shorten_key,
    value_decoder,
    value_encoder,
)
from schemas.types.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIME,
    Kind,
    SqlType,
    array_of,
    decimal,
    integer_range,
    row_of,
    timestamp,
)
from tests.support.histories.order import sql_rank

TYPES = (
    BOOLEAN,
    *map(SqlType.parse, ("TINYINT", "SMALLINT", "INT", "BIGINT")),
    FLOAT,
    DOUBLE,
    decimal(38, 10),
    STRING,
    DATE,
    TIME,
    timestamp(6),
    timestamp(9),
    timestamp(3, local_zone=True),
    BINARY,
    row_of(DOUBLE, STRING),
    row_of(decimal(38, 10), BOOLEAN, BINARY, INT),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text(
    "\0\x01ab\U0010ffff", max_size=6
)


def values_of(sql_type: SqlType) -> st.SearchStrategy[Any]:
    """Return a strategy of values of this type, including NULL."""
    some: st.SearchStrategy[Any]
    if sql_type.kind is Kind.ROW:
        some = st.tuples(*map(values_of, sql_type.items))
    elif sql_type.kind is Kind.ARRAY:
        some = st.lists(values_of(sql_type.items[0]), max_size=3).map(tuple)
    elif sql_type is BOOLEAN:
        some = st.booleans()
    elif sql_type.floating:
        width = 32 if sql_type is FLOAT else 64
        some = st.floats(width=width).map(lambda number: number + 0.0)  # type: ignore[arg-type]
    elif sql_type is BINARY:
        some = st.binary(max_size=6) | st.lists(st.sampled_from([0, 1, 254, 255])).map(bytes)
    elif sql_type is STRING:
        some = TEXTS
    elif sql_type.textual_time:
        some = st.text(string.digits + ":- .", max_size=12)
    elif sql_type.integer:
        some = st.integers(*integer_range(sql_type)) | st.integers(-3, 3)
        some |= st.sampled_from(integer_range(sql_type))
    else:
        some = st.integers(-(10**38), 10**38) | st.integers(-300, 300)
    return some | st.none()


@pytest.mark.parametrize(
    "sql_type", [*TYPES, array_of(STRING), array_of(row_of(INT, STRING))], ids=str
)
def test_bytes_sort_as_values_sort(sql_type: SqlType) -> None:
    encode = value_encoder(sql_type)

    @given(st.lists(values_of(sql_type), max_size=20))
    def check(values: list[Value]) -> None:
        by_key = [sql_rank(value) for value in sorted(values, key=encode)]
        assert by_key == sorted(map(sql_rank, values))

    check()


@given(st.data())
def test_tuples_sort_column_by_column(data: st.DataObject) -> None:
    types = tuple(data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4)))
    rows = data.draw(st.lists(st.tuples(*map(values_of, types)), max_size=12))
    ranked = [tuple(map(sql_rank, row)) for row in sorted(rows, key=encoder(types))]
    assert ranked == sorted(tuple(map(sql_rank, row)) for row in rows)


@given(st.data())
def test_no_key_begins_with_another(data: st.DataObject) -> None:
    types = tuple(data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3)))
    rows = data.draw(st.lists(st.tuples(*map(values_of, types)), max_size=12))
    keys = sorted({encode_key(row, types) for row in rows})
    assert len(keys) == len({tuple(map(sql_rank, row)) for row in rows})
    for shorter, longer in pairwise(keys):
        assert not longer.startswith(shorter)


@given(st.data())
def test_no_value_begins_with_the_byte_past_every_value(data: st.DataObject) -> None:
    sql_type = data.draw(st.sampled_from(TYPES))
    assert value_encoder(sql_type)(data.draw(values_of(sql_type))) < b"\xff"


@pytest.mark.parametrize("sql_type", TYPES, ids=str)
def test_a_value_comes_back_from_its_key(sql_type: SqlType) -> None:
    encode, decode = value_encoder(sql_type), value_decoder(sql_type)

    @given(values_of(sql_type))
    def check(value: Value) -> None:
        back = decode(encode(value))
        assert sql_rank(back) == sql_rank(value)
        assert type(back) is type(value)

    check()


@given(st.lists(st.integers(0, 3000).flatmap(lambda bits: st.integers(-(2**bits), 2**bits))))
def test_integers_of_any_size_sort_and_come_back(numbers: list[int]) -> None:
    encode, decode = value_encoder(decimal(38, 0)), value_decoder(decimal(38, 0))
    assert sorted(numbers, key=encode) == sorted(numbers)
    assert [decode(encode(number)) for number in numbers] == numbers


def test_integers_sort_at_every_change_of_length() -> None:
    numbers = sorted(
        {
            sign * (1 << bits) + step
            for bits in range(1100)
            for step in (-1, 0, 1)
            for sign in (1, -1)
        }
    )
    keys = [value_encoder(decimal(38, 0))(number) for number in numbers]
    assert all(left < right for left, right in pairwise(keys))


def test_any_nan_is_the_greatest_and_both_zeros_are_one() -> None:
    encode = value_encoder(DOUBLE)
    negative_nan = math.copysign(math.nan, -1.0)
    assert encode(math.nan) == encode(float("nan")) == encode(negative_nan)
    assert encode(math.inf) < encode(math.nan)
    assert encode(-0.0) == encode(0.0)


def test_a_key_is_these_bytes() -> None:
    """The layout is on disk: a change of it needs a new LAYOUT_VERSION."""
    types = (STRING, INT, BOOLEAN, DOUBLE, BINARY, BIGINT)
    values = ("a\0é", None, True, -1.0, b"\0\xff", -3)
    assert encode_key(values, types).hex(" ") == (
        "01 61 00 ff c3 a9 00 00 00 02 01 40 0f ff ff ff ff ff ff 01 00 ff ff 00 00 7e fd"
    )


def test_the_empty_tuple_has_the_empty_key() -> None:
    assert encode_key((), ()) == b""


def test_a_long_key_keeps_its_prefix_and_is_told_apart_by_a_hash() -> None:
    prefix = b"x" * 400
    left, right = shorten_key(prefix + b"left", 400), shorten_key(prefix + b"right", 400)
    assert left != right
    assert left[:400] == right[:400] == prefix
    assert len(left) == len(right) == 400 + HASH_BYTES
    assert shorten_key(prefix, 400) == prefix
