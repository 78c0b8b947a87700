"""Find the keys of an epoch of which only the last change counts, in arrays.

    changes ──► one summary a key ──derive_plain──► which keys are plain, and what follows
                                     the others ──► `derive_changes`, by their history

A key is *plain* if its state is a row and nothing else, or nothing at all, and its changes are own
ones of the same partition that close no life. Then the last change is the new state, as for
`derive_changes`; nearly all keys are plain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jobs.core.rows.consolidate import Booleans, Integers
from jobs.core.rows.key_history import Kind
from jobs.core.rows.truncations import Truncations


class ChangeArrays(NamedTuple):
    """The changes of some keys; see `KeyChange`."""

    keys: Integers  # numbers from 0 without gaps
    positions: Integers
    summaries: Integers
    timed: Booleans  # whether they have a time
    times: Integers
    partitions: Integers


class KeySummaries(NamedTuple):
    """What the changes of each key come to, by the key's number."""

    last: Integers  # the index of the last change
    rows: Integers  # signed rows
    retracted_first: Booleans
    arrives: Booleans  # the first change says that there was no row
    removed: Booleans  # the last change is a deletion
    plain: Booleans  # as far as the changes say

    @classmethod
    def of(cls, changes: ChangeArrays, truncations: Truncations) -> KeySummaries:
        """Summarize the changes of each key; none may be of a row that a TRUNCATE removes."""
        order = np.lexsort((changes.positions, changes.keys))
        _, _, summaries, timed, times, partitions = (column[order] for column in changes)
        starts = np.flatnonzero(np.diff(changes.keys[order], prepend=-1))
        kinds = summaries & 3
        is_later = np.ones(len(order), np.bool_)
        is_later[starts] = False
        odd = (kinds == Kind.LEAVE) | ((kinds == Kind.ARRIVE) & is_later)
        if truncations:
            odd |= ~timed | (times <= truncations.until) | bool(truncations.new)
        last = np.append(starts, len(order))[1:] - 1
        is_same = [_are_same(column, starts) for column in (partitions, timed)]
        return cls(
            order[last],
            np.add.reduceat(summaries >> 3, starts),
            (summaries[starts] & 4) > 0,
            kinds[starts] == Kind.ARRIVE,
            kinds[last] == Kind.DELETE,
            ~np.logical_or.reduceat(odd, starts) & np.logical_and(*is_same),
        )


class PlainKeys(NamedTuple):
    """What follows from the changes of plain keys, by the key's number."""

    plain: Booleans
    changed: Booleans  # another row, or a first or no row
    old: Booleans  # the row before is retracted
    new: Booleans  # the row of the last change is added
    duplicates: int  # signed rows that changed nothing
    unknown_retractions: int


def derive_plain(
    keys: KeySummaries,
    is_row: Booleans,
    is_unknown: Booleans,
    same_partition: Booleans,
    same_image: Booleans,
) -> PlainKeys:
    """Derive what follows for plain keys; the arrays compare each key's state and last change.

    A key may have a state that is neither a row alone nor unknown; it is not plain.
    """
    plain = keys.plain & (is_unknown | (is_row & same_partition & ~keys.arrives))
    changed = plain & ~np.where(is_row, same_image & ~keys.removed, keys.removed)
    unknown = plain & is_unknown & keys.retracted_first
    return PlainKeys(
        plain,
        changed,
        changed & is_row,
        changed & ~keys.removed,
        int(keys.rows[plain & ~changed].sum()),
        int(unknown.sum()),
    )


def _are_same(column: Integers | Booleans, starts: Integers) -> Booleans:
    """Return for each key whether all of its changes have one value."""
    found: Booleans = np.minimum.reduceat(column, starts) == np.maximum.reduceat(column, starts)
    return found
