"""Explain: why the values of a group are what they are, as one document.

accumulator ──► row count, sums and counts      multisets ──► what is behind MAX and MIN
changelog   ──► how the values came about       epoch rows ──► which source offsets did it
"""

from __future__ import annotations

import json
from typing import Any

from jobs.core.explain.explanation import Told, explanation
from jobs.core.explain.extreme_changes import reasons
from jobs.core.fold.state import CLOSED, HIDDEN, Key
from jobs.core.values.json_values import renderer
from jobs.edge.table.reading import HistoryGone, TableReader


class UnknownGroup(LookupError):
    """There is no such group, and the changelog does not know that there ever was one."""


def explained(table: TableReader, key: Key) -> dict[str, Any]:
    """Everything the table knows about one group."""
    state = table.group_state(key)
    history = table.history(key)
    if state.group is None and not history:
        named = json.dumps(table.shape.key(key), ensure_ascii=False)
        raise UnknownGroup(f"there is no group {named} at epoch {table.newest.epoch}, nor was one")
    group = state.group
    row = None
    result = table.layout.program.row(group)
    if result is not None:
        row = table.shape.row(key, result)
    told = Told()
    if group is not None:
        told = Told(
            group.cells,
            state.changed,
            withheld=group.withheld,
            hidden=group.held == HIDDEN,
            closed=group.held == CLOSED,
            written_ms=group.written,
            entries=state.entries,
        )
    rows = {row.epoch: row for row in table.epochs}
    document = {
        "job": table.place.name,
        "epoch": table.newest.epoch,
        "moved": table.newest.moved,
        "group": table.shape.key(key),
        "row": row,
        **explanation(
            table.layout.program,
            told,
            write=renderer,
            changes=((c.epoch, c.op, table.shape.row(c.key, c.result)) for c in history),
            rows=rows,
            late=table.late(key),
        ),
        "history_complete": _complete(table),
    }
    remembered = table.remembered(key)
    return document | {"why": reasons(table.layout.program.plan, document, remembered, rows)}


def _complete(table: TableReader) -> bool:
    """Whether the changelog goes back to the job's first epoch."""
    try:
        table.require_history(table.epochs[0].epoch)
    except HistoryGone:
        return False
    return table.epochs[0].kind == "start"
