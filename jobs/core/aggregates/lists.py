"""STRING_AGG, ARRAY_AGG and TOP_K: many values in one result.

A result that is too long for one record is NULL and counts as a misfit. It has a value again as
soon as it is short enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from jobs.core.aggregates.entries import Entries, item_type, values_code
from jobs.core.aggregates.extremes import multiset_of
from jobs.core.aggregates.interfaces import Constant, Function, Order, ReadCost, Site
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.values.change import Value
from schemas.limits import LIST_CHARACTERS_MAX, LIST_VALUES_MAX
from schemas.types.sql_types import STRING, SqlType, array_of


def join_texts(entries: Entries, separator: str, misfits: list[int]) -> str | None:
    """Join the texts with the separator; return None without texts."""
    texts: list[str] = []
    length = -len(separator)
    for text, times in entries:
        length += times * (len(text) + len(separator))
        if length > LIST_CHARACTERS_MAX or len(texts) + times > LIST_VALUES_MAX:
            misfits[0] += 1
            return None
        texts += [text] * times
    return separator.join(texts) if texts else None


def to_array(entries: Entries, misfits: list[int]) -> tuple[Value, ...] | None:
    """Return the values as an array; None without values."""
    values: list[Value] = []
    for value, times in islice(entries, LIST_VALUES_MAX + 1):  # one more shows that it is too long
        if times == 1:
            values.append(value)
        elif len(values) + times <= LIST_VALUES_MAX:
            values += [value] * times
        else:
            misfits[0] += 1
            return None
    if len(values) > LIST_VALUES_MAX or _count_characters(values) > LIST_CHARACTERS_MAX:
        misfits[0] += 1
        return None
    return tuple(values) if values else None


def _count_characters(values: Sequence[Value]) -> int:
    """Return the total length of texts; other values count as 0."""
    texts = (value for value in values if value is not None)
    if not isinstance(next(texts, None), str | bytes):
        return 0
    return sum(len(value) for value in values if isinstance(value, str | bytes))


def take_first(entries: Entries, count: int, misfits: list[int]) -> tuple[Value, ...] | None:
    """Return the first `count` values as an array; None without values."""
    values: list[Value] = []
    for value, times in entries:
        values += [value] * min(times, count - len(values))
        if len(values) == count:
            break
    if _count_characters(values) > LIST_CHARACTERS_MAX:
        misfits[0] += 1
        return None
    return tuple(values) if values else None


RUNTIME = (join_texts, to_array, take_first)


def _text_type(argument: SqlType) -> SqlType:
    item = item_type(argument)
    if item != STRING:
        raise TypeProblem(f"STRING_AGG needs a STRING, this is {item}", "CAST(x AS STRING)")
    return STRING


def _string_agg(site: Site) -> list[str]:
    (separator,) = site.aggregate.parameters
    return [f"{site.target} = join_texts({values_code(site)}, {separator!r}, misfits)"]


def _top_k(site: Site) -> list[str]:
    (count,) = site.aggregate.parameters
    entries = f"{site.present}.entries(descending=True)"
    entries = f"distinct_values({entries})" if site.aggregate.distinct else entries
    return [f"{site.target} = take_first({entries}, {count}, misfits)"]


BOUNDS = (
    f"Beyond {LIST_CHARACTERS_MAX:,} characters or {LIST_VALUES_MAX:,} values the result is NULL "
    "and counts as a misfit."
)
WITHOUT_ORDER = "Without ORDER BY the values are sorted."

FUNCTIONS = (
    Function(
        "STRING_AGG",
        accumulators=multiset_of,
        result=_text_type,
        value=_string_agg,
        about=f"The texts, joined with the separator (default `,`). {WITHOUT_ORDER} {BOUNDS}",
        example="STRING_AGG(name, '; ' ORDER BY day DESC)",
        example_result="bee; cow; ant; bee; ant",
        synonyms=("LISTAGG",),
        read_cost=ReadCost.ALL,
        order=Order.OPTIONAL,
        constant=Constant.SEPARATOR,
    ),
    Function(
        "ARRAY_AGG",
        accumulators=multiset_of,
        result=lambda argument: array_of(item_type(argument)),
        value=lambda site: [f"{site.target} = to_array({values_code(site)}, misfits)"],
        about="The values as an ARRAY, with NULLs unless the call has IGNORE NULLS. "
        f"{WITHOUT_ORDER} {BOUNDS}",
        example="ARRAY_AGG(cnt ORDER BY day)",
        example_result=(3, 5, 3, None, 8),
        synonyms=("LIST",),
        read_cost=ReadCost.ALL,
        order=Order.OPTIONAL,
        keeps_nulls=True,
    ),
    Function(
        "TOP_K",
        accumulators=multiset_of,
        result=array_of,
        value=_top_k,
        about="The k greatest values as an ARRAY, the greatest first, with duplicates; k is from 1 "
        "to 1,000. An ARRAY of more than 250,000 characters is NULL.",
        example="TOP_K(cnt, 3)",
        example_result=(8, 5, 3),
        read_cost=ReadCost.FEW,
        constant=Constant.COUNT,
    ),
)
