"""Time columns: what accumulators and timers say of time in the table, written and read back.

    accumulators   tombstone, and OF_GROUPS, which are NULL of most groups
    timers         tombstone, timer_clock, timer_namespace, timer_ms

A group whose result is withheld and was never emitted has a tombstone as well: a reader of results
has nothing to see of it, and need not know why. So has one that does not pass HAVING: it has a
tombstone and is not withheld, while of one that is gone `withheld` is NULL. One of a closed window
has its result for ever, and is no state any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from jobs.core.fold.state import CLOSED, HIDDEN, SHOWN, UNSHOWN, WITHHELD, Group, GroupTimer, Key
from jobs.core.fold.timers import Clock
from schemas.types.arrow_values import listed

OF_GROUPS = {
    "withheld": pa.bool_(),
    "window_closed": pa.bool_(),
    "written_ms": pa.int64(),
    "timer_ms": pa.int64(),
}


def time_columns(groups: Sequence[Group | None]) -> list[pa.Array]:
    """tombstone, and OF_GROUPS."""
    gone = pa.array(
        [group is None or group.held in (UNSHOWN, HIDDEN) for group in groups], pa.bool_()
    )
    if all(group is None or (group.written is None and not group.held) for group in groups):
        return [gone, *(pa.nulls(len(groups), kind) for kind in OF_GROUPS.values())]
    told = [
        (None, None, None, None)
        if group is None
        else (group.withheld, group.held == CLOSED, group.written, group.timer)
        for group in groups
    ]
    columns = zip(*told, strict=True)
    kinds = OF_GROUPS.values()
    return [gone, *(pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True))]


def groups_of(
    accumulators: pa.Table, cells: Iterable[tuple[Any, ...]], results: Iterable[tuple[Any, ...]]
) -> list[Group | None]:
    """The groups of some rows; None is a group that is gone."""
    gone = listed(accumulators["tombstone"])
    told = [accumulators[name] for name in OF_GROUPS]
    if all(column.null_count == accumulators.num_rows for column in told):
        return [
            None if dead else Group(cell, result)
            for dead, cell, result in zip(gone, cells, results, strict=True)
        ]
    columns = (listed(column) for column in told)
    return [_group(*row) for row in zip(cells, results, gone, *columns, strict=True)]


def _group(
    cells: tuple[Any, ...],
    result: tuple[Any, ...],
    gone: bool,
    withheld: bool | None,
    closed: bool | None,
    written: int | None,
    timer: int | None,
) -> Group | None:
    if closed:
        return Group(cells, result, CLOSED)
    if gone and withheld is False:
        return Group(cells, result, HIDDEN, written, timer)
    if not withheld:
        return None if gone else Group(cells, result, SHOWN, written, timer)
    return Group(cells, result, UNSHOWN if gone else WITHHELD, written, timer)


def timer_columns(timers: Sequence[tuple[GroupTimer, bool]]) -> list[pa.Array]:
    """tombstone, timer_clock, timer_namespace, timer_ms."""
    return [
        pa.array([not is_set for _, is_set in timers], pa.bool_()),
        pa.array([str(timer.clock) for timer, _ in timers], pa.string()),
        pa.array([timer.namespace for timer, _ in timers], pa.string()),
        pa.array([timer.time for timer, _ in timers], pa.int64()),
    ]


def timers_of(table: pa.Table, keys: Iterable[Key]) -> list[tuple[GroupTimer, bool]]:
    """The timers of some rows, and whether they are set."""
    rows = zip(
        listed(table["timer_clock"]),
        listed(table["timer_ms"]),
        listed(table["timer_namespace"]),
        keys,
        listed(table["tombstone"]),
        strict=True,
    )
    return [(GroupTimer(Clock(clock), *rest), not gone) for clock, *rest, gone in rows]
