"""Arrow columns as Python values: the same as `to_pylist`, for every type, slice and chunk."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.types.arrow_values import to_list
from tests.support.examples import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PLAIN_TEXTS = st.text("ab\0", max_size=5)  # ASCII, which is decoded in one piece
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXTS),
    (pa.string(), PLAIN_TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), st.binary(max_size=5)),
    (pa.large_binary(), st.binary(max_size=5)),
    (pa.timestamp("us"), st.datetimes()),
    (pa.null(), st.none()),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda each: str(each)[:20])
@examples(30)
@given(data=st.data())
def test_a_column_is_listed_as_arrow_lists_it(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    column = data.draw(st.lists(values | st.none(), max_size=12))
    start, end = sorted((data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))))
    array = pa.array(column, kind)
    cut = array.slice(start, end - start)
    assert repr(to_list(cut)) == repr(cut.to_pylist())
    chunks = pa.chunked_array([cut, array, array.slice(0, 0)])
    assert repr(to_list(chunks)) == repr(chunks.to_pylist())


def test_a_column_without_chunks_has_no_values() -> None:
    assert to_list(pa.chunked_array([], pa.string())) == []
