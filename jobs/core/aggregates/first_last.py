"""FIRST_VALUE and LAST_VALUE by an order, ARG_MIN and ARG_MAX: one end of a multiset.

The argument is a ROW of the sort key and the value, so the multiset has the requested order. For
equal sort keys the value decides, so the result does not depend on the bundles. With RESPECT NULLS
the sort keys after the value are in the ROW too: calls with the same sort keys, of which each value
is one, are of one row.
"""

from __future__ import annotations

from jobs.core.aggregates.entries import first_code, item_type, place_of
from jobs.core.aggregates.extremes import multiset_of
from jobs.core.aggregates.interfaces import Constant, Distinction, Function, Order, ReadCost, Site
from schemas.types.sql_types import Kind, array_of


def _edge_function(
    name: str,
    *,
    last: bool,
    order: Order,
    about: str,
    example: str,
    example_result: str,
    synonyms: tuple[str, ...] = (),
) -> Function:
    def value(site: Site) -> list[str]:
        first = first_code(site, from_the_end=last)
        if site.argument.kind is not Kind.ROW:
            return [f"{site.target} = {first}"]
        part = f"row[{place_of(site.aggregate)}]"
        return [f"row = {first}", f"{site.target} = None if row is None else {part}"]

    return Function(
        name,
        accumulators=multiset_of,
        result=item_type,
        value=value,
        about=about,
        example=example,
        example_result=example_result,
        synonyms=synonyms,
        read_cost=ReadCost.FEW,
        order=order,
        distinction=Distinction.SAME if order is Order.ARGUMENT else Distinction.REFUSED,
        may_keep_nulls=order is Order.NEEDED,
    )


def _edge_list(name: str, *, last: bool, of: str, example_result: tuple[str, ...]) -> Function:
    def value(site: Site) -> list[str]:
        (count,) = site.aggregate.parameters
        entries = f"last_parts({site.present}.entries(descending={last}))"
        return [f"{site.target} = take_first({entries}, {count}, misfits)"]

    short = name.removesuffix("_N")
    return Function(
        name,
        accumulators=multiset_of,
        result=lambda argument: array_of(item_type(argument)),
        value=value,
        about=f"The first arguments of the k rows with the {of} second arguments, as an ARRAY in "
        f"this order; `{short}(x, y, k)` is the same. Rows count as for {short}; k is from 1 to "
        "1,000. An ARRAY of more than 250,000 characters is NULL.",
        example=f"{name}(name, cnt, 2)",
        example_result=example_result,
        read_cost=ReadCost.FEW,
        order=Order.ARGUMENT,
        constant=Constant.COUNT,
        distinction=Distinction.REFUSED,
    )


TIES = "For equal sort keys, the {} value counts. Rows without a value are ignored"
RESPECT = ", unless the call has RESPECT NULLS. With these, {} is the same."

FUNCTIONS = (
    _edge_function(
        "FIRST_VALUE",
        last=False,
        order=Order.NEEDED,
        about="The value of the first row by ORDER BY. "
        + TIES.format("first")
        + RESPECT.format("FIRST"),
        example="FIRST_VALUE(name ORDER BY day)",
        example_result="ant",
    ),
    _edge_function(
        "LAST_VALUE",
        last=True,
        order=Order.NEEDED,
        about="The value of the last row by ORDER BY. "
        + TIES.format("last")
        + RESPECT.format("LAST"),
        example="LAST_VALUE(name ORDER BY day)",
        example_result="bee",
    ),
    _edge_function(
        "ARG_MIN",
        last=False,
        order=Order.ARGUMENT,
        about="The first argument of the row with the smallest second argument. "
        + TIES.format("smallest")
        + ", and so are rows whose second argument is NULL.",
        example="ARG_MIN(name, cnt)",
        example_result="ant",
        synonyms=("MIN_BY", "ARGMIN"),
    ),
    _edge_function(
        "ARG_MAX",
        last=True,
        order=Order.ARGUMENT,
        about="The first argument of the row with the greatest second argument. "
        + TIES.format("greatest")
        + ", and so are rows whose second argument is NULL.",
        example="ARG_MAX(name, cnt)",
        example_result="bee",
        synonyms=("MAX_BY", "ARGMAX"),
    ),
    _edge_list("ARG_MIN_N", last=False, of="smallest", example_result=("ant", "ant")),
    _edge_list("ARG_MAX_N", last=True, of="greatest", example_result=("bee", "bee")),
)
