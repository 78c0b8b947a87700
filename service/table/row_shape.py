"""The shape of a job's rows: values to JSON and back, keys as addresses name them.

    group, result ──► {"name": "bolt", "sum_cnt": 36120, ...}    names in SELECT order
    address       ──► bolt   or   {"name": null}   ──► group

JSON numbers are doubles in many clients, so whole numbers beyond 2^53 are strings here, as
decimals are.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row, Value
from jobs.core.values.composite_values import array_renderer
from jobs.core.values.json_values import Json, parser, renderer
from jobs.core.values.order_key import encoder, value_encoder
from schemas.types.arrow_values import from_arrow, tuples
from schemas.types.sql_types import Kind, SqlType
from service.problems import Problem
from service.table.job_table import Key
from service.table.json_columns import JSON_INTEGER_MAX, json_column, json_rows


def safe_renderer(sql_type: SqlType) -> Any:
    """As `renderer`, with whole numbers that a double would not hold as strings."""
    if sql_type.kind is Kind.ARRAY:
        write_items = array_renderer(safe_renderer(sql_type.items[0]))
        return lambda value: None if value is None else write_items(value)
    write = renderer(sql_type)
    if sql_type.kind is not Kind.BIGINT:  # the only one that holds more than 2^53
        return write

    def safely(value: Value) -> Json:
        if isinstance(value, int) and not -JSON_INTEGER_MAX <= value <= JSON_INTEGER_MAX:
            return str(value)
        return write(value)

    return safely


class RowShape:
    """Of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        group = [(named.name, named.type) for named in plan.group]
        results = list(plan.results)
        places = {name: (True, i, kind) for i, (name, kind) in enumerate(group)}
        places |= {name: (False, i, kind) for i, (name, kind) in enumerate(results)}
        # Every column of a row, hidden group columns too: what conditions may name.
        self.columns = dict([*group, *results])
        self.names = list(plan.output)
        self.types = {name: places[name][2] for name in plan.output}
        self._writers = {name: safe_renderer(kind) for name, kind in self.columns.items()}
        self._output = [
            (name, index if of_group else len(group) + index)
            for name, (of_group, index, _) in ((name, places[name]) for name in plan.output)
        ]
        self._group = group
        self.key_bytes = encoder(tuple(kind for _, kind in group))
        self._encoders = [value_encoder(kind) for _, kind in [*group, *results]]

    def row(self, key: Key, result: Row) -> dict[str, Json]:
        """The row as the query selects it."""
        found: tuple[Any, ...] = (*key, *result)
        return {name: self._writers[name](found[place]) for name, place in self._output}

    def key(self, key: Key) -> dict[str, Json]:
        """The group columns, hidden ones too."""
        return {
            name: self._writers[name](value)
            for (name, _), value in zip(self._group, key, strict=True)
        }

    # --- of many rows at once, as a table has them ----------------------------------------------

    def json(self, table: pa.Table) -> pa.Array:
        """Each row as the query selects it, as JSON text."""
        return json_rows(
            (name, json_column(table[name], kind, self._writers[name]))
            for name, kind in self.types.items()
        )

    def keys(self, table: pa.Table) -> list[bytes]:
        """Each row's group, as the index names it."""
        return [self.key_bytes(key) for key in tuples(table, self._group)]

    def ordered(self, table: pa.Table) -> list[tuple[bytes, ...]]:
        """Each row's columns as bytes that sort as their values do."""
        columns = [
            [encode(value) for value in from_arrow(table[name], kind)]
            for encode, (name, kind) in zip(self._encoders, self.columns.items(), strict=True)
        ]
        return list(zip(*columns, strict=True))

    def value_bytes(self, column: str, text: str) -> bytes:
        """A value of a column as a condition writes it."""
        kind = self.columns[column]
        return value_encoder(kind)(_of_text(text, column, kind, "parameter-invalid"))

    # --- keys -----------------------------------------------------------------------------------

    def parse_key(self, text: str) -> Key:
        """The group that an address names: the value of its one column, or an object."""
        if text.startswith("{"):
            return self._of_object(text)
        if len(self._group) != 1:
            detail = f"name the group as an object of its columns, {self._example()}"
            raise Problem("key-invalid", 422, detail)
        name, kind = self._group[0]
        return (_of_text(text, name, kind, "key-invalid"),)

    def _of_object(self, text: str) -> Key:
        try:
            given = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError):
            raise Problem("key-invalid", 422, "the key begins with { and is no JSON") from None
        known = [name for name, _ in self._group]
        if not isinstance(given, dict) or sorted(given) != sorted(known):
            raise Problem("key-invalid", 422, f"a group is named like {self._example()}")
        key = []
        for name, kind in self._group:
            field = given[name]
            if kind.integer and isinstance(field, str):  # as we write those beyond 2^53
                key.append(_of_text(field, name, kind, "key-invalid"))
                continue
            try:
                key.append(parser(kind)(field))
            except (ValueError, TypeError) as error:
                raise Problem("key-invalid", 422, f"{name} is {kind}: {error}") from None
        return tuple(key)

    def _example(self) -> str:
        if not self._group:
            return "{}, for there is no GROUP BY"
        return "{" + ", ".join(f'"{name}": ...' for name, _ in self._group) + "}"


def _of_text(text: str, column: str, kind: SqlType, code: str) -> Value:
    field: object = text
    if kind.kind is Kind.BOOLEAN:
        field = {"true": True, "false": False}.get(text, text)
    try:
        return parser(kind)(field)
    except (ValueError, TypeError) as error:
        raise Problem(code, 422, f"{column} is {kind}: {error}") from None
