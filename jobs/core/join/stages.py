"""The stages of a job's joins: who reads the rows of each source, and what each join keeps.

    orders ───► side o ─┐
    customers ► side c ─┴─ join ─► side of both ─┐
    shipped ──► side s ──────────────────────────┴─ join ─► the views that join alike

A side is the arrangement of one input of a join. Its state is that of the query
`SELECT key.., column.., COUNT(*) ... GROUP BY key.., column..`, so merges, savepoints and readers
treat it as any other. Its name has a hash of its join and its tree: no other finds its rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jobs.core.plan.relations import columns_in, list_joins, list_scans
from jobs.core.plan.tree import Aggregate, Column, Expression, Join, Named, Plan, Relation, Scan
from jobs.core.plan.walk import replace_parts
from schemas.types.sql_types import BIGINT

# No view has such a name, because a view's name has no underscore.
JOIN_PREFIX, SOURCE_PREFIX = "join_", "source_"


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join."""

    name: str  # of its part of the table
    inputs: Plan  # the key and the columns of each row, as group and arguments
    state: Plan


@dataclass(frozen=True, slots=True)
class JoinStage:
    """A join and its sides."""

    join: Join
    left: Side
    right: Side


@dataclass(frozen=True, slots=True)
class JoinTree:
    """The joins of the views that join alike, the first one first; it has the columns of all."""

    relation: Join
    stages: tuple[JoinStage, ...]
    views: tuple[str, ...]


class Reader(NamedTuple):
    """Who reads the rows of a source: a side or a view, by name, with the plan for reading."""

    name: str
    plan: Plan


def subtable_of(source: str) -> str:
    """Return the name of a source's part of the table; "" is the table itself."""
    return SOURCE_PREFIX + source if source else ""


def trees_of(plans: Mapping[str, Plan]) -> tuple[JoinTree, ...]:
    """Return the trees of the views with joins, for any order of the views."""
    groups: list[dict[str, Join]] = []
    for name, plan in sorted(plans.items(), key=lambda each: each[0]):
        if isinstance(plan.relation, Join):
            for alike in groups:
                if join_alike(plan.relation, *alike.values()):
                    alike[name] = plan.relation
                    break
            else:
                groups.append({name: plan.relation})
    return tuple(map(_make_tree, groups))


def list_sides(trees: Iterable[JoinTree]) -> list[Side]:
    return [side for tree in trees for each in tree.stages for side in (each.left, each.right)]


def list_readers(
    source: str, key: tuple[Column, ...], plans: Mapping[str, Plan], trees: Iterable[JoinTree]
) -> list[Reader]:
    """Return who reads the rows of a source, of which the job keeps the last images by `key`."""
    views = [
        Reader(name, plan)
        for name, plan in plans.items()
        if plan.relation is None and plan.source == source
    ]
    sides = [
        Reader(side.name, replace(side.inputs, primary_key=key))
        for tree in trees
        for scan, side in zip(list_scans(tree.relation), sides_of_scans(tree), strict=True)
        if scan.source == source
    ]
    return [*views, *sides]


def reading_plan_of(
    source: str,
    declared: Sequence[Column],
    metadata: Sequence[Column],
    key: tuple[Column, ...],
    readers: Iterable[Reader],
) -> Plan:
    """Return the plan for decoding a source: the columns that any of its readers needs."""
    used = {column for reader in readers for column in reader.plan.used}
    return Plan(
        columns=tuple(declared),
        used=tuple(column for column in (*declared, *metadata) if column in used),
        where=None,
        group=(),
        arguments=(),
        aggregates=(),
        output=(),
        primary_key=key,
        source=source,
    )


def sides_of_scans(tree: JoinTree) -> list[Side]:
    """Return the side that gets each scan's rows, in the order of the scans."""
    return [tree.stages[0].left, *(stage.right for stage in tree.stages)]


