"""FIRST_VALUE and LAST_VALUE by an order, ARG_MIN and ARG_MAX: one row from an end of the multiset.

The argument is a ROW of the order and the value, so the multiset is in the order that is asked
for; of rows that are equal in it the value decides, and the result does not depend on how the
stream was cut.
"""

from __future__ import annotations

from jobs.core.aggregates.base import Distinction, Function, Order, Reading, Site
from jobs.core.aggregates.entries import first_entry, item_type
from jobs.core.aggregates.multiset import multiset_of
from schemas.types.sql_types import Kind


def _edge(
    name: str,
    *,
    last: bool,
    order: Order,
    about: str,
    example: str,
    gives: str,
    synonyms: tuple[str, ...] = (),
) -> Function:
    def value(site: Site) -> list[str]:
        lines = [f"{site.target} = {first_entry(site, from_the_end=last)}"]
        if site.argument.kind is Kind.ROW:
            lines += [
                f"if {site.target} is not None:",
                f"    {site.target} = {site.target}[-1]",
            ]
        return lines

    return Function(
        name,
        needs=multiset_of,
        result=item_type,
        value=value,
        about=about,
        example=example,
        gives=gives,
        synonyms=synonyms,
        reading=Reading.FEW,
        order=order,
        distinction=Distinction.REFUSED,
    )


TIES = "Of rows that are equal there, the {} value counts. Rows without a value are left out"

FUNCTIONS = (
    _edge(
        "FIRST_VALUE",
        last=False,
        order=Order.NEEDED,
        about="The value of the first row by ORDER BY. " + TIES.format("first") + ".",
        example="FIRST_VALUE(name ORDER BY day)",
        gives="ant",
    ),
    _edge(
        "LAST_VALUE",
        last=True,
        order=Order.NEEDED,
        about="The value of the last row by ORDER BY. " + TIES.format("last") + ".",
        example="LAST_VALUE(name ORDER BY day)",
        gives="bee",
    ),
    _edge(
        "ARG_MIN",
        last=False,
        order=Order.ARGUMENT,
        about="The first argument where the second is least. "
        + TIES.format("least")
        + ", as are those where the second argument is NULL.",
        example="ARG_MIN(name, cnt)",
        gives="ant",
        synonyms=("MIN_BY",),
    ),
    _edge(
        "ARG_MAX",
        last=True,
        order=Order.ARGUMENT,
        about="The first argument where the second is greatest. "
        + TIES.format("greatest")
        + ", as are those where the second argument is NULL.",
        example="ARG_MAX(name, cnt)",
        gives="bee",
        synonyms=("MAX_BY",),
    ),
)
