"""Entries: what generated code does with the entries of a multiset, (value, times) in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from typing import Any

from jobs.core.accumulators.base import Site
from jobs.core.change import Value
from schemas.types import Kind

Entries = Iterable[tuple[Any, int]]
Walk = Callable[[bool], Entries]  # from the greatest value on, or from the least


def once(entries: Entries) -> Iterator[tuple[Any, int]]:
    """Each value, whatever its multiplicity: DISTINCT."""
    for value, _ in entries:
        yield value, 1


def last_parts(entries: Entries) -> Iterator[tuple[Any, int]]:
    """Of rows what is behind the order."""
    for value, times in entries:
        yield value[-1], times


def first_of(entries: Entries) -> Value:
    """The first value."""
    for value, _ in entries:
        found: Value = value
        return found
    return None


def in_order(entries: Entries, order: tuple[tuple[bool, bool], ...]) -> Iterator[tuple[Any, int]]:
    """Rows sorted by their parts, each with a direction and a place for its NULLs: (descending,
    NULLs first)."""

    def compared(left: tuple[Any, int], right: tuple[Any, int]) -> int:
        for (descending, nulls_first), a, b in zip(order, left[0], right[0], strict=True):
            if a is None or b is None:
                if a is not b:
                    return -1 if (a is None) is nulls_first else 1
            elif a != b and not (a != a and b != b):
                less = b != b or (a == a and a < b)  # NaN is the greatest
                return -1 if less is not descending else 1
        return 0

    yield from sorted(entries, key=cmp_to_key(compared))


RUNTIME = (once, last_parts, first_of, in_order)


def ordered_entries(site: Site, *, from_the_end: bool = False) -> str:
    """The code of an aggregate's entries in the order that it asks for, or in the opposite one;
    of rows the whole rows. As long as all parts go in one direction, nothing is sorted."""
    order = site.aggregate.order
    rows = site.argument.kind is Kind.ROW
    directions = {(each.descending, each.nulls_first) for each in order}
    if not order or directions <= {(False, True)} or directions <= {(True, False)}:
        descending = bool(order) and order[0].descending
        return f"{site.walk}({descending is not from_the_end})"
    keys = tuple(
        (each.descending is not from_the_end, each.nulls_first is not from_the_end)
        for each in order
    )
    if rows:
        return f"in_order({site.walk}(False), {keys})"
    return f"{site.walk}({keys[0][0]})"  # no NULLs are among single values


def single_values(site: Site) -> str:
    """The same with what each row stands for, and DISTINCT values once."""
    found = ordered_entries(site)
    if site.aggregate.distinct:
        found = f"once({found})"
    return f"last_parts({found})" if site.argument.kind is Kind.ROW else found
