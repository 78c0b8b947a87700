"""A column rendered at once has the text that its values have one by one.

Published records and the service's responses agree byte for byte, except where SAFE and PUBLISHED
say otherwise: floats, and whole numbers beyond 2^53.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.aggregates.cell_json import JSON_INTEGER_MAX
from jobs.core.values.json_values import renderer
from jobs.reading.json_columns import (
    PUBLISHED,
    PUBLISHED_STRINGS,
    SAFE,
    JsonStyle,
    encode_texts,
    join_texts,
    render_column,
    render_rows,
    safe_renderer,
)
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import BIGINT, INT, STRING, Kind, SqlType, array_of, decimal
from tests.support.examples import examples
from tests.support.values import VALUES, units

SHORT = decimal(12, 6), decimal(38, 6), decimal(38, 2)
SCALARS = VALUES | {kind: units(kind.precision or 0) for kind in SHORT}
ALL = SCALARS | {
    array_of(kind): st.lists(st.none() | values, max_size=4).map(tuple)
    for kind, values in VALUES.items()
}


def rendered(values: list[Any], sql_type: SqlType, style: JsonStyle) -> list[bytes]:
    array = to_arrow(values, sql_type)
    whole = render_column(array, sql_type, style)
    pieces = pa.chunked_array([array[:3], array[3:]])
    assert render_column(pieces, sql_type, style) == whole
    assert whole.type == style.text
    assert [text is None for text in whole.to_pylist()] == [value is None for value in values]
    return encode_texts(join_texts(whole.cast(pa.large_string()), ""))


def drawn(data: st.DataObject, sql_type: SqlType) -> list[Any]:
    return data.draw(st.lists(st.none() | ALL[sql_type], max_size=8))


@pytest.mark.parametrize("sql_type", ALL, ids=str)
@examples(15)
@given(data=st.data())
def test_responses_have_the_text_of_each_value(sql_type: SqlType, data: st.DataObject) -> None:
    values, render = drawn(data, sql_type), safe_renderer(sql_type)
    expected = [msgspec.json.encode(render(value)) for value in values]
    assert rendered(values, sql_type, SAFE) == expected


@pytest.mark.parametrize("sql_type", ALL, ids=str)
@examples(15)
@given(data=st.data())
def test_published_records_and_responses_agree(sql_type: SqlType, data: st.DataObject) -> None:
    values, render = drawn(data, sql_type), renderer(sql_type)
    published = rendered(values, sql_type, PUBLISHED)
    assert [json.loads(text) for text in published] == [
        json.loads(msgspec.json.encode(render(value))) for value in values
    ]
    items = sql_type.items[0] if sql_type.kind is Kind.ARRAY else sql_type
    if items.kind is not Kind.BIGINT and not sql_type.floating:
        assert published == rendered(values, sql_type, SAFE)
    elif sql_type is BIGINT:
        safe = rendered(values, sql_type, SAFE)
        for value, ours, theirs in zip(values, published, safe, strict=True):
            exact = value is None or abs(value) <= JSON_INTEGER_MAX
            assert theirs == (ours if exact else b'"%b"' % ours)


@pytest.mark.parametrize("sql_type", ALL, ids=str)
@examples(15)
@given(data=st.data())
def test_a_style_of_strings_quotes_what_is_no_string(
    sql_type: SqlType, data: st.DataObject
) -> None:
    values = drawn(data, sql_type)
    published = rendered(values, sql_type, PUBLISHED)
    for text, string in zip(published, rendered(values, sql_type, PUBLISHED_STRINGS), strict=True):
        is_string = text[:1] in b'"n'  # n: null, and a bare NaN would be no JSON
        assert string == (text if is_string else msgspec.json.encode(text.decode()))


def test_rows_are_objects_of_their_columns() -> None:
    columns: dict[str, tuple[list[Any], SqlType]] = {
        "k": (["bolt", 'the "nut"', None], STRING),
        'n"': ([1, None, 2**53], BIGINT),
        "v": ([None, -7, 0], INT),
    }
    rows = render_rows(
        (name, render_column(to_arrow(found, kind), kind, SAFE))
        for name, (found, kind) in columns.items()
    )
    assert encode_texts(rows) == [
        b'{"k":"bolt","n\\"":1,"v":null}',
        b'{"k":"the \\"nut\\"","n\\"":null,"v":-7}',
        b'{"k":null,"n\\"":"9007199254740992","v":0}',
    ]