def join_alike(*relations: Relation) -> bool:
    """Return whether trees join the same rows, whichever columns are read of these.

    Derived tables of one name may have other expressions for a column of the same name."""
    read = {each for tree in relations for scan in list_scans(tree) for each in scan.outputs}
    return len(set(map(_shape_of, relations))) == 1 and len(read) == len({e.name for e in read})


def _shape_of(relation: Relation) -> Relation:
    """Return the tree without the columns that are read."""
    if isinstance(relation, Scan):
        return replace(relation, outputs=())
    left, right = _shape_of(relation.left), replace(relation.right, outputs=())
    return replace(relation, left=left, right=right, columns=())


def _unite(relations: Sequence[Relation]) -> Relation:
    """Return a tree with the columns of several trees of one shape."""
    first, *others = relations
    if not others:
        return first
    if isinstance(first, Scan):
        outputs = (each for scan in relations if isinstance(scan, Scan) for each in scan.outputs)
        return replace(first, outputs=tuple(dict.fromkeys(outputs)))
    joins = [each for each in relations if isinstance(each, Join)]
    right = _unite([each.right for each in joins])
    assert isinstance(right, Scan), "the right side is one scan"
    united = replace(first, left=_unite([each.left for each in joins]), right=right)
    read = {column for each in joins for column in each.columns}
    return replace(united, columns=tuple(each for each in united.inputs if each in read))


def _make_tree(joins: Mapping[str, Join]) -> JoinTree:
    relation = _unite(list(joins.values()))
    assert isinstance(relation, Join), "trees of joins have the shape of a join"
    stages = tuple(
        JoinStage(
            join,
            _make_side(relation, join, join.left, join.left_keys, "left"),
            _make_side(relation, join, join.right, join.right_keys, "right"),
        )
        for join in list_joins(relation)
    )
    return JoinTree(relation, stages, tuple(joins))


def _make_side(
    tree: Join, join: Join, relation: Relation, keys: Sequence[Expression], which: str
) -> Side:
    alias = relation.alias if isinstance(relation, Scan) else "both"
    columns = relation.columns
    # Another tree may begin with the same join, but no rows are sent to both.
    within = "" if join is tree else f"{_fingerprint(tree)} "
    hashed = hashlib.sha256(f"{within}{_fingerprint(join)} {which}".encode()).hexdigest()[:8]
    name = f"{JOIN_PREFIX}{re.sub(r'[^a-z0-9]', '', alias.lower())}_{hashed}"
    outputs = tuple(Named(column.name, column) for column in columns)
    if isinstance(relation, Scan):
        values = {each.name: each.expression for each in relation.outputs}

        def expand(part: Expression) -> Expression | None:
            return values[part.name] if isinstance(part, Column) else None

        keys = [replace_parts(key, expand) for key in keys]
        outputs = relation.outputs
    group = tuple(Named(f"{name}_key_{i}", key) for i, key in enumerate(keys, start=1))
    where = relation.where if isinstance(relation, Scan) else None
    read = [each.expression for each in (*group, *outputs)]
    used = tuple(dict.fromkeys(columns_in([where, *read])))
    inputs = Plan(used, used, where, group, outputs, (), ())
    return Side(name, inputs, _state_plan(name, group, columns))


def _state_plan(name: str, keys: tuple[Named, ...], columns: tuple[Column, ...]) -> Plan:
    """Return the plan of `SELECT key.., column.., COUNT(*) ... GROUP BY key.., column..`."""
    named = [*((each.name, each.type) for each in keys)]
    named += [(f"{name}_f{number}", each.type) for number, each in enumerate(columns, start=1)]
    read = tuple(Column(*each) for each in named)
    group = tuple(Named(each.name, each) for each in read)
    count = Aggregate("COUNT", None, f"{name}_rows", BIGINT)
    return Plan(read, read, None, group, (), (count,), ())


def _fingerprint(join: Join) -> str:
    """Return a hash of a join with all below it."""
    return Plan(join.columns, (), None, (), (), (), (), relation=join).fingerprint
