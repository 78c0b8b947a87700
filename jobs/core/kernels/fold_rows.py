"""Fold weighted rows into a table of groups, which stays as it is.

    rows ─gather_rows─► local groups and deltas ─merge_groups─► values before and after,
                              ▲          committed table ─┘     new multiplicities

A sum is two words: high and low half, `high * 2^32 + low` with a low half of 32 bits. So sums of
64-bit values are exact, also of joined rows, whose weights are products. The order of the rows does
not matter. `jobs.core.fold.fold` has the same rules, for any type and every time rule.
"""

from __future__ import annotations

from typing import NamedTuple

from jobs.core.kernels.codes import (
    COUNT,
    DISTINCT_COUNT,
    DISTINCT_SUM,
    MULTISET_BITS,
    PRESENT,
    ROWS,
    SUM,
)
from jobs.core.kernels.compiled import Array, inlined, kernel
from jobs.core.kernels.group_table import (
    DAMAGED,
    EMPTY,
    ENTRIES,
    HASH,
    KEY_AT,
    KEY_SIZE,
    NEXT,
    SEED,
    TIMES,
    VALUE,
    GroupTable,
    find_entry,
    find_group,
    hash_entry,
    hash_key,
    is_sound_entry,
)
from jobs.core.kernels.json_bytes import equal_bytes

CELL_KIND, CELL_ARGUMENT, CELL_WORD, CELL_MULTISET = range(4)

# A multiset: its argument, and the words of its extremes (whether there is one, then the value).
MULTISET_ARGUMENT, LARGEST, SMALLEST = range(3)

# What is noted of a local group beside its words: one of its rows, and its number in the table.
ROW, FOUND = range(2)
NOTES = 2

# A delta: how often a value comes to a multiset of a local group, and its multiplicity after that.
DELTA_VALUE, WEIGHT, DELTA_OWNER, DELTA_NEXT, AFTER = range(5)
DELTA_WORDS = 5

# A new multiplicity.
OUT_GROUP, OUT_MULTISET, OUT_VALUE, OUT_TIMES = range(4)
OUT_WORDS = 4

# Whether a group is state.
BEFORE, NOW = range(2)

_LOW_HALF = (1 << 32) - 1
_PIECE_BITS = 30  # of a weight: its product with a low half, and what it is added to, is a word
_PIECE = (1 << _PIECE_BITS) - 1
_NO_ONE = -1


class Query(NamedTuple):
    """What to compute of a group."""

    cells: Array  # [cell, CELL_*]
    multisets: Array  # [multiset, MULTISET_ARGUMENT to SMALLEST]


class Rows(NamedTuple):
    """Weighted rows."""

    keys: Array  # bytes
    ends: Array  # one more than rows
    values: Array  # [argument, row]
    valid: Array  # [argument, row]
    weights: Array


class Local(NamedTuple):
    """What `gather_rows` finds: the rows' groups, with words as in the table, and their deltas."""

    groups: Array  # [group, word]
    notes: Array  # [group, NOTES]
    group_index: Array
    deltas: Array  # [delta, DELTA_WORDS]
    delta_index: Array


class Merged(NamedTuple):
    """What `merge_groups` finds: the changed groups, and their values from ROWS on."""

    groups: Array  # their local numbers
    old: Array  # [group, word]
    new: Array  # [group, word]
    lives: Array  # [group, BEFORE or NOW]; whether a word or an entry is not zero
    entries: Array  # [entry, OUT_WORDS]


@inlined
def _carry(into: Array, number: int, word: int) -> None:
    into[number, word] += into[number, word + 1] >> 32
    into[number, word + 1] &= _LOW_HALF


@inlined
def _add_product(into: Array, number: int, word: int, value: int, weight: int) -> None:
    low, above = value & _LOW_HALF, weight >> _PIECE_BITS
    into[number, word] += (value >> 32) * weight + (low * above >> 32 - _PIECE_BITS)
    into[number, word + 1] += low * (weight & _PIECE)
    into[number, word + 1] += (low * above & (1 << 32 - _PIECE_BITS) - 1) << _PIECE_BITS
    _carry(into, number, word)


@inlined
def _find_delta(owner: int, value: int, seed: int, local: Local) -> int:
    """Return the slot of a delta in the index, or the free slot for it."""
    index, deltas = local.delta_index, local.deltas
    mask = len(index) - 1
    slot = hash_entry(owner, value, seed) & mask
    while index[slot] != EMPTY:
        delta = index[slot]
        if deltas[delta, DELTA_OWNER] == owner and deltas[delta, DELTA_VALUE] == value:
            return slot
        slot = (slot + 1) & mask
    return slot


