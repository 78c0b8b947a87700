"""Grouping sets: GROUPING SETS, ROLLUP and CUBE, and what a column of the key is in each of them.

    GROUP BY ROLLUP(a, b)  ──►  {a, b}, {a}, {}       sets 0, 1, 2

    row (a, b)  ──►  (a, b, set 0)     key (a,    b,    GROUPING = 0)
                     (a, b, set 1)         (a,    NULL, GROUPING = 1)
                     (a, b, set 2)         (NULL, NULL, GROUPING = 3)

A row becomes one for each set, as it does for each of its windows; from there on it is a row like
any other. GROUPING over all keys is a column of the key, so that a NULL of the data and one of the
set are two groups. Equal sets count once.
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
    Constant,
    Expression,
    In,
    Named,
    Plan,
    SetNumber,
)
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.plan.walk import replaced
from jobs.core.values.change import Row
from schemas.limits import GROUPING_SETS_MAX
from schemas.types.sql_types import BIGINT, BOOLEAN, INT

# The column that a row of a plan with sets has more; no column of a user has a blank in its name.
SET = "grouping set"
GROUPING_ID = "grouping_id"
_SETS = (exp.GroupingSets, exp.Rollup, exp.Cube, exp.Tuple)

NodeSet = tuple[exp.Expr, ...]


# --- reading -------------------------------------------------------------------------------------


def has_sets(nodes: Sequence[exp.Expr]) -> bool:
    return any(isinstance(node, _SETS) for node in nodes)


def node_sets(nodes: Sequence[exp.Expr]) -> list[NodeSet]:
    """The sets that GROUP BY names: of all its elements one each, in every combination."""
    choices = [_of_element(node) for node in nodes]
    count = 1
    for each in choices:
        count *= len(each)
    if count > GROUPING_SETS_MAX:
        raise TypeProblem(
            f"GROUP BY has {count} sets, and every row would count in each; at most "
            f"{GROUPING_SETS_MAX} are possible"
        )
    return [tuple(node for part in chosen for node in part) for chosen in product(*choices)]


def _of_element(node: exp.Expr) -> list[NodeSet]:
    if isinstance(node, exp.GroupingSets):
        return [each for inner in node.expressions for each in _of_element(inner)]
    if isinstance(node, exp.Rollup):
        parts = [_columns(each) for each in node.expressions]
        return [_joined(parts[:length]) for length in range(len(parts), -1, -1)]
    if isinstance(node, exp.Cube):
        parts = [_columns(each) for each in node.expressions]
        if 2 ** len(parts) > GROUPING_SETS_MAX:
            most = GROUPING_SETS_MAX.bit_length() - 1
            raise TypeProblem(f"CUBE takes at most {most} columns, for it doubles with each")
        lengths = range(len(parts), -1, -1)
        return [_joined(some) for length in lengths for some in combinations(parts, length)]
    return [_columns(node)]


def _columns(node: exp.Expr) -> NodeSet:
    """(a, b) as its parts, a column as itself."""
    if isinstance(node, exp.Paren):
        return _columns(node.this)
    if not isinstance(node, exp.Tuple):
        return (node,)
    return tuple(part for each in node.expressions for part in _columns(each))


def _joined(parts: Sequence[NodeSet]) -> NodeSet:
    return tuple(node for part in parts for node in part)


# --- the key in sets -----------------------------------------------------------------------------


class KeySets:
    """The columns of the key, and the sets that they are in."""

    def __init__(self, sets: Sequence[Sequence[Expression]]) -> None:
        keys = list(dict.fromkeys(key for each in sets for key in each))
        self.sets = list(dict.fromkeys(frozenset(map(keys.index, each)) for each in sets))
        self.keys = keys
        self.wrapped = [self._in_its_sets(index, key) for index, key in enumerate(keys)]

    def _in_its_sets(self, index: int, key: Expression) -> Expression:
        """The column where its set has it, NULL elsewhere."""
        numbers = [number for number, each in enumerate(self.sets) if index in each]
        if len(numbers) == len(self.sets):
            return key
        choices = tuple(Constant(number, INT) for number in numbers)
        return Case(((In(SetNumber(INT), choices, BOOLEAN), key),), None, key.type)

    @property
    def several(self) -> bool:
        return len(self.sets) > 1

    @property
    def id(self) -> Expression:
        return Call("GROUPING", tuple(self.wrapped), BIGINT)

    def of_result(self, expression: Expression) -> Expression:
        """An expression of the result, with the columns of the key as the sets have them."""

        def change(part: Expression) -> Expression | None:
            if part in self.wrapped:
                return part
            if part in self.keys:
                return self.wrapped[self.keys.index(part)]
            if isinstance(part, Call) and part.function == "GROUPING":
                return self._grouping(part)
            return None

        return replaced(expression, change)

    def _grouping(self, call: Call) -> Expression:
        strange = [each for each in call.arguments if each not in (*self.keys, *self.wrapped)]
        if strange:
            raise TypeProblem("GROUPING takes columns of GROUP BY", "GROUPING(k)")
        if not self.several:
            return Cast(Constant(0, INT), BIGINT)
        arguments = (
            self.wrapped[self.keys.index(each)] if each in self.keys else each
            for each in call.arguments
        )
        return Call("GROUPING", tuple(arguments), BIGINT)


def in_sets(key: Expression) -> tuple[In, Expression] | None:
    """In which sets a column of the key is, and what it is there; None: in all."""
    if not isinstance(key, Case) or len(key.branches) != 1:
        return None
    when, value = key.branches[0]
    if not isinstance(when, In):
        return None
    by_number = isinstance(when.operand, SetNumber)
    by_column = isinstance(when.operand, Column) and when.operand.name == SET
    return (when, value) if by_number or by_column else None


def key_sets(plan: Plan) -> list[list[Expression]]:
    """The sets of a plan, by the columns of its key that are in them."""
    ids = [named.expression for named in plan.group if isinstance(named.expression, Call)]
    ids = [each for each in ids if each.function == "GROUPING"]
    all_keys = max((each.arguments for each in ids), key=len) if ids else ()
    return [list(_members(all_keys, number)) for number in range(plan.grouping_sets)]


def _members(keys: Sequence[Expression], number: int) -> Iterator[Expression]:
    for key in keys:
        found = in_sets(key)
        if found is None:
            yield key
        elif number in [getattr(each, "value", None) for each in found[0].choices]:
            yield found[1]


# --- rows ----------------------------------------------------------------------------------------


def numbered_rows(plan: Plan) -> Callable[[Row], list[Row]]:
    """How a row of used columns becomes one for each set, with its number behind."""
    numbers = range(plan.grouping_sets)
    return lambda row: [(*row, number) for number in numbers]


def numbered(plan: Plan) -> Plan:
    """The plan over such rows, which needs to know nothing of sets."""
    column = Column(SET, INT)

    def change(part: Expression) -> Expression | None:
        return column if isinstance(part, SetNumber) else None

    def of_numbered(named: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(each.name, replaced(each.expression, change)) for each in named)

    return replace(
        plan,
        columns=(*plan.columns, column),
        used=(*plan.used, column),
        group=of_numbered(plan.group),
        grouping_sets=1,
    )
