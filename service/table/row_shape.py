"""The shape of a job's rows: values to JSON and back, keys as addresses write them.

    group, result ──► {"name": "bolt", "sum_cnt": 36120, ...}    names in SELECT order
    address       ──► bolt   or   {"name": null}   ──► group

JSON numbers are doubles in many clients. So whole numbers beyond 2^53 are strings here, as decimals
are.
"""

from __future__ import annotations

import pyarrow as pa

from jobs.core.plan.tree import Plan
from jobs.core.values.change import Value
from jobs.core.values.order_key import value_encoder
from jobs.table import row_shape as table_shape
from jobs.table.group_key import make_key_example, parse_key_object
from jobs.table.json_columns import SAFE, render_column, render_rows, safe_renderer
from jobs.table.listing import parse_text
from jobs.table.version import Key
from schemas.types.arrow_values import from_arrow, to_tuples
from schemas.types.sql_types import SqlType
from service.problems import Problem


class RowShape(table_shape.RowShape):
    """The shape of one plan's rows, with numbers that are safe in any client."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, safe_renderer)
        self._encoders = [value_encoder(kind) for kind in self.columns.values()]

    # --- many rows at once ----------------------------------------------------------------------

    def render_rows(self, table: pa.Table) -> pa.Array:
        """Return each row as JSON text, with the columns that the query selects."""
        return render_rows(
            (name, render_column(table[name], kind, SAFE)) for name, kind in self.types.items()
        )

    def encode_keys(self, table: pa.Table) -> list[bytes]:
        """Return the key of each row's group, as the index stores it."""
        return [self.key_bytes(key) for key in to_tuples(table, self.group)]

    def encode_sortable(self, table: pa.Table) -> list[tuple[bytes, ...]]:
        """Return the columns of each row as bytes that sort like their values."""
        columns = [
            [encode(value) for value in from_arrow(table[name], kind)]
            for encode, (name, kind) in zip(self._encoders, self.columns.items(), strict=True)
        ]
        return list(zip(*columns, strict=True))

    def encode_value(self, column: str, text: str) -> bytes:
        """Return a value, given as text, as bytes that sort like it."""
        kind = self.columns[column]
        return value_encoder(kind)(_parse_text(text, column, kind, "parameter-invalid"))

    # --- keys -----------------------------------------------------------------------------------

    def parse_key(self, text: str) -> Key:
        """Parse the group in an address: the value of its only column, or an object."""
        if text.startswith("{"):
            try:
                return parse_key_object(text, self.group)
            except ValueError as error:
                raise Problem("key-invalid", 422, str(error)) from None
        if len(self.group) != 1:
            example = make_key_example(self.group)
            detail = f"write the key as an object of the group columns, {example}"
            raise Problem("key-invalid", 422, detail)
        name, kind = self.group[0]
        return (_parse_text(text, name, kind, "key-invalid"),)


def _parse_text(text: str, column: str, kind: SqlType, code: str) -> Value:
    try:
        return parse_text(text, column, kind)
    except ValueError as error:
        raise Problem(code, 422, str(error)) from None