@inlined
def _find_local(hashed: int, at: int, size: int, keys: Array, local: Local) -> int:
    """Return the slot of a local group in the index, or the free slot for it."""
    index, groups = local.group_index, local.groups
    mask = len(index) - 1
    slot = hashed & mask
    while index[slot] != EMPTY:
        other = index[slot]
        if (
            groups[other, HASH] == hashed
            and groups[other, KEY_SIZE] == size
            and equal_bytes(keys, groups[other, KEY_AT], keys, at, size)
        ):
            return slot
        slot = (slot + 1) & mask
    return slot


@inlined
def _add_to_cells(number: int, row: int, weight: int, rows: Rows, query: Query, to: Array) -> None:
    to[number, ROWS] += weight
    cells = query.cells
    for cell in range(len(cells)):
        argument = cells[cell, CELL_ARGUMENT]
        if rows.valid[argument, row]:
            if cells[cell, CELL_KIND] == COUNT:
                to[number, cells[cell, CELL_WORD]] += weight
            elif cells[cell, CELL_KIND] == SUM:
                word = cells[cell, CELL_WORD]
                _add_product(to, number, word, rows.values[argument, row], weight)


@inlined
def _add_to_deltas(
    number: int,
    row: int,
    weight: int,
    known: int,
    seed: int,
    rows: Rows,
    query: Query,
    local: Local,
) -> int:
    """Add a row's values to the deltas of its group; return how many deltas there are now."""
    multisets, deltas = query.multisets, local.deltas
    first = local.groups.shape[1] - len(multisets)
    for multiset in range(len(multisets)):
        argument = multisets[multiset, MULTISET_ARGUMENT]
        if not rows.valid[argument, row]:
            continue
        value = rows.values[argument, row]
        owner = number << MULTISET_BITS | multiset
        slot = _find_delta(owner, value, seed, local)
        delta = local.delta_index[slot]
        if delta == EMPTY:
            delta = known
            known += 1
            local.delta_index[slot] = delta
            deltas[delta, DELTA_VALUE], deltas[delta, DELTA_OWNER] = value, owner
            deltas[delta, WEIGHT], deltas[delta, AFTER] = 0, 0
            deltas[delta, DELTA_NEXT] = local.groups[number, first + multiset]
            local.groups[number, first + multiset] = delta
        deltas[delta, WEIGHT] += weight
    return known


@inlined
def _begin_group(
    number: int, row: int, hashed: int, multisets: int, rows: Rows, local: Local, table: GroupTable
) -> bool:
    """Begin a local group; return False if the table is damaged."""
    groups, notes = local.groups, local.notes
    at, size = rows.ends[row], rows.ends[row + 1] - rows.ends[row]
    first = groups.shape[1] - multisets
    for word in range(groups.shape[1]):
        groups[number, word] = 0 if word < first else _NO_ONE
    groups[number, HASH], groups[number, KEY_AT], groups[number, KEY_SIZE] = hashed, at, size
    notes[number, ROW] = row
    notes[number, FOUND] = find_group(hashed, rows.keys, at, size, table)
    return bool(notes[number, FOUND] != DAMAGED)


@kernel
def gather_rows(
    order: Array, rows: Rows, query: Query, table: GroupTable, local: Local
) -> tuple[int, int]:
    """Add up the rows in `order` by group.

    Return how many groups they have, or DAMAGED, and how many multiplicities may change.
    """
    groups = local.groups
    multisets, seed = len(query.multisets), table.counts[SEED]
    known = known_deltas = 0
    for k in range(len(order)):
        row = order[k]
        at, size = rows.ends[row], rows.ends[row + 1] - rows.ends[row]
        hashed = hash_key(rows.keys, at, size, seed)
        slot = _find_local(hashed, at, size, rows.keys, local)
        number = local.group_index[slot]
        if number == EMPTY:
            number = known
            known += 1
            local.group_index[slot] = number
            if not _begin_group(number, row, hashed, multisets, rows, local, table):
                return DAMAGED, 0
        weight = rows.weights[row]
        _add_to_cells(number, row, weight, rows, query, groups)
        known_deltas = _add_to_deltas(number, row, weight, known_deltas, seed, rows, query, local)
    return known, known_deltas


@inlined
def _is_empty(number: int, first: int, local: Local) -> bool:
    groups, deltas = local.groups, local.deltas
    for word in range(ROWS, first):
        if groups[number, word] != 0:
            return False
    for word in range(first, groups.shape[1]):
        delta = groups[number, word]
        while delta != _NO_ONE:
            if deltas[delta, WEIGHT] != 0:
                return False
            delta = deltas[delta, DELTA_NEXT]
    return True


