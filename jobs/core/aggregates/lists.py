"""STRING_AGG, ARRAY_AGG and TOP_K: many values as one.

A result that is longer than what one record should carry is NULL and counted as a misfit, and is
right again once it is short enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from jobs.core.aggregates.base import Constant, Function, Order, Reading, Site
from jobs.core.aggregates.entries import Entries, item_type, single_values
from jobs.core.aggregates.multiset import multiset_of
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.values.change import Value
from schemas.limits import LIST_CHARACTERS_MAX, LIST_VALUES_MAX
from schemas.types.sql_types import STRING, SqlType, array_of


def joined(entries: Entries, separator: str, misfits: list[int]) -> str | None:
    """The texts with the separator between them; None without texts."""
    texts: list[str] = []
    length = -len(separator)
    for text, times in entries:
        length += times * (len(text) + len(separator))
        if length > LIST_CHARACTERS_MAX or len(texts) + times > LIST_VALUES_MAX:
            misfits[0] += 1
            return None
        texts += [text] * times
    return separator.join(texts) if texts else None


def listed(entries: Entries, misfits: list[int]) -> tuple[Value, ...] | None:
    """The values as an array; None without values."""
    values: list[Value] = []
    for value, times in islice(entries, LIST_VALUES_MAX + 1):  # of more it is told by one more
        if times == 1:
            values.append(value)
        elif len(values) + times <= LIST_VALUES_MAX:
            values += [value] * times
        else:
            misfits[0] += 1
            return None
    if len(values) > LIST_VALUES_MAX or _characters(values) > LIST_CHARACTERS_MAX:
        misfits[0] += 1
        return None
    return tuple(values) if values else None


def _characters(values: Sequence[Value]) -> int:
    """Of texts how long they are together; other values are short."""
    texts = (value for value in values if value is not None)
    if not isinstance(next(texts, None), str | bytes):
        return 0
    return sum(len(value) for value in values if isinstance(value, str | bytes))


def top(entries: Entries, count: int, misfits: list[int]) -> tuple[Value, ...] | None:
    """The first `count` values as an array."""
    values: list[Value] = []
    for value, times in entries:
        values += [value] * min(times, count - len(values))
        if len(values) == count:
            break
    if _characters(values) > LIST_CHARACTERS_MAX:
        misfits[0] += 1
        return None
    return tuple(values) if values else None


RUNTIME = (joined, listed, top)


def _text_type(argument: SqlType) -> SqlType:
    item = item_type(argument)
    if item != STRING:
        raise TypeProblem(f"STRING_AGG needs a STRING, this is {item}", "CAST(x AS STRING)")
    return STRING


def _string_agg(site: Site) -> list[str]:
    (separator,) = site.aggregate.parameters
    return [f"{site.target} = joined({single_values(site)}, {separator!r}, misfits)"]


def _array_agg(site: Site) -> list[str]:
    return [f"{site.target} = listed({single_values(site)}, misfits)"]


def _top_k(site: Site) -> list[str]:
    (count,) = site.aggregate.parameters
    entries = f"{site.present}.entries(descending=True)"
    entries = f"once({entries})" if site.aggregate.distinct else entries
    return [f"{site.target} = top({entries}, {count}, misfits)"]


BOUNDS = (
    f"Beyond {LIST_CHARACTERS_MAX:,} characters or {LIST_VALUES_MAX:,} values it is NULL, and "
    "counted as a misfit."
)
WITHOUT_ORDER = "Without ORDER BY the values come in their own order."

FUNCTIONS = (
    Function(
        "STRING_AGG",
        needs=multiset_of,
        result=_text_type,
        value=_string_agg,
        about="The texts, one behind the other, with the separator (`,` unless said) between "
        f"them. {WITHOUT_ORDER} {BOUNDS}",
        example="STRING_AGG(name, '; ' ORDER BY day DESC)",
        gives="bee; cow; ant; bee; ant",
        synonyms=("LISTAGG",),
        reading=Reading.ALL,
        order=Order.OPTIONAL,
        constant=Constant.SEPARATOR,
    ),
    Function(
        "ARRAY_AGG",
        needs=multiset_of,
        result=lambda argument: array_of(item_type(argument)),
        value=_array_agg,
        about=f"The values as an ARRAY, NULLs too unless IGNORE NULLS is said. {WITHOUT_ORDER} "
        f"{BOUNDS}",
        example="ARRAY_AGG(cnt ORDER BY day)",
        gives=(3, 5, 3, None, 8),
        reading=Reading.ALL,
        order=Order.OPTIONAL,
        keeps_nulls=True,
    ),
    Function(
        "TOP_K",
        needs=multiset_of,
        result=array_of,
        value=_top_k,
        about="The k greatest values as an ARRAY, the greatest first; equal ones count each.",
        example="TOP_K(cnt, 3)",
        gives=(8, 5, 3),
        reading=Reading.FEW,
        constant=Constant.COUNT,
    ),
)
