"""Join the changes of two sides with each other and with the rows that were there before.

    dL ─┬─► numbers of keys ─► d(L x R) = dL x R + L x dR + dL x dR     pairs; weights multiply
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
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.core.join.pairing import cut, find_alone, pair_up
from jobs.core.plan.tree import Join, Named, Plan, Relation, Scan
from jobs.core.rows.consolidate import Integers, WeightedRows, add_up
from jobs.edge.rows.arranged_rows import Arrangement, FoundRows, JoinKeys, KeyedRows, Run
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.packed_rows import is_text
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.row_codes import text_bytes
from schemas.limits import JOIN_BATCH_BYTES, JOIN_BATCH_ROWS, JOIN_PAIRS_MAX, JOINED_TIMES_MAX
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import to_list

LESS_ROWS = "join by one more column, or remove the key with WHERE"


class TooManyPairs(Exception):
    """The changes of one key would join too many pairs of rows, or one pair too often."""


class JoinedRows(NamedTuple):
    """Changes of the rows of a join; a row may come several times."""

    columns: list[pa.Array]
    weights: Integers


def gather(pieces: Iterable[JoinedRows], rows_max: int) -> Iterator[JoinedRows]:
    """Yield pieces put together, so that what each batch costs is spread over enough rows."""
    kept: list[JoinedRows] = []
    count = size = 0
    for piece in pieces:
        more = sum(column.nbytes for column in piece.columns if is_text(column.type))
        if kept and (count + len(piece.weights) > rows_max or size + more > JOIN_BATCH_BYTES):
            yield _concatenate(kept)
            kept, count, size = [], 0, 0
        if len(piece.weights):
            kept.append(piece)
            count, size = count + len(piece.weights), size + more
    if kept:
        yield _concatenate(kept)


def _concatenate(pieces: Sequence[JoinedRows]) -> JoinedRows:
    columns = zip(*(piece.columns for piece in pieces), strict=True)
    weights = np.concatenate([piece.weights for piece in pieces])
    return JoinedRows([pa.concat_arrays(parts) for parts in columns], weights)


class _Changed(NamedTuple):
    """The changed rows of both sides, with the numbers of their keys."""

    keys: JoinKeys
    left: FoundRows
    right: FoundRows


class JoinOperator:
    """One join, in pieces of at most `rows_max` rows beside what changed.

    `on_failure` gets each pair, with its weight, on which the condition fails: it does not match.
    """

    def __init__(
        self, join: Join, on_failure: Callable[[str, int], None], rows_max: int = JOIN_BATCH_ROWS
    ) -> None:
        self._on_failure = on_failure
        self._rows_max = rows_max
        self._has_pairs = join.kind not in ("SEMI", "ANTI")
        # Whether a row of this side is a row of the join with a match, without one, or never alone.
        self._left_alone = True if join.kind == "SEMI" else False if join.keeps_left else None
        self._right_alone = False if join.keeps_right else None
        self._left_types = [arrow_type(column.type) for column in join.left.columns]
        self._right_types = [
            arrow_type(column.type) for column in join.inputs[len(self._left_types) :]
        ]
        self._names = [_name_rows(join.left), _name_rows(join.right)]
        self.most_pairs = (0, "")  # of one key that was joined, with a description
        self._selected = [join.inputs.index(column) for column in join.columns]
        self._condition = None if join.residual is None else _condition_of(join)

    def advance(
        self, left: Run, right: Run, left_rows: Arrangement, right_rows: Arrangement
    ) -> Iterator[JoinedRows]:
        """Take changed rows of both sides that have a key; yield those of the join in pieces."""
        keys, (lefts, rights) = JoinKeys.of_runs([left, right])
        changed = _Changed(
            keys, FoundRows(lefts, *left.rows[1:]), FoundRows(rights, *right.rows[1:])
        )
        if self._has_pairs:
            yield from self._join_pairs(changed, left_rows, right_rows)
        if self._left_alone is not None:
            here, there = (changed.left, left_rows), (changed.right, right_rows)
            for columns, weights in self._change_alone(
                changed.keys, *here, *there, self._left_alone
            ):
                yield from self._fill_right(columns, weights)
        if self._right_alone is not None:
            here, there = (changed.right, right_rows), (changed.left, left_rows)
            for columns, weights in self._change_alone(
                changed.keys, *here, *there, self._right_alone
            ):
                yield from self._fill_left(columns, weights)

    def advance_without_key(self, left: KeyedRows, right: KeyedRows) -> Iterator[JoinedRows]:
        """Take changed rows whose key has a NULL, so that they match nothing."""
        if self._left_alone is False:
            yield from self._fill_right(left.columns, left.weights)
        if self._right_alone is False:
            yield from self._fill_left(right.columns, right.weights)

    def _join_pairs(
        self, changed: _Changed, left_rows: Arrangement, right_rows: Arrangement
    ) -> Iterator[JoinedRows]:
        keys, left, right = changed
        of_left, of_right = np.unique(left.numbers), np.unique(right.numbers)
        self._require_few_pairs(changed, left_rows, right_rows)
        for found in right_rows.find(keys, of_left, self._rows_max):
            yield from self._pair_up(left, found)
        for found in left_rows.find(keys, of_right, self._rows_max):
            yield from self._pair_up(found, right)
        yield from self._pair_up(left, right)

    def _pair_up(self, left: FoundRows, right: FoundRows) -> Iterator[JoinedRows]:
        """Yield the pairs with equal keys for which the condition is true."""
        for of_left, of_right in self._cut_pairs(left, right):
            weights = _multiply(left.weights[of_left], right.weights[of_right])
            sides = (left.columns, pa.array(of_left)), (right.columns, pa.array(of_right))
            columns = [(column, rows) for all_, rows in sides for column in all_]
            if self._condition is None:
                yield self._take(columns, weights)
            else:
                yield self._filter(columns, weights)

    def _cut_pairs(self, left: FoundRows, right: FoundRows) -> Iterator[tuple[Integers, Integers]]:
        """Yield the indexes of the pairs with equal keys, in pieces of bounded size."""
        for of_left, of_right in pair_up(left.numbers, right.numbers, self._rows_max):
            sizes = text_bytes(left.columns, of_left) + text_bytes(right.columns, of_right)
            for part in cut(sizes, JOIN_BATCH_BYTES):
                yield of_left[part], of_right[part]

    def _take(self, columns: Sequence[tuple[pa.Array, pa.Array]], weights: Integers) -> JoinedRows:
        taken = (columns[index] for index in self._selected)
        return JoinedRows([column.take(rows) for column, rows in taken], weights)

    def _filter(
        self, columns: Sequence[tuple[pa.Array, pa.Array]], weights: Integers
    ) -> JoinedRows:
        assert self._condition is not None
        rows = RangeRows([column.take(rows) for column, rows in columns], weights)
        places = np.arange(len(weights))
        found = evaluate_rows(self._condition, rows, WeightedRows(places, places, weights))
        for place, reason in found.failures:
            self._on_failure(reason, int(weights[place]))
        return JoinedRows(found.rows.columns, found.weighted.weights)

    def _require_few_pairs(
        self, changed: _Changed, left_rows: Arrangement, right_rows: Arrangement
    ) -> None:
        """Raise unless this epoch can hold the pairs of so many changed rows of both sides."""
        keys, left, right = changed
        count = len(keys.codes)
        numbers = np.arange(count)
        lefts, rights = (np.bincount(each.numbers, minlength=count) for each in (left, right))
        left_all = left_rows.count_rows(keys, numbers) + lefts
        right_all = right_rows.count_rows(keys, numbers) + rights
        pairs = lefts * right_all + rights * (left_all - lefts)
        if pairs.max(initial=0) <= self.most_pairs[0]:
            return
        number = int(pairs.argmax())
        key = tuple(to_list(column.slice(number, 1))[0] for column in keys.columns)
        rows = zip((left_all[number], right_all[number]), self._names, strict=True)
        of_sides = " and ".join(f"{each:,} rows of {name}" for each, name in rows)
        self.most_pairs = (
            int(pairs[number]),
            f"{pairs[number]:,} pairs of rows with the join key {key!r} would change in one epoch: "
            f"{of_sides} have it",
        )
        if pairs[number] > JOIN_PAIRS_MAX:
            raise TooManyPairs(
                f"{self.most_pairs[1]}, and at most {JOIN_PAIRS_MAX:,} may; {LESS_ROWS}"
            )

    def _change_alone(
        self,
        keys: JoinKeys,
        changes: FoundRows,
        rows: Arrangement,
        other_changes: FoundRows,
        other_rows: Arrangement,
        alone: bool,
    ) -> Iterator[tuple[list[pa.Array], Integers]]:
        """Yield the changes of rows of a side that are in the join without one of the other side.

        That is rows + changes if they are there now, minus rows if they were there before."""
        count = len(keys.codes)
        before = other_rows.weigh_keys(keys, np.arange(count))
        change = add_up(other_changes.numbers, other_changes.weights, count)
        were_there, are_there = find_alone(before, change, alone)
        flips = np.flatnonzero(were_there != are_there)
        there = np.flatnonzero(are_there[changes.numbers])
        taken = pa.array(there)
        yield [column.take(taken) for column in changes.columns], changes.weights[there]
        for found in rows.find(keys, flips, self._rows_max):
            yield found.columns, np.where(are_there[found.numbers], found.weights, -found.weights)

    def _fill_right(self, columns: list[pa.Array], weights: Integers) -> Iterator[JoinedRows]:
        yield from self._fill(columns, [], weights)

    def _fill_left(self, columns: list[pa.Array], weights: Integers) -> Iterator[JoinedRows]:
        yield from self._fill([], columns, weights)

    def _fill(
        self, left: list[pa.Array], right: list[pa.Array], weights: Integers
    ) -> Iterator[JoinedRows]:
        """Yield rows of one side, with NULL for the other one."""
        if count := len(weights):
            columns = [
                *(left or [pa.nulls(count, kind) for kind in self._left_types]),
                *(right or [pa.nulls(count, kind) for kind in self._right_types]),
            ]
            yield JoinedRows([columns[index] for index in self._selected], weights)


def _name_rows(relation: Relation) -> str:
    return relation.alias if isinstance(relation, Scan) else "the joins before"


def _multiply(some: Integers, others: Integers) -> Integers:
    """Return how often each pair is there."""
    most = np.abs(some.astype(np.float64) * others).max(initial=0)
    if most > JOINED_TIMES_MAX:
        raise TooManyPairs(
            f"a joined row would be there {most:,.0f} times, and it may be there at most "
            f"{JOINED_TIMES_MAX:,} times; both sides have many equal rows: {LESS_ROWS}"
        )
    return some * others


def _condition_of(join: Join) -> Plan:
    """Return the plan that filters pairs and selects the columns that something reads."""
    selected = tuple(Named(column.name, column) for column in join.columns)
    return Plan(join.inputs, join.inputs, join.residual, (), selected, (), ())
