"""The shape of a job's rows: a group and its results as one JSON object in SELECT order.

    group, result ──► {"name": "bolt", "sum_cnt": 36120, ...}

JSON numbers are doubles in many clients. So in responses of the service, whole numbers beyond 2^53
are strings, as decimals are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import starmap
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.core.plan.tree import Plan
from jobs.core.values.change import Op, Row, Value
from jobs.core.values.json_values import Json, renderer
from jobs.core.values.order_key import encoder, value_encoder
from jobs.reading.json_columns import SAFE, render_column, render_rows, safe_renderer
from schemas.types.arrow_values import from_arrow, to_list, to_tuples
from schemas.types.sql_types import SqlType

Writers = Callable[[SqlType], Callable[[Value], Json]]


class ChangeRow(NamedTuple):
    """A row of the changelog with its epoch and its number in the epoch."""

    op: Op
    epoch: int
    seq: int
    key: Row
    result: Row


class RowShape:
    """The shape of one plan's rows; with `safe`, its numbers are safe in any client."""

    def __init__(self, plan: Plan, *, safe: bool = False) -> None:
        self.plan = plan
        self.writers: Writers = safe_renderer if safe else renderer
        self.group = plan.key
        self.results = list(plan.results)
        # Every column of a row, hidden group columns too: what conditions may name.
        self.columns = plan.types
        self.names = list(plan.output)
        self.types = {name: self.columns[name] for name in plan.output}
        self.key_bytes = encoder(tuple(kind for _, kind in self.group))
        self._writers = {name: self.writers(kind) for name, kind in self.columns.items()}
        self._encoders = [value_encoder(kind) for kind in self.columns.values()]
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

    # --- many rows at once ----------------------------------------------------------------------

    def changes(self, table: pa.Table) -> Iterator[ChangeRow]:
        """Return the rows of a changelog, in their order."""
        ops, epochs, seqs = (to_list(table[name]) for name in ("op", "epoch", "seq"))
        groups, results = to_tuples(table, self.group), to_tuples(table, self.results)
        return starmap(ChangeRow, zip(map(Op, ops), epochs, seqs, groups, results, strict=True))

    def render_safely(self, table: pa.Table) -> pa.Array:
        """Return each row as JSON text of responses, with the columns that the query selects."""
        return render_rows(
            (name, render_column(table[name], kind, SAFE)) for name, kind in self.types.items()
        )

    def encode_keys(self, table: pa.Table) -> list[bytes]:
        """Return the key of each row's group as bytes."""
        return [self.key_bytes(key) for key in to_tuples(table, self.group)]

    def encode_sortable(self, table: pa.Table) -> list[tuple[bytes, ...]]:
        """Return the columns of each row as bytes that sort like their values."""
        columns = [
            [encode(value) for value in from_arrow(table[name], kind)]
            for encode, (name, kind) in zip(self._encoders, self.columns.items(), strict=True)
        ]
        return list(zip(*columns, strict=True))
