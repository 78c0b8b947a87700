"""The types of a sink's columns: an INSERT casts its results to them, as in Flink.

avg_price DECIMAL(10, 2) of the sink, and AVG(price), which is a DECIMAL(38, 6)
    ──►  CAST(AVG(price) AS DECIMAL(10, 2)) AS avg_price
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from jobs.core.plan.tree import Named, Plan, WindowBound
from jobs.core.plan.typing_rules import can_cast, cast_can_fail
from jobs.core.plan.walk import walk
from jobs.migrating.dialect import cast, identifier
from jobs.migrating.problems import Note
from jobs.migrating.relations import Query
from jobs.migrating.selects import group_keys
from jobs.migrating.sources import spec_type
from jobs.migrating.statements import TableColumn
from schemas.types.sql_types import INTEGER_BITS, STRING, Kind, SqlType, array_of


def cast_results(
    query: Query, plan: Plan, columns: Sequence[TableColumn | None], *, keyed: bool
) -> Iterator[Note]:
    """Cast the results to the types of the sink's columns; yield a note for each that stays.

    With `keyed` the records of the sink have the group as their key."""
    keys = {named.name: named for named in plan.group}
    types, items = result_types(plan), query.select.expressions
    for index, (name, column) in enumerate(zip(plan.output, columns, strict=True)):
        kind, wanted = types[name], _sink_type(column.type if column else None)
        if column is None or wanted is None or _are_written_alike(kind, wanted):
            continue
        key, expression = keys.get(name), items[index].unalias()
        if key is None:
            possible = kind != STRING
        else:  # a key that fails takes its row along; and the record's key would keep the group's
            possible = not (cast_can_fail(kind, wanted) or keyed)
            possible = possible and _stays_a_key(key, expression, query, plan)
        # Flink makes no STRING by itself: a result that is none has another type there already.
        if possible and can_cast(kind, wanted) and wanted != STRING:
            made = exp.Alias(this=cast(expression, wanted), alias=identifier(name))
            query.select.set("expressions", made, index)
        elif not _is_noted(key, kind, plan):
            text = f"{name} is {kind} here; in Flink {wanted}, as in the sink"
            yield Note(text, True, column.offset)


def result_types(plan: Plan) -> dict[str, SqlType]:
    """Return the types of a plan's results, in their order."""
    types = dict(plan.key) | dict(plan.results)
    return {name: types[name] for name in plan.output}


def _sink_type(kind: exp.DataType | None) -> SqlType | None:
    """Return the type of a sink's column; None if no result can have it."""
    if kind is not None and kind.this is exp.DType.ARRAY and kind.expressions:
        element = _sink_type(kind.expressions[0])
        return None if element is None else array_of(element)
    return None if kind is None else spec_type(kind)


def _are_written_alike(kind: SqlType, wanted: SqlType) -> bool:
    """Return whether a sink shows the same for all values of a type, with a cast or without."""
    if kind.integer and wanted.integer:
        return INTEGER_BITS[kind.kind] <= INTEGER_BITS[wanted.kind]
    if kind.kind is not wanted.kind:
        return False
    if kind.kind is Kind.ARRAY:
        return _are_written_alike(kind.items[0], wanted.items[0])
    return kind.scale == wanted.scale and (kind.precision or 0) <= (wanted.precision or 0)


def _stays_a_key(key: Named, expression: exp.Expr, query: Query, plan: Plan) -> bool:
    """Return whether a key may be cast where it is selected, and the groups stay as they are."""
    if is_over_bounds(key):  # those of a session change, so that no expression may be over them
        return plan.window is not None and plan.window.function != "SESSION"
    return expression in group_keys(query.select)


def is_over_bounds(key: Named) -> bool:
    return any(isinstance(part, WindowBound) for part in walk(key.expression))


def _is_noted(key: Named | None, kind: SqlType, plan: Plan) -> bool:
    """Return whether the query has a note already: for a bound of a session in milliseconds."""
    session = plan.window is not None and plan.window.function == "SESSION"
    return key is not None and session and is_over_bounds(key) and kind.kind is not Kind.TIMESTAMP
