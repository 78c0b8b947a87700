"""Types as text: the texts of users, and the texts that `str` writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.types.sql_types import (
    BIGINT,
    STRING,
    TIME,
    SqlType,
    array_of,
    decimal,
    row_of,
    timestamp,
)

PLAIN = st.sampled_from([BIGINT, STRING, TIME, decimal(38, 6), timestamp(3, local_zone=True)])
TYPES = st.recursive(
    PLAIN,
    lambda inner: (
        inner.map(array_of)
        | st.lists(inner, min_size=1, max_size=3).map(lambda items: row_of(*items))
    ),
    max_leaves=6,
)


@given(TYPES)
def test_what_was_written_is_read_back(sql_type: SqlType) -> None:
    assert SqlType.read(str(sql_type)) == sql_type


@pytest.mark.parametrize("text", ["ARRAY", "ROW", "ARRAY<INT>", "ROW<INT, STRING>"])
def test_no_column_of_a_source_has_the_type_of_a_result(text: str) -> None:
    with pytest.raises(ValueError, match=r"use one of BOOLEAN|is not a type"):
        SqlType.parse(text)
