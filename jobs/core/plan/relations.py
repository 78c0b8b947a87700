"""Walk and rewrite what FROM joins: a tree of scans and joins.

A column of a scan's rows has the name ALIAS.NAME, so the names in a tree are unique.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from jobs.core.plan.tree import Column, Expression, Join, Logical, Relation, Scan
from jobs.core.plan.walk import replace_parts, walk
from schemas.types.sql_types import BOOLEAN


def bare_name(name: str) -> str:
    """Return the name of a column without the alias that a scan puts before it."""
    return name.rpartition(".")[2]


def list_scans(relation: Relation) -> list[Scan]:
    """Return the scans of a tree from left to right."""
    if isinstance(relation, Scan):
        return [relation]
    return [*list_scans(relation.left), relation.right]


def list_joins(relation: Relation | None) -> list[Join]:
    """Return the joins of a tree, the first one first."""
    return [*list_joins(relation.left), relation] if isinstance(relation, Join) else []


def columns_in(expressions: Iterable[Expression | None]) -> Iterator[Column]:
    """Yield the columns that expressions read, some more than once."""
    for each in expressions:
        if each is not None:
            yield from (part for part in walk(each) if isinstance(part, Column))


def aliases_in(expression: Expression) -> set[str]:
    """Return the aliases of the scans that an expression reads."""
    return {column.name.partition(".")[0] for column in columns_in([expression])}


def join_conditions(left: Expression | None, right: Expression | None) -> Expression | None:
    """Return both conditions as one."""
    if left is None or right is None:
        return right if left is None else left
    return Logical("AND", left, right, BOOLEAN)


def push_condition(relation: Relation, condition: Expression) -> Relation | None:
    """Return the tree with a condition on its rows evaluated in a scan, or None.

    A condition may pass a join only into a side whose rows the join does not fill with NULL.
    """
    if isinstance(relation, Scan):
        own = {each.name: each.expression for each in relation.outputs}

        def expand(part: Expression) -> Expression | None:
            return own[part.name] if isinstance(part, Column) else None

        expanded = replace_parts(condition, expand)
        return replace(relation, where=join_conditions(relation.where, expanded))
    reads = aliases_in(condition)
    if not relation.keeps_right and reads <= {scan.alias for scan in list_scans(relation.left)}:
        left = push_condition(relation.left, condition)
        return None if left is None else replace(relation, left=left)
    if relation.kind in ("INNER", "RIGHT") and reads == {relation.right.alias}:
        right = push_condition(relation.right, condition)
        return replace(relation, right=right) if isinstance(right, Scan) else None
    return None


def prune(relation: Relation, used: Iterable[Column]) -> Relation:
    """Return the tree without columns that nothing reads; `used` are read from its rows."""
    read = set(used)
    if isinstance(relation, Scan):
        kept = tuple(each for each in relation.outputs if Column(each.name, each.type) in read)
        return replace(relation, outputs=kept)
    keys = [*relation.left_keys, *relation.right_keys, relation.residual]
    inside = read.union(columns_in(keys))
    right = prune(relation.right, inside)
    assert isinstance(right, Scan), "the right side is one scan"
    pruned = replace(relation, left=prune(relation.left, inside), right=right)
    return replace(pruned, columns=tuple(each for each in pruned.inputs if each in read))
