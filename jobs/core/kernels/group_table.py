"""A table of groups in flat arrays: rows of groups and entries, found by hash.

    key ─hash─► index ─► groups   [HASH, KEY_AT, KEY_SIZE, CHECK, ROWS, values ..., first entry ...]
                                          └► heap: bytes                               │
                                                                                       ▼
    group, multiset, value ─hash─► entry index ─► entries   [VALUE, TIMES, OWNER, NEXT, CHECK]

The arrays may be a file that others can damage. So each row has a check over its words, a cell of
an index repeats a part of the hash, and a key is compared with its hash: a lookup tells FOUND,
MISSING or DAMAGED apart. Rows are never removed; the caller copies what lives into new arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jobs.core.kernels.codes import ROWS
from jobs.core.kernels.compiled import Array, inlined
from jobs.core.kernels.json_bytes import equal_bytes, load_word

# Words of a group's row. From ROWS on they are values, then the first entry of each multiset.
HASH, KEY_AT, KEY_SIZE, CHECK = range(ROWS)

# Words of an entry's row.
VALUE, TIMES, OWNER, NEXT, ENTRY_CHECK = range(5)
ENTRY_WORDS = 5

# What the table counts, in an array of its own.
GROUPS, ENTRIES, KEY_BYTES, SEED = range(4)

MISSING, DAMAGED = -1, -2
EMPTY = -1  # a cell of an index; a page of zeros is none
KEY_PAD = 8  # bytes after the last key, because keys are read in words

# A cell of an index: a part of the hash, and the number of a row.
_TAG, _NUMBER = 0x7FFFFFFF << 32, (1 << 32) - 1


class GroupTable(NamedTuple):
    """The arrays of a table."""

    groups: Array  # [group, word]
    group_index: Array  # a power of two of cells, at least twice the groups
    heap: Array  # bytes of keys, and KEY_PAD more
    entries: Array  # [entry, ENTRY_WORDS]
    entry_index: Array
    counts: Array  # GROUPS, ENTRIES, KEY_BYTES, SEED


U = np.uint64
_FACTOR, _OTHER_FACTOR = U(0x9E3779B97F4A7C15), U(0xD6E8FEB86659FD93)
_HALF = U(32)
_MASKS = np.array([2 ** (8 * size) - 1 for size in range(9)], dtype=np.uint64)


@inlined
def mix(hashed: np.uint64, word: np.uint64) -> np.uint64:
    hashed = (hashed ^ word) * _FACTOR
    return hashed ^ (hashed >> _HALF)


@inlined
def hash_key(data: Array, at: int, size: int, seed: int) -> int:
    hashed = mix(U(seed), U(size))
    done = 0
    while done + 8 <= size:
        hashed = mix(hashed, load_word(data, at + done))
        done += 8
    if done < size:
        hashed = mix(hashed, load_word(data, at + done) & _MASKS[size - done])
    return np.int64(hashed * _OTHER_FACTOR)  # type: ignore[return-value]


@inlined
def hash_entry(owner: int, value: int, seed: int) -> int:
    hashed = mix(mix(U(seed), U(owner)), U(value))
    return np.int64(hashed * _OTHER_FACTOR)  # type: ignore[return-value]


@inlined
def check_of(rows: Array, number: int, check: int) -> int:
    """Return the check of a row: a hash of its other words."""
    hashed = U(number + 1)  # so that a row of zeros is damage at every number
    for word in range(rows.shape[1]):
        if word != check:
            hashed = mix(hashed, U(rows[number, word]))
    return np.int64(hashed)  # type: ignore[return-value]


@inlined
def cell_of(hashed: int, number: int) -> int:
    return (hashed & _TAG) | number


@inlined
def find_free(index: Array, hashed: int) -> int:
    """Return the slot of a new cell; at least half of an index is empty."""
    mask = len(index) - 1
    slot = hashed & mask
    while index[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot


@inlined
def find_group(hashed: int, keys: Array, at: int, size: int, table: GroupTable) -> int:
    """Return the number of a group, MISSING or DAMAGED."""
    groups, index = table.groups, table.group_index
    known, seed = table.counts[GROUPS], table.counts[SEED]
    mask = len(index) - 1
    slot = hashed & mask
    steps = 0
    while index[slot] != EMPTY:
        number = index[slot] & _NUMBER
        steps += 1
        if number >= known or steps > mask:
            return DAMAGED
        if (index[slot] & _TAG) == (hashed & _TAG):
            if groups[number, CHECK] != check_of(groups, number, CHECK):
                return DAMAGED
            start, length = groups[number, KEY_AT], groups[number, KEY_SIZE]
            if length == size and equal_bytes(table.heap, start, keys, at, size):
                return number  # type: ignore[no-any-return]
            if groups[number, HASH] != hash_key(table.heap, start, length, seed):
                return DAMAGED
        slot = (slot + 1) & mask
    # The key is missing if each cell on the way tells the truth.
    way = hashed & mask
    while way != slot:
        number = index[way] & _NUMBER
        if (groups[number, HASH] & _TAG) != (index[way] & _TAG):
            return DAMAGED
        way = (way + 1) & mask
    return MISSING


@inlined
def find_entry(owner: int, value: int, table: GroupTable) -> int:
    """Return the number of an entry, MISSING or DAMAGED."""
    entries, index = table.entries, table.entry_index
    known, seed = table.counts[ENTRIES], table.counts[SEED]
    hashed = hash_entry(owner, value, seed)
    mask = len(index) - 1
    slot = hashed & mask
    steps = 0
    while index[slot] != EMPTY:
        number = index[slot] & _NUMBER
        steps += 1
        if number >= known or steps > mask:
            return DAMAGED
        if (index[slot] & _TAG) == (hashed & _TAG):
            if entries[number, ENTRY_CHECK] != check_of(entries, number, ENTRY_CHECK):
                return DAMAGED
            if entries[number, OWNER] == owner and entries[number, VALUE] == value:
                return number  # type: ignore[no-any-return]
        slot = (slot + 1) & mask
    way = hashed & mask
    while way != slot:
        number = index[way] & _NUMBER
        other = hash_entry(entries[number, OWNER], entries[number, VALUE], seed)
        if (other & _TAG) != (index[way] & _TAG):
            return DAMAGED
        way = (way + 1) & mask
    return MISSING


@inlined
def is_sound_entry(number: int, owner: int, table: GroupTable) -> bool:
    """Return whether a chain of entries may go on with this one."""
    if not 0 <= number < table.counts[ENTRIES]:
        return False
    entries = table.entries
    checked = entries[number, ENTRY_CHECK] == check_of(entries, number, ENTRY_CHECK)
    return bool(checked and entries[number, OWNER] == owner)


@inlined
def add_group(
    hashed: int, keys: Array, at: int, size: int, multisets: int, table: GroupTable
) -> int:
    """Add a group without rows and return its number; there is room."""
    groups, heap, counts = table.groups, table.heap, table.counts
    number, start = counts[GROUPS], counts[KEY_BYTES]
    counts[GROUPS] += 1
    counts[KEY_BYTES] += size
    for byte in range(size):
        heap[start + byte] = keys[at + byte]
    first = groups.shape[1] - multisets
    for word in range(groups.shape[1]):
        groups[number, word] = 0 if word < first else EMPTY
    groups[number, HASH], groups[number, KEY_AT], groups[number, KEY_SIZE] = hashed, start, size
    groups[number, CHECK] = check_of(groups, number, CHECK)
    table.group_index[find_free(table.group_index, hashed)] = cell_of(hashed, number)
    return number  # type: ignore[no-any-return]


@inlined
def add_entry(owner: int, value: int, times: int, following: int, table: GroupTable) -> int:
    """Add an entry and return its number; there is room."""
    entries, counts = table.entries, table.counts
    number = counts[ENTRIES]
    counts[ENTRIES] += 1
    entries[number, VALUE], entries[number, TIMES] = value, times
    entries[number, OWNER], entries[number, NEXT] = owner, following
    entries[number, ENTRY_CHECK] = check_of(entries, number, ENTRY_CHECK)
    hashed = hash_entry(owner, value, counts[SEED])
    table.entry_index[find_free(table.entry_index, hashed)] = cell_of(hashed, number)
    return number  # type: ignore[no-any-return]
