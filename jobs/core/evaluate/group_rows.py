"""Compute the row of a group for a query with HAVING or with expressions over aggregates.

    key, aggregates ──► computed columns ──► stored: aggregates and computed, as in the state
                    └─► HAVING ──► whether the group has a row ──► row: the selected columns

Aggregates that only HAVING or an expression needs are in the state, but in no row. An expression
that fails for a group is NULL, which HAVING treats as false. It is counted as a misfit, and has a
value again as soon as it no longer fails.
"""

from __future__ import annotations

from typing import Any

from jobs.core.evaluate.expressions import Evaluator, Values, evaluator
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row
from jobs.core.values.rounding import EvaluationError


class GroupRows:
    """Computes the rows of a plan's groups."""

    def __init__(self, plan: Plan) -> None:
        width = len(plan.group)
        self._computed = [evaluator(named.expression, width) for named in plan.computed]
        self._having = None if plan.having is None else evaluator(plan.having, width)
        shown = dict(plan.results)
        self._indexes = [i for i, (name, _) in enumerate(plan.kept_results) if name in shown]
        self._all = len(self._indexes) == len(plan.kept_results)

    def compute(self, key: Row, aggregates: Row, misfits: list[int]) -> tuple[Row, bool]:
        """Return a group's result as in the state, and whether the group has a row."""
        values = (*key, *aggregates)
        computed = [_evaluate(expression, values, misfits) for expression in self._computed]
        passes = self._having is None or _evaluate(self._having, values, misfits) is True
        return (*aggregates, *computed), passes

    def select(self, stored: Row) -> Row:
        """Return the selected columns of a group's result."""
        return stored if self._all else tuple([stored[index] for index in self._indexes])


def _evaluate(evaluate: Evaluator, values: Values, misfits: list[int]) -> Any:
    try:
        return evaluate(values)
    except EvaluationError:
        misfits[0] += 1
        return None