@inlined
def _follow_entry(
    at: int, multiset: int, value: int, before: int, after: int, query: Query, new: Array
) -> None:
    """Add the change of a multiplicity to the cells that follow it."""
    cells = query.cells
    appeared = (1 if after > 0 else 0) - (1 if before > 0 else 0)
    for cell in range(len(cells)):
        kind = cells[cell, CELL_KIND]
        if kind < DISTINCT_COUNT or cells[cell, CELL_MULTISET] != multiset:
            continue
        word = cells[cell, CELL_WORD] - ROWS
        if kind == DISTINCT_COUNT:
            new[at, word] += appeared
        elif kind == PRESENT:
            new[at, word] += max(after, 0) - max(before, 0)
        elif appeared != 0:
            _add_product(new, at, word, value, appeared)


@inlined
def _follow_extreme(
    at: int, word: int, sign: int, value: int, after: int, old: Array, new: Array
) -> bool:
    """Let an extreme follow a multiplicity; return whether its old value is gone."""
    if after > 0:
        if new[at, word] == 0 or (
            value > new[at, word + 1] if sign > 0 else value < new[at, word + 1]
        ):
            new[at, word], new[at, word + 1] = 1, value
        return False
    return bool(old[at, word] != 0 and value == old[at, word + 1])


@inlined
def _find_extreme(
    number: int, multiset: int, multisets: int, sign: int, local: Local, table: GroupTable
) -> tuple[int, int, int]:
    """Return whether values are present, the greatest (sign 1) or least, and if it is sound."""
    deltas, entries = local.deltas, table.entries
    has, best, found = 0, 0, local.notes[number, FOUND]
    word = local.groups.shape[1] - multisets + multiset
    delta = local.groups[number, word]
    while delta != _NO_ONE:
        if deltas[delta, WEIGHT] != 0 and deltas[delta, AFTER] > 0:
            value = deltas[delta, DELTA_VALUE]
            if has == 0 or (value > best if sign > 0 else value < best):
                has, best = 1, value
        delta = deltas[delta, DELTA_NEXT]
    entry, steps = table.groups[found, word], 0
    while entry != EMPTY:
        steps += 1
        sound = is_sound_entry(entry, found << MULTISET_BITS | multiset, table)
        if not sound or steps > table.counts[ENTRIES]:
            return 0, 0, 0
        value = entries[entry, VALUE]
        if entries[entry, TIMES] > 0 and (has == 0 or (value > best if sign > 0 else value < best)):
            owner = number << MULTISET_BITS | multiset
            delta = local.delta_index[_find_delta(owner, value, table.counts[SEED], local)]
            if delta == EMPTY or deltas[delta, WEIGHT] == 0:
                has, best = 1, value
        entry = entries[entry, NEXT]
    return has, best, 1


@inlined
def _merge_multiset(
    at: int,
    number: int,
    multiset: int,
    outs: int,
    query: Query,
    local: Local,
    table: GroupTable,
    merged: Merged,
) -> tuple[int, int]:
    """Merge the deltas of one multiset of a group.

    Return how many multiplicities there are now, or DAMAGED, and by how much they sank below zero.
    """
    deltas, old, new, out = local.deltas, merged.old, merged.new, merged.entries
    multisets = len(query.multisets)
    largest = query.multisets[multiset, LARGEST] - ROWS
    smallest = query.multisets[multiset, SMALLEST] - ROWS
    lost_largest = lost_smallest = False
    found, unmatched = local.notes[number, FOUND], 0
    delta = local.groups[number, local.groups.shape[1] - multisets + multiset]
    while delta != _NO_ONE:
        weight, value = deltas[delta, WEIGHT], deltas[delta, DELTA_VALUE]
        if weight != 0:
            before = 0
            if found >= 0:
                entry = find_entry(found << MULTISET_BITS | multiset, value, table)
                if entry == DAMAGED:
                    return DAMAGED, 0
                if entry >= 0:
                    before = table.entries[entry, TIMES]
            after = before + weight
            deltas[delta, AFTER] = after
            unmatched += min(before, 0) - min(after, 0)
            _follow_entry(at, multiset, value, before, after, query, new)
            if largest >= 0 and _follow_extreme(at, largest, 1, value, after, old, new):
                lost_largest = True
            if smallest >= 0 and _follow_extreme(at, smallest, -1, value, after, old, new):
                lost_smallest = True
            out[outs, OUT_GROUP], out[outs, OUT_MULTISET] = at, multiset
            out[outs, OUT_VALUE], out[outs, OUT_TIMES] = value, after
            outs += 1
        delta = deltas[delta, DELTA_NEXT]
    if lost_largest and new[at, largest + 1] == old[at, largest + 1]:
        has, best, sound = _find_extreme(number, multiset, multisets, 1, local, table)
        if not sound:
            return DAMAGED, 0
        new[at, largest], new[at, largest + 1] = has, best
    if lost_smallest and new[at, smallest + 1] == old[at, smallest + 1]:
        has, best, sound = _find_extreme(number, multiset, multisets, -1, local, table)
        if not sound:
            return DAMAGED, 0
        new[at, smallest], new[at, smallest + 1] = has, best
    return outs, unmatched


