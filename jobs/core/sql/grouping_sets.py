"""Grouping sets: GROUPING SETS, ROLLUP and CUBE, and the columns of the key in each set.

    GROUP BY ROLLUP(a, b)  ──►  {a, b}, {a}, {}       sets 0, 1, 2

    row (a, b)  ──►  (a, b, set 0)     key (a,    b,    GROUPING = 0)
                     (a, b, set 1)         (a,    NULL, GROUPING = 1)
                     (a, b, set 2)         (NULL, NULL, GROUPING = 3)

A row becomes one row for each set, as it does for each of its windows; nothing else treats these
rows differently. GROUPING over all keys is a column of the key. So a NULL of the data and a NULL of
the set belong to different groups. Equal sets give equal rows, which differ in GROUP_ID, another
column of the key; with GROUP BY DISTINCT they count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

from sqlglot import exp

from jobs.core.plan.tree import (
    Call,
    Case,
    Cast,
    Column,
    Compare,
    Constant,
    Expression,
    In,
    Named,
    Plan,
    SetNumber,
)
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.plan.walk import replace_parts
from jobs.core.values.change import Row
from schemas.limits import GROUPING_SETS_MAX
from schemas.types.sql_types import BIGINT, BOOLEAN, INT

# The additional column of rows with sets; a user's column cannot have a blank in its name.
SET_COLUMN = "grouping set"
_SETS = (exp.GroupingSets, exp.Rollup, exp.Cube, exp.Tuple)

NodeSet = tuple[exp.Expr, ...]


# --- reading -------------------------------------------------------------------------------------


def has_sets(nodes: Sequence[exp.Expr]) -> bool:
    return any(isinstance(node, _SETS) for node in nodes)


def read_sets(nodes: Sequence[exp.Expr]) -> list[NodeSet]:
    """Return the sets of GROUP BY: each combination of one set of every element."""
    choices = [_element_sets(node) for node in nodes]
    count = 1
    for each in choices:
        count *= len(each)
    if count > GROUPING_SETS_MAX:
        raise TypeProblem(
            f"GROUP BY has {count} sets; at most {GROUPING_SETS_MAX} are possible, because every "
            "row counts in each set"
        )
    return [tuple(node for part in chosen for node in part) for chosen in product(*choices)]


def _element_sets(node: exp.Expr) -> list[NodeSet]:
    if isinstance(node, exp.GroupingSets):
        return [each for inner in node.expressions for each in _element_sets(inner)]
    if isinstance(node, exp.Rollup):
        parts = [_element_columns(each) for each in node.expressions]
        return [_concatenate(parts[:length]) for length in range(len(parts), -1, -1)]
    if isinstance(node, exp.Cube):
        parts = [_element_columns(each) for each in node.expressions]
        if 2 ** len(parts) > GROUPING_SETS_MAX:
            most = GROUPING_SETS_MAX.bit_length() - 1
            raise TypeProblem(f"CUBE can have at most {most} columns, each of which doubles it")
        lengths = range(len(parts), -1, -1)
        return [_concatenate(some) for length in lengths for some in combinations(parts, length)]
    return [_element_columns(node)]


def _element_columns(node: exp.Expr) -> NodeSet:
    """Return the columns of an element: (a, b) has two, a column is its own."""
    if isinstance(node, exp.Paren):
        return _element_columns(node.this)
    if not isinstance(node, exp.Tuple):
        return (node,)
    return tuple(part for each in node.expressions for part in _element_columns(each))


def _concatenate(parts: Sequence[NodeSet]) -> NodeSet:
    return tuple(node for part in parts for node in part)


# --- the key in sets -----------------------------------------------------------------------------


class KeySets:
    """The columns of the key, and the sets that contain them.

    `set_columns` are the columns as rows with set numbers have them: NULL outside of their sets."""

    def __init__(self, sets: Sequence[Sequence[Expression]], *, distinct: bool = False) -> None:
        keys = list(dict.fromkeys(key for each in sets for key in each))
        self.sets = [frozenset(map(keys.index, each)) for each in sets]
        if distinct:
            self.sets = list(dict.fromkeys(self.sets))
        self.keys = keys
        self.set_columns = [self._set_column(index, key) for index, key in enumerate(keys)]

    def _set_column(self, index: int, key: Expression) -> Expression:
        """Return an expression: the column in its sets, NULL in the others."""
        numbers = [number for number, each in enumerate(self.sets) if index in each]
        if len(numbers) == len(self.sets):
            return key
        choices = tuple(Constant(number, INT) for number in numbers)
        return Case(((In(SetNumber(INT), choices, BOOLEAN), key),), None, key.type)

    @property
    def has_several(self) -> bool:
        return len(self.sets) > 1

    @property
    def ids(self) -> list[Expression]:
        """The columns that tell the sets apart: GROUPING, and GROUP_ID if some are equal."""
        earlier = [self.sets[:number].count(each) for number, each in enumerate(self.sets)]
        group_id = Call("GROUP_ID", tuple(Constant(count, BIGINT) for count in earlier), BIGINT)
        return [Call("GROUPING", tuple(self.set_columns), BIGINT), *([group_id] * any(earlier))]

    def rewrite(self, expression: Expression) -> Expression:
        """Return an expression of the result over `set_columns` instead of the plain columns."""

        def change(part: Expression) -> Expression | None:
            if part in self.set_columns:
                return part
            if part in self.keys:
                return self.set_columns[self.keys.index(part)]
            if isinstance(part, Call) and part.function == "GROUPING":
                return self._grouping(part)
            return None

        return replace_parts(expression, change)

    def _grouping(self, call: Call) -> Expression:
        unknown = [each for each in call.arguments if each not in (*self.keys, *self.set_columns)]
        if unknown:
            raise TypeProblem("GROUPING needs columns of GROUP BY", "GROUPING(k)")
        if not self.has_several:
            return Cast(Constant(0, INT), BIGINT)
        arguments = (
            self.set_columns[self.keys.index(each)] if each in self.keys else each
            for each in call.arguments
        )
        return Call("GROUPING", tuple(arguments), BIGINT)


def split_set_key(key: Expression) -> tuple[In, Expression] | None:
    """Return the sets of a key column as a condition, and the column; None if all sets have it."""
    if not isinstance(key, Case) or len(key.branches) != 1:
        return None
    when, value = key.branches[0]
    if not isinstance(when, In):
        return None
    by_number = isinstance(when.operand, SetNumber)
    by_column = isinstance(when.operand, Column) and when.operand.name == SET_COLUMN
    return (when, value) if by_number or by_column else None


def sets_of_plan(plan: Plan) -> list[list[Expression]]:
    """Return the grouping sets of a plan, each as the key columns that it contains."""
    ids = [named.expression for named in plan.group if isinstance(named.expression, Call)]
    ids = [each for each in ids if each.function == "GROUPING"]
    all_keys = max((each.arguments for each in ids), key=len) if ids else ()
    return [list(_members(all_keys, number)) for number in range(plan.grouping_sets)]


def _members(keys: Sequence[Expression], number: int) -> Iterator[Expression]:
    for key in keys:
        split = split_set_key(key)
        if split is None:
            yield key
        elif number in [getattr(each, "value", None) for each in split[0].choices]:
            yield split[1]


def _id_of_number(call: Call, number: Column, sets: int) -> Expression:
    """Return GROUPING or GROUP_ID over the number of a row's set.

    GROUPING has a bit for each key, 1 if the set lacks it."""

    def grouping(of_set: int) -> Expression:
        bits = 0
        for argument in call.arguments:
            split = split_set_key(argument)
            members = () if split is None else split[0].choices
            lacks = split is not None and all(getattr(c, "value", None) != of_set for c in members)
            bits = bits * 2 + lacks
        return Constant(bits, BIGINT)

    ids = call.arguments if call.function == "GROUP_ID" else map(grouping, range(sets))
    branches = tuple(
        (Compare("=", number, Constant(of_set, INT), BOOLEAN), value)
        for of_set, value in enumerate(ids)
    )
    return Case(branches, None, BIGINT)


# --- rows ----------------------------------------------------------------------------------------


def set_number_projection(plan: Plan) -> Callable[[Row], list[Row]]:
    """Return a function from a row to one row for each set, with the set's number appended."""
    numbers = range(plan.grouping_sets)
    return lambda row: [(*row, number) for number in numbers]


def with_set_numbers(plan: Plan) -> Plan:
    """Return the plan over rows with set numbers, which itself has no grouping sets."""
    column = Column(SET_COLUMN, INT)

    def change(part: Expression) -> Expression | None:
        if isinstance(part, Call) and part.function in ("GROUPING", "GROUP_ID"):
            return _id_of_number(part, column, plan.grouping_sets)
        return column if isinstance(part, SetNumber) else None

    def rewrite(named: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(each.name, replace_parts(each.expression, change)) for each in named)

    return replace(
        plan,
        columns=(*plan.columns, column),
        used=(*plan.used, column),
        group=rewrite(plan.group),
        grouping_sets=1,
    )
