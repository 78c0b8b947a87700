"""Write and read the columns of time and visibility in the parts accumulators and timers.

    accumulators   tombstone, and OF_GROUPS, which are NULL in most groups
    timers         tombstone, timer_clock, timer_namespace, timer_ms

A group without a visible result has a tombstone, so readers of results need no other column:

    deleted                                     tombstone, `withheld` is NULL
    withheld and never emitted                  tombstone, `withheld` is true
    below zero, or does not pass HAVING         tombstone, `withheld` is false

The group of a closed window keeps its result, but it is no state any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from jobs.core.fold.state import Clock, Group, GroupTimer, Key
from jobs.core.fold.visibility import Visibility
from schemas.types.arrow_values import to_list

OF_GROUPS = {
    "withheld": pa.bool_(),
    "window_closed": pa.bool_(),
    "written_ms": pa.int64(),
    "timer_ms": pa.int64(),
}


def time_columns(groups: Sequence[Group | None]) -> list[pa.Array]:
    """Return the column `tombstone` and the columns OF_GROUPS."""
    is_deleted = pa.array([group is None or not group.has_row for group in groups], pa.bool_())
    if all(group is None or _is_plain(group) for group in groups):
        return [is_deleted, *(pa.nulls(len(groups), kind) for kind in OF_GROUPS.values())]
    rows = [
        (None, None, None, None)
        if group is None or _is_plain(group)
        else (group.withheld, group.visibility is Visibility.CLOSED, group.written, group.timer)
        for group in groups
    ]
    columns = zip(*rows, strict=True)
    kinds = OF_GROUPS.values()
    return [
        is_deleted,
        *(pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)),
    ]


def _is_plain(group: Group) -> bool:
    """Return whether a group is visible and does not depend on time."""
    return group.written is None and group.timer is None and not group.visibility


def read_groups(
    accumulators: pa.Table, cells: Iterable[tuple[Any, ...]], results: Iterable[tuple[Any, ...]]
) -> list[Group | None]:
    """Return the groups of some rows; None is a deleted group."""
    is_deleted = to_list(accumulators["tombstone"])
    of_groups = [accumulators[name] for name in OF_GROUPS]
    if all(column.null_count == accumulators.num_rows for column in of_groups):
        return [
            None if dead else Group(cell, result)
            for dead, cell, result in zip(is_deleted, cells, results, strict=True)
        ]
    columns = (to_list(column) for column in of_groups)
    return [_read_group(*row) for row in zip(cells, results, is_deleted, *columns, strict=True)]


def _read_group(
    cells: tuple[Any, ...],
    result: tuple[Any, ...],
    is_deleted: bool,
    withheld: bool | None,
    closed: bool | None,
    written: int | None,
    timer: int | None,
) -> Group | None:
    if closed:
        return Group(cells, result, Visibility.CLOSED)
    if is_deleted and withheld is None:
        return None
    if withheld:
        visibility = Visibility.UNSHOWN if is_deleted else Visibility.WITHHELD
    else:
        visibility = Visibility.HIDDEN if is_deleted else Visibility.SHOWN
    return Group(cells, result, visibility, written, timer)


def timer_columns(timers: Sequence[tuple[GroupTimer, bool]]) -> list[pa.Array]:
    """Return the columns tombstone, timer_clock, timer_namespace and timer_ms."""
    return [
        pa.array([not is_set for _, is_set in timers], pa.bool_()),
        pa.array([str(timer.clock) for timer, _ in timers], pa.string()),
        pa.array([timer.namespace for timer, _ in timers], pa.string()),
        pa.array([timer.time for timer, _ in timers], pa.int64()),
    ]


def read_timers(table: pa.Table, keys: Iterable[Key]) -> list[tuple[GroupTimer, bool]]:
    """Return the timers of some rows, and whether each is set."""
    rows = zip(
        to_list(table["timer_clock"]),
        to_list(table["timer_ms"]),
        to_list(table["timer_namespace"]),
        keys,
        to_list(table["tombstone"]),
        strict=True,
    )
    return [(GroupTimer(Clock(clock), *rest), not is_deleted) for clock, *rest, is_deleted in rows]
