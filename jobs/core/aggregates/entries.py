"""Generate code that iterates over the entries (value, times) of a multiset in an order.

A multiset is sorted by its values; ROW values by their parts. If all directions of an ORDER BY are
equal, this is the requested order or its reverse. Only rows with mixed directions need sorting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from typing import Any

from jobs.core.aggregates.interfaces import Site
from jobs.core.plan.tree import Aggregate
from jobs.core.values.change import Value
from schemas.types.sql_types import Kind, SqlType

Entries = Iterable[tuple[Any, int]]
Directions = tuple[tuple[bool, bool], ...]  # for each part: descending, NULLs first


def distinct_values(entries: Entries) -> Iterator[tuple[Any, int]]:
    """Yield each value once, for DISTINCT."""
    for value, _ in entries:
        yield value, 1


def last_parts(entries: Entries) -> Iterator[tuple[Any, int]]:
    """Yield the last part of each row, after its sort key."""
    for value, times in entries:
        yield value[-1], times


def sort_entries(entries: Entries, directions: Directions) -> list[tuple[Any, int]]:
    """Return rows sorted by their parts, each part in its direction."""
    return sorted(entries, key=_sort_key(directions))


def find_first(entries: Entries, directions: Directions) -> Value:
    """Return the first row in this order, or None."""
    first = min(entries, key=_sort_key(directions), default=None)
    return None if first is None else first[0]


def _sort_key(directions: Directions) -> Callable[[tuple[Any, int]], Any]:
    def compare(left: tuple[Any, int], right: tuple[Any, int]) -> int:
        for (descending, nulls_first), a, b in zip(directions, left[0], right[0], strict=True):
            if a is None or b is None:
                if a is not b:
                    return -1 if (a is None) is nulls_first else 1
            elif a != b and not (a != a and b != b):
                less = b != b or (a == a and a < b)  # NaN is the greatest value
                return -1 if less is not descending else 1
        return 0

    return cmp_to_key(compare)


RUNTIME = (distinct_values, last_parts, sort_entries, find_first)


def ordered_code(site: Site) -> str:
    """Return the code of an aggregate's entries in its order, with whole rows."""
    directions = _directions(site.aggregate)
    if needs_sorting(site.aggregate, site.argument):
        return f"sort_entries({site.present}.entries(), {directions})"
    return f"{site.present}.entries(descending={bool(directions) and directions[0][0]})"


def first_code(site: Site, *, from_the_end: bool) -> str:
    """Return the code of the first value in that order, or of the last one."""
    directions = tuple(
        (descending is not from_the_end, nulls_first is not from_the_end)
        for descending, nulls_first in _directions(site.aggregate)
    )
    if needs_sorting(site.aggregate, site.argument):
        return f"find_first({site.present}.entries(), {directions})"
    descending = directions[0][0] if directions else from_the_end
    return f"{site.present}.first(descending={descending})"


def values_code(site: Site) -> str:
    """Return the code of the values in that order, without sort keys, and DISTINCT ones once."""
    code = ordered_code(site)
    if site.aggregate.distinct:
        code = f"distinct_values({code})"
    return f"last_parts({code})" if site.argument.kind is Kind.ROW else code


def place_of(aggregate: Aggregate) -> int:
    """Return which part of a row is the value: the last, unless sort keys come after it."""
    is_end = aggregate.function in ("FIRST_VALUE", "LAST_VALUE")
    return int(aggregate.parameters[0]) if is_end and aggregate.parameters else -1


def item_type(argument: SqlType) -> SqlType:
    """Return the type of the values, without sort keys."""
    return argument.items[-1] if argument.kind is Kind.ROW else argument


def needs_sorting(aggregate: Aggregate, argument: SqlType) -> bool:
    """Return whether the aggregate's order is neither the multiset's order nor its reverse.

    Single values are never NULL; in rows NULL is the smallest value."""
    directions = _directions(aggregate)
    one_way = len(set(directions)) <= 1 and all(down is not first for down, first in directions)
    return argument.kind is Kind.ROW and not one_way


def _directions(aggregate: Aggregate) -> Directions:
    return tuple((each.descending, each.nulls_first) for each in aggregate.order)
