"""Join the changes of two sides with each other and with the rows that were there before.

    dL ─┬─► by key ─► d(L x R) = dL x R + L x dR + dL x dR        pairs; weights multiply
    dR ─┘      │
               ├────► LEFT, RIGHT, FULL: rows without a match, filled with NULL
               ├────► SEMI, ANTI: left rows with a match, or without one
               ▼
         L, R: an arrangement for each side

L and R are as of before the changes. A row has a match if the weights of the other side's rows with
its key do not add up to zero. When they come to zero, or leave it, all rows of the key change: what
happens in between does not matter. A key with NULL never matches and is in no arrangement.

A join is exact for any cut of its changes: the changes of two calls add up to those of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jobs.core.join.arrangement import NO_ROWS, Arrangement, Weights
from jobs.core.plan.tree import Column, Expression, Join
from jobs.core.rows.projection import compile_row
from jobs.core.values.change import Row

WeightedRow = tuple[Row, int]


class JoinOperator:
    """One join, with the rows of both of its sides."""

    def __init__(self, join: Join, left: Arrangement, right: Arrangement) -> None:
        self._left, self._right = left, right
        self._left_key = _compile_key(join.left_keys, join.left.columns)
        self._right_key = _compile_key(join.right_keys, join.right.columns)
        self._select = _compile_select(join)
        self._matches = _compile_residual(join)
        self._has_pairs = join.kind not in ("SEMI", "ANTI")
        # Whether a row of this side is a row of the join with a match, without one, or never alone.
        self._left_alone = True if join.kind == "SEMI" else False if join.keeps_left else None
        self._right_alone = False if join.keeps_right else None
        self._no_left = (None,) * len(join.left.columns)
        self._no_right = (None,) * (len(join.inputs) - len(join.left.columns))

    def advance(
        self, left: Iterable[WeightedRow], right: Iterable[WeightedRow]
    ) -> Iterator[WeightedRow]:
        """Take changes of both sides and yield those of the join; a row may come several times.

        The caller exhausts the iterator: the arrangements take the changes of a key after it.
        Raise RowFailed for a row on which a key or the condition fails.
        """
        left_changes, right_changes = (
            _group_by_key(left, self._left_key),
            _group_by_key(right, self._right_key),
        )
        left_without, right_without = left_changes.pop(None, {}), right_changes.pop(None, {})
        if self._left_alone is False:
            yield from self._fill_right(left_without.items())
        if self._right_alone is False:
            yield from self._fill_left(right_without.items())
        for key in dict.fromkeys((*left_changes, *right_changes)):
            assert key is not None, "rows without a key are taken"
            yield from self._change_key(
                key, left_changes.get(key, NO_ROWS), right_changes.get(key, NO_ROWS)
            )

    def _change_key(
        self, key: Row, left_changes: Weights, right_changes: Weights
    ) -> Iterator[WeightedRow]:
        left, right = self._left.rows(key), self._right.rows(key)
        if self._has_pairs:
            yield from self._pair(left_changes, right)
            yield from self._pair(left, right_changes)
            yield from self._pair(left_changes, right_changes)
        if self._left_alone is not None:
            had, has = _find_matches(self._right.count(key), right_changes)
            alone = self._left_alone
            yield from self._fill_right(
                _change_alone(left, left_changes, had == alone, has == alone)
            )
        if self._right_alone is not None:
            had, has = _find_matches(self._left.count(key), left_changes)
            yield from self._fill_left(_change_alone(right, right_changes, not had, not has))
        self._left.add(key, left_changes)
        self._right.add(key, right_changes)

    def _pair(self, left: Weights, right: Weights) -> Iterator[WeightedRow]:
        for left_row, left_weight in left.items():
            for right_row, right_weight in right.items():
                row = left_row + right_row
                if self._matches(row):
                    yield self._select(row), left_weight * right_weight

    def _fill_right(self, rows: Iterable[WeightedRow]) -> Iterator[WeightedRow]:
        return ((self._select(row + self._no_right), weight) for row, weight in rows)

    def _fill_left(self, rows: Iterable[WeightedRow]) -> Iterator[WeightedRow]:
        return ((self._select(self._no_left + row), weight) for row, weight in rows)


def _find_matches(count: int, changes: Weights) -> tuple[bool, bool]:
    """Return whether there was a match before the changes of the other side, and is one after."""
    return count != 0, count + sum(changes.values()) != 0


def _change_alone(
    rows: Weights, changes: Weights, were_there: bool, are_there: bool
) -> Iterator[WeightedRow]:
    """Yield the changes of rows that are in the join without a row of the other side.

    That is rows + changes if they are there now, minus rows if they were there before."""
    if are_there:
        yield from changes.items()
    if are_there != were_there:
        sign = 1 if are_there else -1
        yield from ((row, sign * weight) for row, weight in rows.items())


def _group_by_key(
    changes: Iterable[WeightedRow], key_of: Callable[[Row], Row | None]
) -> dict[Row | None, dict[Row, int]]:
    by_key: dict[Row | None, dict[Row, int]] = {}
    for row, weight in changes:
        rows = by_key.setdefault(key_of(row), {})
        rows[row] = rows.get(row, 0) + weight
    return by_key


def _compile_key(
    keys: Sequence[Expression], columns: Sequence[Column]
) -> Callable[[Row], Row | None]:
    """Return the function from a row to its key; None if a part of the key is NULL."""
    parts = [compile_row(key, columns).evaluate for key in keys]

    def key_of(row: Row) -> Row | None:
        key = tuple([part(row) for part in parts])
        return None if None in key else key

    return key_of


def _compile_residual(join: Join) -> Callable[[Row], Any]:
    if join.residual is None:
        return lambda row: True
    condition = compile_row(join.residual, join.inputs).evaluate
    return lambda row: condition(row) is True


def _compile_select(join: Join) -> Callable[[Row], Row]:
    """Return the function from a row of both sides to the columns that something reads."""
    inputs = join.inputs
    if inputs == join.columns:
        return lambda row: row
    indexes = [inputs.index(column) for column in join.columns]
    return lambda row: tuple([row[index] for index in indexes])
