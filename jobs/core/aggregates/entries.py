"""Entries: what generated code does with those of a multiset, (value, times) in their order.

A multiset is in the order of its values, and rows of order and value in that of their parts. Where
an ORDER BY goes all in one direction that is the order asked for, or its opposite; only rows whose
parts go in different ones have to be sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from typing import Any

from jobs.core.aggregates.base import Site
from jobs.core.plan.tree import Aggregate
from jobs.core.values.change import Value
from schemas.types.sql_types import Kind, SqlType

Entries = Iterable[tuple[Any, int]]
Directions = tuple[tuple[bool, bool], ...]  # of each part: descending, NULLs first


def once(entries: Entries) -> Iterator[tuple[Any, int]]:
    """Each value, whatever its multiplicity: DISTINCT."""
    for value, _ in entries:
        yield value, 1


def last_parts(entries: Entries) -> Iterator[tuple[Any, int]]:
    """Of rows what is behind the order."""
    for value, times in entries:
        yield value[-1], times


def in_order(entries: Entries, directions: Directions) -> list[tuple[Any, int]]:
    """Rows sorted by their parts, each in its direction."""
    return sorted(entries, key=_sorting(directions))


def first_in_order(entries: Entries, directions: Directions) -> Value:
    """The row that would be the first of them."""
    found = min(entries, key=_sorting(directions), default=None)
    return None if found is None else found[0]


def _sorting(directions: Directions) -> Callable[[tuple[Any, int]], Any]:
    def compared(left: tuple[Any, int], right: tuple[Any, int]) -> int:
        for (descending, nulls_first), a, b in zip(directions, left[0], right[0], strict=True):
            if a is None or b is None:
                if a is not b:
                    return -1 if (a is None) is nulls_first else 1
            elif a != b and not (a != a and b != b):
                less = b != b or (a == a and a < b)  # NaN is the greatest
                return -1 if less is not descending else 1
        return 0

    return cmp_to_key(compared)


RUNTIME = (once, last_parts, in_order, first_in_order)


def ordered_entries(site: Site) -> str:
    """The code of an aggregate's entries in the order that it asks for; of rows the whole rows."""
    directions = _directions(site.aggregate)
    if mixed(site.aggregate, site.argument):
        return f"in_order({site.present}.entries(), {directions})"
    return f"{site.present}.entries(descending={bool(directions) and directions[0][0]})"


def first_entry(site: Site, *, from_the_end: bool) -> str:
    """The code of the first value in that order, or of the last one."""
    directions = tuple(
        (descending is not from_the_end, nulls_first is not from_the_end)
        for descending, nulls_first in _directions(site.aggregate)
    )
    if mixed(site.aggregate, site.argument):
        return f"first_in_order({site.present}.entries(), {directions})"
    descending = directions[0][0] if directions else from_the_end
    return f"{site.present}.first(descending={descending})"


def single_values(site: Site) -> str:
    """The entries with what each row stands for, and DISTINCT values once."""
    found = ordered_entries(site)
    if site.aggregate.distinct:
        found = f"once({found})"
    return f"last_parts({found})" if site.argument.kind is Kind.ROW else found


def item_type(argument: SqlType) -> SqlType:
    """The type of what each row stands for."""
    return argument.items[-1] if argument.kind is Kind.ROW else argument


def mixed(aggregate: Aggregate, argument: SqlType) -> bool:
    """Whether the multiset goes in another order than the aggregate's, forwards and backwards.
    There are no NULLs among single values; in rows they are the least."""
    directions = _directions(aggregate)
    one_way = len(set(directions)) <= 1 and all(down is not first for down, first in directions)
    return argument.kind is Kind.ROW and not one_way


def _directions(aggregate: Aggregate) -> Directions:
    return tuple((each.descending, each.nulls_first) for each in aggregate.order)
