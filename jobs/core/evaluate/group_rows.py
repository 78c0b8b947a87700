"""Group rows: what a query with HAVING, or with expressions over aggregates, makes of a group.

    key, aggregates ──► computed columns ──► stored: aggregates and computed, as the state has them
                    └─► HAVING ──► whether the group has a row ──► row: what of them is selected

Aggregates that only HAVING or an expression needs are in the state and in no row. An expression
that fails on a group is NULL, which HAVING takes for no; it is counted, and right again when the
group's values are.
"""

from __future__ import annotations

from typing import Any

from jobs.core.evaluate.expressions import Evaluator, Values, evaluator
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row
from jobs.core.values.rounding import Failed


class GroupRows:
    """The rows of one plan's groups."""

    def __init__(self, plan: Plan) -> None:
        width = len(plan.group)
        self._computed = [evaluator(named.expression, width) for named in plan.computed]
        self._having = None if plan.having is None else evaluator(plan.having, width)
        shown = dict(plan.results)
        self._places = [place for place, (name, _) in enumerate(plan.kept) if name in shown]
        self._all = len(self._places) == len(plan.kept)

    def stored(self, key: Row, aggregates: Row, misfits: list[int]) -> tuple[Row, bool]:
        """What the state keeps as a group's result, and whether the group has a row."""
        values = (*key, *aggregates)
        computed = [_value(evaluate, values, misfits) for evaluate in self._computed]
        passes = self._having is None or _value(self._having, values, misfits) is True
        return (*aggregates, *computed), passes

    def row(self, stored: Row) -> Row:
        """What of a stored result is selected."""
        return stored if self._all else tuple([stored[place] for place in self._places])


def _value(evaluate: Evaluator, values: Values, misfits: list[int]) -> Any:
    try:
        return evaluate(values)
    except Failed:
        misfits[0] += 1
        return None
