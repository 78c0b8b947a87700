"""Rows as JSON: a column at a time says what a value at a time does."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.edge.rows.columns import to_arrow
from schemas.types.sql_types import BIGINT, INT, STRING, SqlType, decimal
from service.table.json_columns import as_bytes, joined, json_column, json_rows
from service.table.row_shape import safe_renderer
from tests.support.examples import examples
from tests.support.values import VALUES, units

SHORT = decimal(12, 6), decimal(38, 6), decimal(38, 2)
ALL = VALUES | {kind: units(kind.precision or 0) for kind in SHORT}


@pytest.mark.parametrize("sql_type", ALL, ids=str)
@examples(40)
@given(data=st.data())
def test_every_value_is_written_as_by_itself(sql_type: SqlType, data: st.DataObject) -> None:
    found = data.draw(st.lists(st.none() | ALL[sql_type], max_size=8))
    write = safe_renderer(sql_type)
    array = to_arrow(found, sql_type)
    for column in (array, pa.chunked_array([array[:3], array[3:]])):
        told = as_bytes(joined(json_column(column, sql_type, write), ""))
        assert told == [msgspec.json.encode(write(value)) for value in found]


def test_rows_are_objects_of_their_columns() -> None:
    columns: dict[str, tuple[list[Any], SqlType]] = {
        "k": (["bolt", 'the "nut"', None], STRING),
        'n"': ([1, None, 2**53], BIGINT),
        "v": ([None, -7, 0], INT),
    }
    told = json_rows(
        (name, json_column(to_arrow(found, kind), kind, safe_renderer(kind)))
        for name, (found, kind) in columns.items()
    )
    assert as_bytes(told) == [
        b'{"k":"bolt","n\\"":1,"v":null}',
        b'{"k":"the \\"nut\\"","n\\"":null,"v":-7}',
        b'{"k":null,"n\\"":"9007199254740992","v":0}',
    ]
