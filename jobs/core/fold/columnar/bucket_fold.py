"""A bucket's groups in arrays: fold rows of an epoch, apply committed epochs, make room.

rows ──fold_rows──► FoldedBucket: values before and after ──► changelog, files, records
         ▲ reads
       GroupTable ◄──apply── records of committed epochs      (the same arrays, or larger ones)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from jobs.core.fold.columnar.query import ColumnarQuery
from jobs.core.kernels import fold_rows as kernel
from jobs.core.kernels import group_keys
from jobs.core.kernels import group_table as words
from jobs.core.kernels.apply_records import RecordArrays, apply_records, copy_living
from jobs.core.kernels.codes import MULTISET_BITS, ROWS
from jobs.core.kernels.compiled import AVAILABLE, Array
from jobs.core.kernels.fold_rows import Rows
from jobs.core.kernels.group_table import DAMAGED, EMPTY, GroupTable
from jobs.core.kernels.touch_rows import touch_rows

_GROWTH = 2
_SMALLEST = 64


class ArraysDamaged(Exception):
    """A check in the arrays does not fit; they must be built anew."""


class Room(NamedTuple):
    """How much a table has room for."""

    groups: int
    entries: int
    key_bytes: int

    def holds(self, other: Room) -> bool:
        return all(mine >= wanted for mine, wanted in zip(self, other, strict=True))

    @property
    def shapes(self) -> tuple[int, int, int, int]:
        """The lengths of the arrays: rows and cells of groups, rows and cells of entries."""
        return self.groups, _cells(self.groups), self.entries, _cells(self.entries)


class Folded(NamedTuple):
    """The groups of a bucket that some rows changed, in the order of their keys."""

    rows: Array  # one row of each
    old: Array  # [group, word] values; zeros if there was none
    new: Array  # zeros if it ends
    lived: Array  # whether the group was in the state
    lives: Array  # whether it is now
    entries: Array  # new multiplicities [entry, OUT_WORDS]
    touched: int
    unmatched: int


def allocate(query: ColumnarQuery, room: Room, seed: int) -> GroupTable:
    """Return an empty table in memory."""
    groups, group_cells, entries, entry_cells = room.shapes
    return GroupTable(
        np.zeros((groups, query.width), np.int64),
        np.full(group_cells, EMPTY, np.int64),
        np.zeros(room.key_bytes + words.KEY_PAD, np.uint8),
        np.zeros((entries, words.ENTRY_WORDS), np.int64),
        np.full(entry_cells, EMPTY, np.int64),
        np.array([0, 0, 0, seed], np.int64),
    )


def room_of(table: GroupTable) -> Room:
    """Return how much a table has room for."""
    return Room(len(table.groups), len(table.entries), len(table.heap) - words.KEY_PAD)


def room_for(table: GroupTable, records: RecordArrays) -> Room:
    """Return the room that a table needs at most after these records."""
    used = table.counts
    return Room(
        int(used[words.GROUPS]) + len(records.ends) - 1,
        int(used[words.ENTRIES]) + len(records.entries),
        int(used[words.KEY_BYTES]) + int(records.ends[-1] - records.ends[0]),
    )


def room_of_live_rows(query: ColumnarQuery, table: GroupTable, needed: Room) -> Room:
    """Return the room of the live rows, with the growth that `needed` adds to what is used."""
    counts = table.counts.tolist()
    groups = table.groups[: counts[words.GROUPS]]
    entries = table.entries[: counts[words.ENTRIES]]
    entries = entries[entries[:, words.TIMES] != 0]
    owners = entries[:, words.OWNER] >> MULTISET_BITS
    if len(owners) and not 0 <= owners.min() <= owners.max() < len(groups):
        raise ArraysDamaged("an entry has no group")
    values = groups[:, ROWS : groups.shape[1] - len(query.multisets)]
    lives = (values != 0).any(axis=1)
    lives[owners] = True
    key_bytes = int(groups[lives, words.KEY_SIZE].sum())
    if not 0 <= key_bytes <= counts[words.KEY_BYTES]:
        raise ArraysDamaged("the sizes of keys do not fit their bytes")
    return Room(
        int(lives.sum()) + needed.groups - counts[words.GROUPS],
        len(entries) + needed.entries - counts[words.ENTRIES],
        key_bytes + needed.key_bytes - counts[words.KEY_BYTES],
    )


def larger_room(needed: Room) -> Room:
    """Return room for what is needed and for growth."""
    return Room(*(max(_GROWTH * each, _SMALLEST) for each in needed))


def copy_table(query: ColumnarQuery, table: GroupTable, to: GroupTable) -> None:
    """Copy what lives into an empty table."""
    if copy_living(len(query.multisets), table, to) == DAMAGED:
        raise ArraysDamaged("a group or an entry does not fit its check")


def apply(query: ColumnarQuery, table: GroupTable, records: RecordArrays) -> None:
    """Apply records to a table that has room for them."""
    numbers = np.empty(len(records.ends) - 1, np.int64)
    if apply_records(records, numbers, len(query.multisets), table) == DAMAGED:
        raise ArraysDamaged("a group or an entry does not fit its check")


@dataclass(frozen=True, slots=True)
class BucketFold:
    """Folds rows into tables of one query."""

    query: ColumnarQuery
    sort: Callable[[Array], Array]  # rows ─► their indexes in the order of their keys

    def fold(self, table: GroupTable, rows: Rows, order: Array) -> Folded:
        query = self._query
        local = self._local(len(order))
        known, outs = kernel.gather_rows(order, rows, query, table, local)
        if known == DAMAGED:
            raise ArraysDamaged("a group does not fit its check")
        sorted_groups = self.sort(local.notes[:known, kernel.ROW])
        merged = kernel.Merged(
            np.empty(known, np.int64),
            np.empty((known, self.query.values), np.int64),
            np.empty((known, self.query.values), np.int64),
            np.empty((known, 2), np.int64),
            np.empty((outs, kernel.OUT_WORDS), np.int64),
        )
        found = kernel.merge_groups(sorted_groups, query, table, local, merged)
        changed, entries, unmatched = found
        if changed == DAMAGED:
            raise ArraysDamaged("an entry does not fit its check")
        lives = merged.lives[:changed] != 0
        return Folded(
            local.notes[merged.groups[:changed], kernel.ROW],
            merged.old[:changed],
            merged.new[:changed],
            lives[:, kernel.BEFORE],
            lives[:, kernel.NOW],
            merged.entries[:entries],
            known,
            unmatched,
        )

    def touch(self, table: GroupTable, rows: Rows, order: Array) -> int:
        """Read what `fold` will read, and return how much; threads may do so for parts of it."""
        return touch_rows(order, rows, self._query, table)

    @property
    def _query(self) -> kernel.Query:
        return kernel.Query(self.query.cell_array, self.query.multiset_array)

    def _local(self, rows: int) -> kernel.Local:
        deltas = rows * len(self.query.multisets)
        return kernel.Local(
            np.empty((rows, self.query.width), np.int64),
            np.empty((rows, kernel.NOTES), np.int64),
            np.full(_cells(rows), EMPTY, np.int64),
            np.empty((deltas, kernel.DELTA_WORDS), np.int64),
            np.full(_cells(deltas), EMPTY, np.int64),
        )


@cache
def load_fold() -> bool:
    """Compile the kernels of the fold or load them, once; return False if that fails."""
    if not AVAILABLE:
        return False
    query = ColumnarQuery((), (), ((0, 0),), (), 1)
    table = allocate(query, Room(1, 1, 1), 1)
    keys, text, nothing = np.zeros(8, np.uint8), np.zeros(1, np.uint8), np.zeros(0, np.int64)
    text.flags.writeable = False
    ends, no_flags = np.zeros(1, np.int64), np.zeros(0, np.uint8)
    arguments = np.zeros((0, 0), np.int64), np.zeros((0, 0), np.uint8)
    no_values, no_entries = np.zeros((0, 1), np.int64), np.zeros((0, kernel.OUT_WORDS), np.int64)
    try:
        group_keys.add_text_sizes(text, ends, no_flags, nothing)
        group_keys.put_texts(text, ends, no_flags, nothing, keys)
        group_keys.put_numbers(nothing, no_flags, nothing, keys)
        rows = Rows(keys, ends, *arguments, nothing)
        fold = BucketFold(query, lambda rows: rows)
        fold.touch(table, rows, nothing)
        fold.fold(table, rows, nothing)
        apply(query, table, RecordArrays(keys, ends, no_values, no_entries))
        copy_table(query, table, allocate(query, Room(1, 1, 1), 1))
    except Exception:
        return False
    return True


def _cells(rows: int) -> int:
    """Return the cells of an index: a power of two, at least twice the rows."""
    return 1 << max(2 * rows - 1, 1).bit_length()
