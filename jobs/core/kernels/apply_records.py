"""Write the values and multiplicities of committed epochs into a table of groups.

    records  keys ─► find or add the group ─► its values
             entries (key, multiset, value, times) ─► find or add the entry ─► its multiplicity

The records are absolute, so applying them twice is the same as once.
"""

from __future__ import annotations

from typing import NamedTuple

from jobs.core.kernels.codes import MULTISET_BITS, ROWS
from jobs.core.kernels.compiled import Array, kernel
from jobs.core.kernels.group_table import (
    CHECK,
    DAMAGED,
    EMPTY,
    ENTRIES,
    ENTRY_CHECK,
    GROUPS,
    HASH,
    KEY_AT,
    KEY_SIZE,
    MISSING,
    NEXT,
    SEED,
    TIMES,
    VALUE,
    GroupTable,
    add_entry,
    add_group,
    check_of,
    find_entry,
    find_group,
    hash_key,
    is_sound_entry,
)

# A new multiplicity: the number of its key among the records, and the same as in `Merged`.
KEY_NUMBER, MULTISET, ENTRY_VALUE, ENTRY_TIMES = range(4)


class RecordArrays(NamedTuple):
    """Absolute values of groups and multiplicities of entries."""

    keys: Array  # bytes
    ends: Array  # one more than keys
    values: Array  # [group, word], from ROWS on; the first keys have values
    entries: Array  # [entry, KEY_NUMBER to ENTRY_TIMES]


@kernel
def apply_records(records: RecordArrays, numbers: Array, multisets: int, table: GroupTable) -> int:
    """Apply records; the table has room. `numbers` has room for a number a key."""
    groups, seed = table.groups, table.counts[SEED]
    first = groups.shape[1] - multisets
    for k in range(len(numbers)):
        at, size = records.ends[k], records.ends[k + 1] - records.ends[k]
        hashed = hash_key(records.keys, at, size, seed)
        number = find_group(hashed, records.keys, at, size, table)
        if number == DAMAGED:
            return DAMAGED
        if number == MISSING:
            number = add_group(hashed, records.keys, at, size, multisets, table)
        numbers[k] = number
        if k < len(records.values):
            for word in range(ROWS, first):
                groups[number, word] = records.values[k, word - ROWS]
            groups[number, CHECK] = check_of(groups, number, CHECK)
    for entry in range(len(records.entries)):
        number = numbers[records.entries[entry, KEY_NUMBER]]
        multiset, value = records.entries[entry, MULTISET], records.entries[entry, ENTRY_VALUE]
        times = records.entries[entry, ENTRY_TIMES]
        owner = number << MULTISET_BITS | multiset
        found = find_entry(owner, value, table)
        if found == DAMAGED:
            return DAMAGED
        if found >= 0:
            table.entries[found, TIMES] = times
            table.entries[found, ENTRY_CHECK] = check_of(table.entries, found, ENTRY_CHECK)
        elif times != 0:
            following = groups[number, first + multiset]
            groups[number, first + multiset] = add_entry(owner, value, times, following, table)
            groups[number, CHECK] = check_of(groups, number, CHECK)
    return len(numbers)


@kernel
def copy_living(multisets: int, table: GroupTable, to: GroupTable) -> int:
    """Copy groups with values or entries, and entries with a multiplicity, to an empty table."""
    groups, entries, seed = table.groups, table.entries, table.counts[SEED]
    first = groups.shape[1] - multisets
    for number in range(table.counts[GROUPS]):
        if groups[number, CHECK] != check_of(groups, number, CHECK):
            return DAMAGED
        lives, steps = False, 0
        for word in range(ROWS, first):
            lives = lives or groups[number, word] != 0
        for multiset in range(multisets):
            entry = groups[number, first + multiset]
            while entry != EMPTY:
                steps += 1
                sound = is_sound_entry(entry, number << MULTISET_BITS | multiset, table)
                if not sound or steps > table.counts[ENTRIES]:
                    return DAMAGED
                if entries[entry, TIMES] != 0:
                    lives = True
                entry = entries[entry, NEXT]
        if not lives:
            continue
        at, size = groups[number, KEY_AT], groups[number, KEY_SIZE]
        if hash_key(table.heap, at, size, seed) != groups[number, HASH]:
            return DAMAGED
        hashed = hash_key(table.heap, at, size, to.counts[SEED])
        copy = add_group(hashed, table.heap, at, size, multisets, to)
        for word in range(ROWS, first):
            to.groups[copy, word] = groups[number, word]
        for multiset in range(multisets):
            entry, following = groups[number, first + multiset], EMPTY
            while entry != EMPTY:
                if entries[entry, TIMES] != 0:
                    value, times = entries[entry, VALUE], entries[entry, TIMES]
                    owner = copy << MULTISET_BITS | multiset
                    following = add_entry(owner, value, times, following, to)
                entry = entries[entry, NEXT]
            to.groups[copy, first + multiset] = following
        to.groups[copy, CHECK] = check_of(to.groups, copy, CHECK)
    return to.counts[GROUPS]  # type: ignore[no-any-return]