@inlined
def _has_entries(number: int, local: Local, query: Query, table: GroupTable) -> int:
    """Return whether a multiset of a group is not empty after its deltas, or DAMAGED."""
    deltas, entries, found = local.deltas, table.entries, local.notes[number, FOUND]
    multisets = len(query.multisets)
    for multiset in range(multisets):
        word = local.groups.shape[1] - multisets + multiset
        delta = local.groups[number, word]
        while delta != _NO_ONE:
            if deltas[delta, WEIGHT] != 0 and deltas[delta, AFTER] != 0:
                return 1
            delta = deltas[delta, DELTA_NEXT]
        entry, steps = table.groups[found, word] if found >= 0 else EMPTY, 0
        while entry != EMPTY:
            steps += 1
            sound = is_sound_entry(entry, found << MULTISET_BITS | multiset, table)
            if not sound or steps > table.counts[ENTRIES]:
                return DAMAGED
            if entries[entry, TIMES] != 0:
                owner, value = number << MULTISET_BITS | multiset, entries[entry, VALUE]
                delta = local.delta_index[_find_delta(owner, value, table.counts[SEED], local)]
                if delta == EMPTY or deltas[delta, WEIGHT] == 0:
                    return 1
            entry = entries[entry, NEXT]
    return 0


@inlined
def _has_stored_entries(found: int, multisets: int, table: GroupTable) -> int:
    """Return whether a multiset of a group in the table is not empty, or DAMAGED."""
    for multiset in range(multisets):
        entry = table.groups[found, table.groups.shape[1] - multisets + multiset]
        steps = 0
        while entry != EMPTY:
            steps += 1
            sound = is_sound_entry(entry, found << MULTISET_BITS | multiset, table)
            if not sound or steps > table.counts[ENTRIES]:
                return DAMAGED
            if table.entries[entry, TIMES] != 0:
                return 1
            entry = table.entries[entry, NEXT]
    return 0


@inlined
def _has_cells(at: int, query: Query, values: Array) -> bool:
    """Return whether the row count or a cell of a group is not zero."""
    if values[at, 0] != 0:
        return True
    cells = query.cells
    for cell in range(len(cells)):
        word, kind = cells[cell, CELL_WORD] - ROWS, cells[cell, CELL_KIND]
        if values[at, word] != 0:
            return True
        if (kind == SUM or kind == DISTINCT_SUM) and values[at, word + 1] != 0:
            return True
    return False


@kernel
def merge_groups(
    order: Array, query: Query, table: GroupTable, local: Local, merged: Merged
) -> tuple[int, int, int]:
    """Add the local groups in `order` to the table's values.

    Return how many groups changed, or DAMAGED, how many multiplicities there are now, and by how
    much multiplicities and row counts sank below zero.
    """
    groups, old, new = table.groups, merged.old, merged.new
    multisets = len(query.multisets)
    first = groups.shape[1] - multisets
    at = outs = all_unmatched = 0
    for k in range(len(order)):
        number = order[k]
        found = local.notes[number, FOUND]
        existed = found >= 0
        if _is_empty(number, first, local):
            continue
        for word in range(ROWS, first):
            old[at, word - ROWS] = groups[found, word] if existed else 0
            new[at, word - ROWS] = old[at, word - ROWS] + local.groups[number, word]
        unmatched = min(old[at, 0], 0) - min(new[at, 0], 0)
        for multiset in range(multisets):
            outs, own = _merge_multiset(at, number, multiset, outs, query, local, table, merged)
            if outs == DAMAGED:
                return DAMAGED, 0, 0
            unmatched = max(unmatched, own)
        for cell in range(len(query.cells)):
            kind = query.cells[cell, CELL_KIND]
            if kind == SUM or kind == DISTINCT_SUM:
                _carry(new, at, query.cells[cell, CELL_WORD] - ROWS)
        lived, lives = 1, 1
        if not _has_cells(at, query, old):
            lived = _has_stored_entries(found, multisets, table) if existed else 0
        if not _has_cells(at, query, new):
            lives = _has_entries(number, local, query, table)
        if lived == DAMAGED or lives == DAMAGED:
            return DAMAGED, 0, 0
        if lives:
            all_unmatched += max(unmatched, 0)
        merged.lives[at, BEFORE], merged.lives[at, NOW] = lived, lives
        merged.groups[at] = number
        at += 1
    return at, outs, all_unmatched
