"""Fold a changelog back into the table that it describes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from jobs.core.values.change import Op

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


def fold_changelog(table: dict[K, R], changelog: Iterable[tuple[Op, K, R]]) -> dict[K, R]:
    """Apply changelog rows to `table` in place, as a consumer of the topic does, and return it."""
    for op, key, row in changelog:
        if op in (Op.INSERT, Op.UPDATE_AFTER):
            table[key] = row
        elif op is Op.DELETE:
            del table[key]
    return table
