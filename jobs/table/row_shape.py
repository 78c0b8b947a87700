"""The shape of a job's rows: a group and its results as one JSON object in SELECT order.

group, result ──► {"name": "bolt", "sum_cnt": 36120, ...}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row, Value
from jobs.core.values.json_values import Json, renderer
from jobs.core.values.order_key import encoder
from schemas.types.sql_types import SqlType

Writers = Callable[[SqlType], Callable[[Value], Json]]


class RowShape:
    """The shape of one plan's rows; `writers` returns the function that writes a type as JSON."""

    def __init__(self, plan: Plan, writers: Writers = renderer) -> None:
        self.plan = plan
        self.writers = writers
        self.group = plan.key
        self.results = list(plan.results)
        # Every column of a row, hidden group columns too: what conditions may name.
        self.columns = plan.types
        self.names = list(plan.output)
        self.types = {name: self.columns[name] for name in plan.output}
        self.key_bytes = encoder(tuple(kind for _, kind in self.group))
        self._writers = {name: writers(kind) for name, kind in self.columns.items()}
        indexes = {name: index for index, name in enumerate(self.columns)}
        self._output = [(name, indexes[name]) for name in plan.output]

    def row(self, key: Row, result: Row) -> dict[str, Json]:
        """Return the row as the query selects it, without hidden group columns."""
        values: tuple[Any, ...] = (*key, *result)
        return {name: self._writers[name](values[index]) for name, index in self._output}

    def values(self, key: Row, result: Row) -> Row:
        """Return the values of the row as the query selects it."""
        values: tuple[Any, ...] = (*key, *result)
        return tuple(values[index] for _, index in self._output)

    def key(self, key: Row) -> dict[str, Json]:
        """Return the group columns, hidden ones too."""
        return {
            name: self._writers[name](value)
            for (name, _), value in zip(self.group, key, strict=True)
        }
