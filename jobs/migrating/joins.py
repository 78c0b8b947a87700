"""The joins of a FROM, and those that have no counterpart."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from jobs.core.sql.dialect import Refusal
from jobs.migrating.dialect import place
from jobs.migrating.relations import Relation
from jobs.migrating.selects import find_field, renaming, rewrite
from jobs.migrating.statements import SqlFile

_STREAMS = ("kafka", "upsert-kafka")
_WINDOW = "window joins have no counterpart: join the rows, and count them by time in GROUP BY"
_OF_RESULTS = (
    "a join with the results of a GROUP BY is not supported; write a job for {name}, and join its "
    "changelog (format: changelog-json) in the spec of a second one"
)
NESTED_JOIN = (
    "a join in a derived table or in parentheses is not supported; join in the outer query"
)
_INTERVAL = (
    "interval joins have no counterpart: a job keeps the rows of both tables for good, and drops "
    "no late ones; join without the times, or write the condition into the spec by hand"
)
_TEMPORAL = (
    "temporal joins have no counterpart: a job joins the current rows, and corrects its results "
    "when they change; join without FOR SYSTEM_TIME AS OF"
)
_LOOKUP = (
    "lookup joins have no counterpart: {name} is not a table of Kafka; bring its changes into a "
    "topic, and join that without FOR SYSTEM_TIME AS OF"
)
_OF_ROW = (
    "fields of a ROW in a join are not supported; name them in a derived table, as in "
    "(SELECT who.city AS city FROM t) AS t"
)


def refuse_versions(item: exp.Expr, file: SqlFile) -> None:
    """Refuse a join with a version of a table."""
    version = item.args.get("version")
    if version is None:
        return
    table = file.tables.get(item.name)
    connector = None if table is None else table.options.get("connector")
    is_stream = connector is None or connector.value in _STREAMS
    raise Refusal(_TEMPORAL if is_stream else _LOOKUP.format(name=item.name), place(version))


def refuse_side(side: Relation, offset: int) -> None:
    """Refuse what may stand alone in FROM, and not in a join."""
    if side.joined:
        raise Refusal(NESTED_JOIN, offset)
    if side.window is not None:
        raise Refusal(_WINDOW, offset)
    if side.numbered is not None:
        raise side.numbered.refusal
    if side.inner is not None:
        raise Refusal(_OF_RESULTS.format(name=side.inner.name), offset)


def refuse_intervals(condition: exp.Expr, sides: Sequence[Relation]) -> None:
    """Refuse a condition over the times, of WATERMARK FOR, of two tables."""
    times = {
        (side.alias, side.source.times.name)
        for side in sides
        if side.source is not None and side.source.times is not None
    }
    named = {(each.table, each.name) for each in condition.find_all(exp.Column)}
    if len(times & named) > 1:
        raise Refusal(_INTERVAL, place(condition))


def rename_joined(select: exp.Select, sides: Sequence[Relation]) -> None:
    """Give the times of the tables of a join their names of the spec."""
    sources = [side.source for side in sides if side.source is not None]
    nested = {steps: field for source in sources for steps, field in source.nested.items()}
    names = {name: other for source in sources for name, other in source.replaced.items()}

    def rename(tree: exp.Expr) -> exp.Expr:
        if find_field(tree, nested) is not None:
            raise Refusal(_OF_ROW, place(tree))
        name = tree.name if isinstance(tree, exp.Column) else ""
        if name in names and sum(name in side.visible for side in sides) > 1:
            reason = f"{name} is a time of one table and a column of another one; rename one"
            raise Refusal(reason, place(tree))
        return renaming({}, names)(tree)

    rewrite(select, rename)
    for join in select.args["joins"]:
        if (condition := join.args.get("on")) is not None:
            join.set("on", condition.transform(rename, copy=False))
