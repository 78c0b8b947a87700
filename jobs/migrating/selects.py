"""The trees of SELECTs: what their parts are, and names of Flink as the spec has them.

who.home.city           ──►  who_home_city
TUMBLE(at, INTERVAL ..) ──►  TUMBLE(ts, INTERVAL ..), if at is TO_TIMESTAMP_LTZ(ts, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlglot import exp

from jobs.core.sql import refused_names
from jobs.core.sql.aggregate_calls import AGGREGATES as KNOWN_AGGREGATES
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.first_rows import number_of_first
from jobs.core.sql.problems import function_name, split_ands
from jobs.core.sql.window_calls import WINDOWS, WORDS
from jobs.migrating.dialect import column, identifier, over_refusal, place, write
from jobs.migrating.statements import SqlFile

_AGGREGATES = frozenset((*KNOWN_AGGREGATES, *refused_names.AGGREGATES))
_CALLS_WITH_TIME = {
    *WORDS,
    *(f"{name}_{part}" for name in WINDOWS for part in ("ROWTIME", "PROCTIME")),
}
_CLAUSES = {"expressions", "distinct", "from_", "joins", "where", "group", "having"}
Nested = Mapping[tuple[str, ...], str]  # the steps to a field, and its column


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..) AS name, an item of a SELECT."""

    name: str
    keys: frozenset[str]  # names of columns
    offset: int  # of OVER

    @property
    def refusal(self) -> Refusal:
        return over_refusal(self.offset)

    def takes_first(self, where: exp.Expr | None) -> bool:
        """Return whether WHERE takes the rows with the number 1."""
        numbers = map(number_of_first, split_ands(where.this) if where else ())
        return any(isinstance(each, exp.Column) and each.name == self.name for each in numbers)


def read_numbering(item: exp.Expr) -> NumberedRows | None:
    """Return the numbering of rows that an item is, under its name; None of another item."""
    window = item.find(exp.Window)
    if window is None:
        return None
    keys = frozenset(map(last_name, window.args.get("partition_by") or ()))
    return NumberedRows(label_of(item) or "", keys, window.meta["over"])


def check_clauses(select: exp.Expr | None) -> exp.Select:
    """Return a SELECT from something; refuse clauses that no query has here."""
    if not isinstance(select, exp.Select):
        raise Refusal("expected SELECT here", place(select) if select else 0)
    if select.args.get("from_") is None:
        raise Refusal("a query needs FROM", place(select))
    distinct = select.args.get("distinct")
    for name, part in {**(distinct.args if distinct else {}), **select.args}.items():
        if part and name not in _CLAUSES:
            first = part[0] if isinstance(part, list) else part
            at = place(first if isinstance(first, exp.Expr) else select)
            raise Refusal("this part of the query is not known", at)
    return select


def is_plain_item(item: exp.Expr) -> bool:
    """Return whether an item of FROM has a name and no more: no sample, version, columns."""
    alias = item.args.get("alias")
    parts = {name for name, value in item.args.items() if value}
    return parts <= {"this", "alias", "db", "catalog"} and not (alias and alias.args.get("columns"))


def group_keys(select: exp.Select) -> list[exp.Expr]:
    group = select.args.get("group")
    return [] if group is None else group.expressions


def is_aggregated(select: exp.Select) -> bool:
    grouped = bool(select.args.get("group") or select.args.get("distinct"))
    return grouped or any(map(has_aggregate, select.expressions))


def has_aggregate(item: exp.Expr) -> bool:
    return any(function_name(each) in _AGGREGATES for each in item.find_all(exp.Anonymous))


def label_of(item: exp.Expr) -> str | None:
    """Return the name that an item has: after AS, or of its column."""
    named = isinstance(item, exp.Alias | exp.Column | exp.Dot) and not item.is_star
    return (item.alias or item.name) if named else None


def last_name(tree: exp.Expr) -> str:
    """Return a column without the name of its table; the whole text of anything else."""
    return tree.name if isinstance(tree, exp.Column | exp.Dot) else write(tree)


def rewrite(select: exp.Select, change: Callable[[exp.Expr], exp.Expr]) -> None:
    """Change the nodes of all clauses but FROM."""
    for name in ("expressions", "where", "group", "having"):
        part = select.args.get(name)
        if isinstance(part, list):
            select.set(name, [each.transform(change, copy=False) for each in part])
        elif part is not None:
            select.set(name, part.transform(change, copy=False))


def find_field(tree: exp.Expr, nested: Nested) -> str | None:
    """Return the column of the field of a ROW that a name is, with the name of a table or not."""
    if not (nested and isinstance(tree, exp.Column | exp.Dot)) or isinstance(tree.parent, exp.Dot):
        return None
    steps = tuple(part.name for part in tree.parts)
    longest = max(map(len, nested))
    ends = (steps[-length:] for length in range(min(longest, len(steps)), 0, -1))
    return next((nested[each] for each in ends if each in nested), None)


def renaming(
    nested: Nested, names: Mapping[str, str], times: Mapping[str, str] = MappingProxyType({})
) -> Callable[[exp.Expr], exp.Expr]:
    """Return what gives nested fields, other columns, and the times of windows their names."""

    def rename(tree: exp.Expr) -> exp.Expr:
        if (field := find_field(tree, nested)) is not None:
            return column(field, tree)
        part = "alias" if isinstance(tree, exp.Alias) else "this"
        if isinstance(tree, exp.Alias | exp.Column) and tree.args[part].name in names:
            tree.meta["start"] = place(tree)
            tree.set(part, identifier(names[tree.args[part].name]))
        time = tree.expressions[0] if is_over_time(tree) and tree.expressions else None
        if isinstance(time, exp.Column) and time.name in times:
            time.replace(column(times[time.name], time))
        return tree

    return rename


def is_over_time(tree: exp.Expr) -> bool:
    """Return whether a call is a window or the bound of one."""
    return function_name(tree) in _CALLS_WITH_TIME


def names_of(query: exp.Expr, file: SqlFile) -> tuple[set[str], set[str]]:
    """Return the names in a query and its views: all, and those outside the times of windows."""
    names, values = set[str](), set[str]()
    waiting, seen = [query], set[str]()
    while waiting:
        tree = waiting.pop()
        outside = tree.walk(prune=is_over_time)
        values |= {each.name for each in outside if isinstance(each, exp.Identifier)}
        names |= {each.name for each in tree.find_all(exp.Identifier)}
        tables = tree.find_all(exp.Table)
        names |= {each.meta["window"].time.name for each in tables if "window" in each.meta}
        for name in file.views.keys() & names - seen:
            seen.add(name)
            read = file.views[name].query
            waiting += [read] if isinstance(read, exp.Select) else []
    return names, values
