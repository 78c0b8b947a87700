"""The joined rows behind a group: the rows of both sides, and the epochs that wrote them.

    group ─► rows of one side that may be of it ─► join keys, at most so many
                  ┌────────────────────────────────────┘
                  └─► the rows of both sides with these keys ─► joined again ─► those of the group

The sides of the last join are read, which are parts of the table: its left side has the rows of all
joins before. Rows whose key has a NULL are in no side, so they are never among the rows found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.job.in_memory import RowExpander
from jobs.core.job.views import plans_of
from jobs.core.join.pairing import join_rows
from jobs.core.join.stages import JoinTree, Side, trees_of
from jobs.core.plan.tree import Column, Plan
from jobs.core.values.change import Row, Value
from jobs.core.values.json_values import Json
from jobs.reading.files import LiveFile
from jobs.reading.parts import ACCUMULATORS
from jobs.reading.row_shape import Writers
from jobs.reading.version import TableVersion
from schemas.directory.paths import JobDirectory
from schemas.limits import (
    EXPLAINED_KEYS_MAX,
    EXPLAINED_ROWS_MAX,
    EXPLAINED_SCAN_ROWS,
    EXPLAINED_SIDE_ROWS_MAX,
    EXPLAINED_STORED_ROWS_MAX,
)
from schemas.spec.file import load_spec
from schemas.table.view_path import place_part
from schemas.types.arrow_values import one_chunk, to_list, to_tuples
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import Kind, SqlType

Written = dict[Row, tuple[int, int]]  # by row: the epoch that wrote it last, and its weight
BySide = dict[Row, Written]  # by join key
Named = Sequence[tuple[str, Callable[[Value], Json]]]  # the columns of a side


class FoundRow(NamedTuple):
    """A joined row of a group: the rows of both sides, or of one if the join fills the other."""

    weight: int
    rows: list[tuple[JsonObject, int]]  # by the names of columns, with the epoch that wrote it


class JoinedGroup:
    """Reads the joined rows of one group of a view; `table` is the whole table of the job."""

    def __init__(self, table: TableVersion, tree: JoinTree, plan: Plan, key: Row) -> None:
        stage = tree.stages[-1]
        inputs = stage.join.inputs
        self._table = table
        self._key = key
        self._rows = RowExpander(plan)
        self._join = replace(stage.join, columns=inputs)
        self._sides = (stage.left, stage.right)
        self._columns = (stage.join.left.columns, stage.join.right.columns)
        self._used = [inputs.index(column) for column in plan.used]
        found = zip(plan.group, key, strict=True) if plan.grouping_sets == 1 else ()
        self._wanted = {each.expression: value for each, value in found}

    def read(self, write: Writers) -> list[FoundRow]:
        """Return joined rows of the group: all, unless these, their keys or the sides are many."""
        stored = sum(file.rows for side in self._sides for file in self._files_of(side))
        keys = None if stored > EXPLAINED_STORED_ROWS_MAX else self._find_keys()
        if keys is None:
            return []
        left, right = (_group(side, self._scan(side, _among(side, keys))) for side in self._sides)
        found: list[FoundRow] = []
        names = [[(each.name, write(each.type)) for each in columns] for columns in self._columns]
        for key in dict.fromkeys((*left, *right)):
            joined = self._join_key((left.get(key, {}), right.get(key, {})), names)
            found += islice(joined, EXPLAINED_ROWS_MAX - len(found))
        return found

    def _join_key(
        self, sides: tuple[Written, Written], names: Sequence[Named]
    ) -> Iterator[FoundRow]:
        middle = len(self._columns[0])
        left, right = map(_weights, sides)
        for row, weight in join_rows(self._join, left, right):
            if self._is_mine(tuple([row[index] for index in self._used])):
                halves = zip((row[:middle], row[middle:]), sides, names, strict=True)
                shown = [
                    (_name(half, columns), side[half][0])
                    for half, side, columns in halves
                    if side.get(half, (0, 0))[1]
                ]
                yield FoundRow(weight, shown)

    def _is_mine(self, row: Row) -> bool:
        if self._rows.failure(row) is not None:
            return False
        projected = map(self._rows.project, self._rows.expand(row))
        return any(each is not None and each[0] == self._key for each in projected)

    def _find_keys(self) -> pa.Table | None:
        """Return join keys of rows that may be of the group; None if there are none."""
        driver, wanted = self._choose_side()
        found: dict[Row, pa.Table] = {}
        keyed = _keys(driver)
        for table in self._scan(driver, lambda table: _matches(driver, table, wanted)):
            for index, key in enumerate(to_tuples(table, keyed)):
                if len(found) < EXPLAINED_KEYS_MAX:
                    found.setdefault(key, table.slice(index, 1).select([n for n, _ in keyed]))
            if len(found) >= EXPLAINED_KEYS_MAX:
                break
        return pa.concat_tables(found.values()) if found else None

    def _choose_side(self) -> tuple[Side, Mapping[int, Value]]:
        """Return the side whose rows the group restricts most, with values by their columns."""
        filled = (self._join.keeps_right, self._join.keeps_left)
        restricted = []
        for side, columns, may_be_filled in zip(self._sides, self._columns, filled, strict=True):
            wanted = {
                index: self._wanted[column]
                for index, column in enumerate(columns)
                if column in self._wanted and _is_comparable(column)
            }
            if may_be_filled and None in wanted.values():
                wanted = {}  # the group also has rows of the other side alone
            restricted.append((side, wanted))
        return max(restricted, key=lambda each: len(each[1]))

    def _files_of(self, side: Side) -> list[LiveFile]:
        """Return the files with the rows of a side, the newest first."""
        found = self._table.of_part(place_part(ACCUMULATORS, side.name))
        return sorted(found, key=lambda file: -file.epoch_max)

    def _scan(self, side: Side, matches: Callable[[pa.Table], Any]) -> Iterator[pa.Table]:
        """Yield the stored rows of a side that match, the newest files first."""
        columns = ["epoch", _weight_name(side), *(name for name, _ in side.state.key)]
        for file in self._files_of(side):
            for table in self._table.batches(file, columns, EXPLAINED_SCAN_ROWS):
                found = table.filter(matches(table))
                if found.num_rows:
                    yield found


def find_tree(paths: JobDirectory, plan: Plan) -> JoinTree | None:
    """Return the joins of a view; None if it reads one source."""
    if plan.relation is None:
        return None
    trees = trees_of(plans_of(load_spec(paths.at_view("").spec)))
    return next(tree for tree in trees if paths.view in tree.views)


def _keys(side: Side) -> list[tuple[str, SqlType]]:
    return side.state.key[: len(side.inputs.group)]


def _values(side: Side) -> list[tuple[str, SqlType]]:
    return side.state.key[len(side.inputs.group) :]


def _weight_name(side: Side) -> str:
    return side.state.aggregates[0].name


def _matches(side: Side, table: pa.Table, wanted: Mapping[int, Value]) -> Any:
    """Return which stored rows are there and have these values, by the indexes of columns."""
    found = pc.fill_null(pc.not_equal(table[_weight_name(side)], 0), False)
    for index, value in wanted.items():
        column = table[_values(side)[index][0]]
        equal = column.is_null() if value is None else pc.fill_null(pc.equal(column, value), False)
        found = pc.and_(found, equal)
    return found


def _among(side: Side, keys: pa.Table) -> Callable[[pa.Table], Any]:
    """Return which stored rows have one of these keys, or parts of several of them."""

    def matches(table: pa.Table) -> Any:
        columns = zip(_keys(side), keys.columns, strict=True)
        found = [
            pc.is_in(table[name], value_set=one_chunk(values).cast(table[name].type))
            for (name, _), values in columns
        ]
        return reduce(pc.and_, found)

    return matches


def _group(side: Side, tables: Iterable[pa.Table]) -> BySide:
    """Return the newest weight of each row, by key."""
    found: BySide = {}
    count = 0
    for table in tables:
        keys, rows = to_tuples(table, _keys(side)), to_tuples(table, _values(side))
        weights = to_list(pc.fill_null(table[_weight_name(side)], 0))
        for key, row, epoch, weight in zip(
            keys, rows, to_list(table["epoch"]), weights, strict=True
        ):
            of_key = found.setdefault(key, {})
            known = of_key.get(row)
            if known is None and count == EXPLAINED_SIDE_ROWS_MAX:
                continue
            if known is None or known[0] < epoch:
                count += known is None
                of_key[row] = epoch, weight
    return found


def _name(row: Row, columns: Named) -> JsonObject:
    return {name: render(value) for (name, render), value in zip(columns, row, strict=True)}


def _weights(rows: Written) -> dict[Row, int]:
    return {row: weight for row, (_, weight) in rows.items() if weight}


def _is_comparable(column: Column) -> bool:
    """Return whether Arrow compares values of a column as they are in memory here."""
    return column.type.integer or column.type.kind in (Kind.STRING, Kind.BOOLEAN)
