"""Render ARRAY and ROW values as JSON.

Only results and multisets contain such values, so nothing parses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jobs.core.values.change import Value
from schemas.types.sql_types import SqlType

Write = Callable[[Value], Any]


def array_renderer(write: Write) -> Write:
    """Return a renderer that applies `write` to each element of an array."""

    def array(value: Value) -> Any:
        assert isinstance(value, tuple)
        return [write(item) for item in value]

    return array


def row_renderer(writers: Sequence[Write]) -> Write:
    """Return a renderer that writes a row as an array of its parts."""

    def row(value: Value) -> Any:
        assert isinstance(value, tuple)
        return [write(item) for write, item in zip(writers, value, strict=True)]

    return row


def refusing_converter(sql_type: SqlType) -> Callable[[object], Value]:
    """Return a converter that refuses every value: only results have this type."""

    def refuse(field: object) -> Value:
        raise ValueError(f"{sql_type} is a type of results; a field cannot have it")

    return refuse
