"""JSON_ARRAYAGG, JSON_OBJECTAGG, HISTOGRAM: the values of a group as a JSON array or object.

The multiset of the first two has NULLs too, so that a group with nothing else has an empty array,
as in Flink.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jobs.core.aggregates.entries import Entries, item_type, values_code
from jobs.core.aggregates.extremes import multiset_of
from jobs.core.aggregates.interfaces import Constant, Distinction, Function, Order, ReadCost, Site
from jobs.core.aggregates.lists import BOUNDS, WITHOUT_ORDER, join_texts
from jobs.core.values.json_values import renderer
from schemas.types.sql_types import STRING, Kind, SqlType


@lru_cache(64)  # a column has one type
def _writer(type_text: str) -> Callable[[Any], str]:
    """Return a function from a value to its text in JSON; a number is a number."""
    sql_type = SqlType.read(type_text)
    render = renderer(sql_type)

    def write(value: Any) -> str:
        if sql_type.kind is Kind.DECIMAL and value is not None:
            return str(render(value))
        return json.dumps(render(value), ensure_ascii=False)

    return write


def json_array(entries: Entries, on_null: str, kind: str, misfits: list[int]) -> str | None:
    """Return the values as a JSON array; None without rows."""
    write = _writer(kind)
    found = list(entries)
    if not found:
        return None
    kept = ((write(v), times) for v, times in found if v is not None or on_null == "NULL")
    return _enclose("[]", kept, misfits)


def json_object(
    entries: Entries, on_null: str, key_kind: str, kind: str, misfits: list[int]
) -> str | None:
    """Return the last value of each key as a JSON object; None without rows."""
    write_key, write = _writer(key_kind), _writer(kind)
    found = {key: value for (key, value), _ in entries}
    if not found:
        return None
    texts = {
        _as_name(write_key(key)): write(value)
        for key, value in found.items()
        if key is not None and (value is not None or on_null == "NULL")
    }
    return _enclose("{}", ((f"{key}:{value}", 1) for key, value in texts.items()), misfits)


def histogram(entries: Entries, kind: str, misfits: list[int]) -> str | None:
    """Return the values as the keys of a JSON object, with their counts; None without values."""
    write = _writer(kind)
    texts = [(f"{_as_name(write(value))}:{times}", 1) for value, times in entries]
    return _enclose("{}", texts, misfits) if texts else None


def _as_name(text: str) -> str:
    return text if text.startswith('"') else f'"{text}"'


def _enclose(brackets: str, texts: Entries, misfits: list[int]) -> str | None:
    before = misfits[0]
    joined = join_texts(texts, ",", misfits)
    return None if misfits[0] > before else brackets[0] + (joined or "") + brackets[1]


RUNTIME = (json_array, json_object, histogram)


def _array(site: Site) -> list[str]:
    (on_null,) = site.aggregate.parameters
    kind = str(item_type(site.argument))
    return [f"{site.target} = json_array({values_code(site)}, {on_null!r}, {kind!r}, misfits)"]


def _histogram(site: Site) -> list[str]:
    entries, kind = f"{site.present}.entries()", str(site.argument)
    return [f"{site.target} = histogram({entries}, {kind!r}, misfits)"]


def _object(site: Site) -> list[str]:
    (on_null,) = site.aggregate.parameters
    kinds = ", ".join(repr(str(item)) for item in site.argument.items)
    entries = f"{site.present}.entries()"
    return [f"{site.target} = json_object({entries}, {on_null!r}, {kinds}, misfits)"]


FUNCTIONS = (
    Function(
        "JSON_ARRAYAGG",
        accumulators=multiset_of,
        result=lambda _: STRING,
        value=_array,
        about="The values as the text of a JSON array, without NULLs unless the call ends with "
        f"NULL ON NULL. {WITHOUT_ORDER} {BOUNDS}",
        example="JSON_ARRAYAGG(cnt ORDER BY day)",
        example_result="[3,5,3,8]",
        read_cost=ReadCost.ALL,
        order=Order.OPTIONAL,
        constant=Constant.ON_NULL,
        distinction=Distinction.REFUSED,
        keeps_nulls=True,
    ),
    Function(
        "JSON_OBJECTAGG",
        accumulators=multiset_of,
        result=lambda _: STRING,
        value=_object,
        about="A value of each key as the text of a JSON object, sorted by the keys; of several "
        f"values of a key the greatest. ABSENT ON NULL leaves out NULLs. {BOUNDS}",
        example="JSON_OBJECTAGG(KEY name VALUE cnt)",
        example_result='{"ant":3,"bee":8,"cow":null}',
        read_cost=ReadCost.ALL,
        order=Order.ARGUMENT,
        constant=Constant.ON_NULL,
        distinction=Distinction.REFUSED,
        keeps_nulls=True,
    ),
    Function(
        "HISTOGRAM",
        accumulators=multiset_of,
        result=lambda _: STRING,
        value=_histogram,
        about="How often each value occurs, as the text of a JSON object, sorted by the values. "
        f"{BOUNDS}",
        example="HISTOGRAM(name)",
        example_result='{"ant":2,"bee":2,"cow":1}',
        read_cost=ReadCost.ALL,
        distinction=Distinction.REFUSED,
    ),
)
