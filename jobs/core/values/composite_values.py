"""Composite values: how an ARRAY and a ROW look as JSON. Only results and multisets have them, so
there is a way out and none in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jobs.core.values.change import Value
from schemas.types.sql_types import SqlType

Write = Callable[[Value], Any]


def array_renderer(write: Write) -> Write:
    """The elements of an array, each as `write` gives it."""

    def array(value: Value) -> Any:
        assert isinstance(value, tuple)
        return [write(item) for item in value]

    return array


def row_renderer(writers: Sequence[Write]) -> Write:
    """The parts of a row, as an array."""

    def row(value: Value) -> Any:
        assert isinstance(value, tuple)
        return [write(item) for write, item in zip(writers, value, strict=True)]

    return row


def no_value(sql_type: SqlType) -> Callable[[object], Value]:
    """The converter of a type that nobody can give values of."""

    def refuse(field: object) -> Value:
        raise ValueError(f"{sql_type} is the type of a result, and cannot be given as a value")

    return refuse
