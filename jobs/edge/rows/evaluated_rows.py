"""Evaluate the row expressions of a plan over the weighted rows of a range.

    weighted rows ──► WHERE ──► grouping sets, windows ──► group and arguments as columns
                        └────────────┴──────────────────► rows that fail, with the reasons

Whole numbers, decimals and moments are calculated as arrays. Any other expression is evaluated once
for each combination of the values that it reads. So a condition over a status costs as much as the
statuses that occur, however many rows there are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.core.fold.laws import BrokenLaw
from jobs.core.plan.tree import Column, Expression, Plan, Window
from jobs.core.rows.consolidate import Integers, WeightedRows
from jobs.core.rows.projection import RowExpression, RowFailed, compile_row
from jobs.core.rows.windows import (
    WINDOWS_FROM_MS,
    WINDOWS_TO_MS,
    no_window_reasons,
    with_window_columns,
)
from jobs.core.sql.grouping_sets import with_set_numbers
from jobs.edge.rows.expression_vectors import NoVector, Vectors
from jobs.edge.rows.range_rows import RangeRows
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import SqlType


class EvaluatedRows(NamedTuple):
    """The rows to fold: their columns are the group, then the arguments of the aggregates."""

    rows: RangeRows
    weighted: WeightedRows
    origins: Integers  # of each row, its place among the weighted rows
    failures: tuple[tuple[int, str], ...]  # positions of rows that fail, with the reasons

    def require_no_failures(self) -> None:
        """Raise if a row fails although the messages of such rows were refused before."""
        if self.failures:
            raise BrokenLaw(
                f"{len(self.failures)} rows still fail with their messages in quarantine; "
                f"the first: {self.failures[0][1]}"
            )


class _Found(NamedTuple):
    values: pa.Array
    failures: list[tuple[int, str]]  # indexes of values


def evaluate_rows(plan: Plan, rows: RangeRows, weighted: WeightedRows) -> EvaluatedRows:
    """Return the group and the arguments of the weighted rows that WHERE leaves.

    A row is there once for each of its grouping sets and windows."""
    run = _Evaluation(plan, rows, weighted)
    if plan.where is not None:
        passed = run.values(plan.where).fill_null(False).to_numpy(zero_copy_only=False)
        run.take(np.flatnonzero(passed))
    if plan.copies_per_row > 1 or plan.window is not None:
        run.copy_rows()
    over = _over_copies(plan)
    columns = [run.values(named.expression) for named in (*over.group, *over.arguments)]
    if plan.window is not None:
        run.refuse_rows_without_window(plan.window)
    count = len(run.at)
    evaluated = WeightedRows(np.arange(count), run.positions, run.weights)
    failures = tuple(sorted(run.failures.items()))
    return EvaluatedRows(RangeRows(columns, run.weights), evaluated, run.origins, failures)


class _Evaluation:
    """The rows that are left, and what fails."""

    def __init__(self, plan: Plan, rows: RangeRows, weighted: WeightedRows) -> None:
        self._plan = plan
        self._rows = rows
        self._indexes = _index(plan)
        self.at, self.positions, self.weights = weighted
        self.origins = np.arange(len(self.at))
        self.failures: dict[int, str] = {}  # by position

    def take(self, places: Integers) -> None:
        """Leave only the rows at these places; at a place that occurs twice there is a copy."""
        self.at, self.positions = self.at[places], self.positions[places]
        self.weights, self.origins = self.weights[places], self.origins[places]

    def values(self, expression: Expression) -> pa.Array:
        """Return the value of each row; NULL for a row that fails."""
        if isinstance(expression, Column):
            return self._column(expression, self.at)
        try:
            return Vectors(len(self.at), self._distinct_values).values(expression)
        except NoVector:
            return self._distinct_values(expression)

    def _distinct_values(self, expression: Expression) -> pa.Array:
        """Return the value of each row, evaluated once for what it reads."""
        if isinstance(expression, Column):
            return self._column(expression, self.at)
        compiled = _compile_once(expression)
        numbers = self._rows.number([self._indexes[each.name] for each in compiled.columns])
        numbers = numbers[self.at]
        one_of = np.full(numbers.max(initial=-1) + 1, -1)
        one_of[numbers] = np.arange(len(numbers))  # any row with these values
        present = np.flatnonzero(one_of >= 0)
        found = self._evaluate(compiled, self.at[one_of[present]], expression.type)
        ranks = np.zeros(len(one_of), np.int64)
        ranks[present] = np.arange(len(present))
        of_rows = ranks[numbers]
        for failing, reason in found.failures:
            self._refuse(of_rows == failing, reason)
        return found.values.take(pa.array(of_rows))

    def _evaluate(self, compiled: RowExpression, some: Integers, kind: SqlType) -> _Found:
        inputs = [
            from_arrow(self._column(column, some), column.type) for column in compiled.columns
        ]
        evaluate = compiled.evaluate
        values: list[Any] = []
        failures: list[tuple[int, str]] = []
        for row in zip(*inputs, strict=True) if inputs else [()] * len(some):
            try:
                values.append(evaluate(row))
            except RowFailed as failed:
                failures.append((len(values), str(failed)))
                values.append(None)
        return _Found(to_arrow(values, kind), failures)

    def _column(self, column: Column, at: Integers) -> pa.Array:
        return self._rows.columns[self._indexes[column.name]].take(pa.array(at))

    def _refuse(self, rows: np.ndarray[Any, np.dtype[np.bool_]], reason: str) -> None:
        for position in self.positions[rows].tolist():
            self.failures.setdefault(position, reason)

    # --- copies of a row --------------------------------------------------------------------------

    def copy_rows(self) -> None:
        """Repeat each row for each grouping set and each window, which are more columns then."""
        plan, more = self._plan, list[pa.Array]()
        copies = np.arange(len(self.at))
        if plan.grouping_sets > 1:
            numbers = np.tile(np.arange(plan.grouping_sets, dtype=np.int32), len(copies))
            more.append(pa.array(numbers))
            copies = np.repeat(copies, plan.grouping_sets)
        if plan.window is not None:
            times = self._column(plan.window.time, self.at[copies])
            again, bounds = _windows(plan.window, times)
            more = [column.take(pa.array(again)) for column in more] + bounds
            copies = copies[again]
        self.take(copies)
        taken = pa.array(self.at)
        columns = [column.take(taken) for column in self._rows.columns]
        self._rows = RangeRows([*columns, *more], self.weights)
        self._indexes = _index(_over_copies(plan))
        self.at = np.arange(len(self.at))

    def refuse_rows_without_window(self, window: Window) -> None:
        """Note the rows whose time is NULL or out of range."""
        *_, starts, _ = self._rows.columns
        if starts.null_count:
            missing = starts.is_null().to_numpy(zero_copy_only=False)
            no_time = self._column(window.time, self.at).is_null().to_numpy(zero_copy_only=False)
            for_null, out_of_range = no_window_reasons(window)
            self._refuse(missing & no_time, for_null)
            self._refuse(missing & ~no_time, out_of_range)


def _windows(window: Window, times: pa.Array) -> tuple[Integers, list[pa.Array]]:
    """Return the rows, each once for each of its windows, with starts and ends of the windows.

    A row without a window is there once, with NULL bounds."""
    present = times.is_valid().to_numpy(zero_copy_only=False)
    milliseconds = times.view(pa.int64()).fill_null(0).to_numpy() // window.unit
    present &= (milliseconds >= WINDOWS_FROM_MS) & (milliseconds <= WINDOWS_TO_MS)
    milliseconds = np.where(present, milliseconds, 0)  # so that no bound overflows
    first, last = window.find_ends(milliseconds)
    present &= window.find_starts(first, last) >= WINDOWS_FROM_MS
    present &= last <= WINDOWS_TO_MS
    counts = np.where(present, (last - first) // window.slide_ms + 1, 1)
    rows = np.repeat(np.arange(len(times)), counts)
    of_row = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    ends = first[rows] + of_row * window.slide_ms
    absent, kind = ~present[rows], arrow_type(window.bound_type)
    bounds = [
        pa.array(bound * window.unit, mask=absent).view(kind)
        for bound in (window.find_starts(ends, last[rows]), ends)
    ]
    return rows, bounds


@lru_cache(maxsize=64)
def _over_copies(plan: Plan) -> Plan:
    """Return the plan over rows with the number of a grouping set, and with a window."""
    if plan.grouping_sets > 1:
        plan = with_set_numbers(plan)
    return plan if plan.window is None else with_window_columns(plan, plan.window)


def _index(plan: Plan) -> dict[str, int]:
    return {column.name: index for index, column in enumerate(plan.used)}


@lru_cache(maxsize=256)
def _compile_once(expression: Expression) -> RowExpression:
    return compile_row(expression)
