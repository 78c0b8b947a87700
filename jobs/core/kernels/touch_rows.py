"""Read what a fold of some rows will read of a table, for a table that is not in memory.

    slices of rows ─► one thread each: keys ─► groups ─► first entries ─┐
                                       values ─► entries ───────────────┴► pages are in the cache

A fold waits for one page at a time. Threads that look the same things up wait for as many pages at
once as there are threads, and a disk reads these sooner.
"""

from __future__ import annotations

from jobs.core.kernels.codes import MULTISET_BITS
from jobs.core.kernels.compiled import Array, kernel
from jobs.core.kernels.fold_rows import MULTISET_ARGUMENT, Query, Rows
from jobs.core.kernels.group_table import (
    NEXT,
    SEED,
    GroupTable,
    find_entry,
    find_group,
    hash_key,
    is_sound_entry,
)

# A fold that looks for another extreme reads all entries; more than these would be read in vain.
_ENTRIES_MAX = 16


@kernel
def touch_rows(order: Array, rows: Rows, query: Query, table: GroupTable) -> int:
    """Look up the groups and entries of the rows in `order`; return how many were found.

    Damage is not reported: the fold finds it as well.
    """
    multisets, seed = len(query.multisets), table.counts[SEED]
    first = table.groups.shape[1] - multisets
    found = 0
    for k in range(len(order)):
        row = order[k]
        at, size = rows.ends[row], rows.ends[row + 1] - rows.ends[row]
        number = find_group(hash_key(rows.keys, at, size, seed), rows.keys, at, size, table)
        if number < 0:
            continue
        found += 1
        for multiset in range(multisets):
            owner = number << MULTISET_BITS | multiset
            argument = query.multisets[multiset, MULTISET_ARGUMENT]
            if rows.valid[argument, row]:
                found += find_entry(owner, rows.values[argument, row], table) >= 0
            entry, steps = table.groups[number, first + multiset], 0
            while steps < _ENTRIES_MAX and is_sound_entry(entry, owner, table):
                steps += 1
                entry = table.entries[entry, NEXT]
            found += steps
    return found
