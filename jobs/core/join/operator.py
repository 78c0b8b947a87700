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
from itertools import product
from typing import Any, NoReturn

from jobs.core.join.arrangement import NO_ROWS, Arrangement, WeightedRow, Weights
from jobs.core.plan.tree import Column, Expression, Join
from jobs.core.rows.projection import RowFailed, compile_row
from jobs.core.values.change import Row
from schemas.limits import JOIN_PAIRS_MAX

ByKey = dict[Row | None, dict[Row, int]]  # changes of rows by join key; None: a part of it is NULL


class TooManyPairs(Exception):
    """The changes of one key would join too many pairs of rows."""


def raise_failure(failed: RowFailed, weight: int) -> NoReturn:
    raise failed


class JoinOperator:
    """One join, with the rows of both of its sides.

    `on_failure` gets each row, with its weight, on which a key fails, and each pair on which the
    condition fails: they do not match.
    """

    def __init__(
        self,
        join: Join,
        left: Arrangement,
        right: Arrangement,
        *,
        on_failure: Callable[[RowFailed, int], None] = raise_failure,
    ) -> None:
        self._left, self._right = left, right
        self._on_failure = on_failure
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
        """Take changes of both sides and yield those of the join; a row may come several times."""
        return self.advance_keys(
            self._group_by_key(left, self._left_key), self._group_by_key(right, self._right_key)
        )

    def advance_keys(self, left: ByKey, right: ByKey) -> Iterator[WeightedRow]:
        """Like `advance`, with the changes by key.

        The caller exhausts the iterator: the arrangements take the changes of a key after it.
        """
        left_without, right_without = left.pop(None, NO_ROWS), right.pop(None, NO_ROWS)
        if self._left_alone is False:
            yield from self._fill_right(left_without.items())
        if self._right_alone is False:
            yield from self._fill_left(right_without.items())
        for key in dict.fromkeys((*left, *right)):
            assert key is not None, "rows without a key are taken"
            yield from self._change_key(key, left.get(key, NO_ROWS), right.get(key, NO_ROWS))

    def _change_key(
        self, key: Row, left_changes: Weights, right_changes: Weights
    ) -> Iterator[WeightedRow]:
        """Yield the changes of a key; the rows of a side are read only if the other one changed."""
        left, right = self._left, self._right
        if self._has_pairs:
            self._require_few_pairs(key, len(left_changes), len(right_changes))
            if left_changes:
                rows = right.rows(key)
                yield from self._match(
                    (left_row, row) for row in rows for left_row in left_changes.items()
                )
            if right_changes:
                rows = left.rows(key)
                yield from self._match(
                    (row, right_row) for row in rows for right_row in right_changes.items()
                )
            if left_changes and right_changes:
                yield from self._match(product(left_changes.items(), right_changes.items()))
        if self._left_alone is not None:
            had, has = _find_matches(right.count(key), right_changes)
            alone = self._left_alone
            yield from self._fill_right(
                _change_alone(lambda: left.rows(key), left_changes, had == alone, has == alone)
            )
        if self._right_alone is not None:
            had, has = _find_matches(left.count(key), left_changes)
            yield from self._fill_left(
                _change_alone(lambda: right.rows(key), right_changes, not had, not has)
            )
        left.add(key, left_changes)
        right.add(key, right_changes)

    def _group_by_key(
        self, changes: Iterable[WeightedRow], key_of: Callable[[Row], Row | None]
    ) -> ByKey:
        by_key: ByKey = {}
        for row, weight in changes:
            try:
                rows = by_key.setdefault(key_of(row), {})
            except RowFailed as failed:
                self._on_failure(failed, weight)
                continue
            rows[row] = rows.get(row, 0) + weight
        return by_key

    def _match(self, pairs: Iterable[tuple[WeightedRow, WeightedRow]]) -> Iterator[WeightedRow]:
        matches, select = self._matches, self._select
        for (left, left_weight), (right, right_weight) in pairs:
            row, weight = left + right, left_weight * right_weight
            try:
                if matches(row):
                    yield select(row), weight
            except RowFailed as failed:
                self._on_failure(failed, weight)

    def _require_few_pairs(self, key: Row, left: int, right: int) -> None:
        """Raise unless this epoch can hold the pairs of so many changed rows of both sides."""
        pairs = left * (abs(self._right.count(key)) + right) + right * abs(self._left.count(key))
        if pairs > JOIN_PAIRS_MAX:
            raise TooManyPairs(
                f"{pairs:,} pairs of rows with the join key {key!r} would change in one epoch, "
                f"and at most {JOIN_PAIRS_MAX:,} may; both sides have many rows with this key: "
                "join by one more column, or remove the key with WHERE"
            )

    def _fill_right(self, rows: Iterable[WeightedRow]) -> Iterator[WeightedRow]:
        return ((self._select(row + self._no_right), weight) for row, weight in rows)

    def _fill_left(self, rows: Iterable[WeightedRow]) -> Iterator[WeightedRow]:
        return ((self._select(self._no_left + row), weight) for row, weight in rows)


def _find_matches(count: int, changes: Weights) -> tuple[bool, bool]:
    """Return whether there was a match before the changes of the other side, and is one after."""
    return count != 0, count + sum(changes.values()) != 0


def _change_alone(
    rows: Callable[[], Iterable[WeightedRow]],
    changes: Weights,
    were_there: bool,
    are_there: bool,
) -> Iterator[WeightedRow]:
    """Yield the changes of rows that are in the join without a row of the other side.

    That is rows + changes if they are there now, minus rows if they were there before."""
    if are_there:
        yield from changes.items()
    if are_there != were_there:
        sign = 1 if are_there else -1
        yield from ((row, sign * weight) for row, weight in rows())


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
