"""Explain: why the values of a group are what they are, as one document.

accumulator ──► row count, sums and counts      multisets ──► what is behind MAX and MIN
changelog   ──► how the values came about       epoch rows ──► which source offsets did it
"""

from __future__ import annotations

import json
from typing import Any

from jobs.core.explanation import numbers, offsets_read
from jobs.core.sql_text import aggregate_shown
from jobs.core.state import CLOSED, HIDDEN, Key
from jobs.core.values import renderer
from jobs.edge.table_reading import GroupState, HistoryGone, TableReader


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
    told = table.layout.program.row(group)
    if told is not None:
        row = table.shape.row(key, told)
    by_epoch = {row.epoch: row for row in table.epochs}
    epochs: dict[int, dict[str, Any]] = {}
    for change in history:
        if change.epoch not in epochs:
            epochs[change.epoch] = {
                "epoch": change.epoch,
                "changes": [],
                "offsets": offsets_read(by_epoch, change.epoch),
            }
        shown = table.shape.row(change.key, change.result)
        epochs[change.epoch]["changes"].append({"op": change.op, "row": shown})
    return {
        "job": table.place.name,
        "epoch": table.newest.epoch,
        "group": table.shape.key(key),
        "row": row,
        "row_count": None if state.group is None else state.group.cells[0],
        "changed": state.changed,
        "withheld": group is not None and group.withheld,
        "hidden": group is not None and group.held == HIDDEN,
        "closed": group is not None and group.held == CLOSED,
        "late": _late(table, key),
        "written_ms": None if group is None else group.written,
        "arguments": _arguments(table, state),
        "epochs": list(epochs.values()),
        "history_complete": _complete(table),
    }


def _complete(table: TableReader) -> bool:
    """Whether the changelog goes back to the job's first epoch."""
    try:
        table.require_history(table.epochs[0].epoch)
    except HistoryGone:
        return False
    return table.epochs[0].kind == "start"


def _late(table: TableReader, key: Key) -> list[dict[str, Any]]:
    """The rows that came too late for the group, so that its result is without them."""
    return [
        {
            "epoch": row["epoch"],
            "topic": row["topic"],
            "partition": row["partition"],
            "offset": row["offset"],
            "weight": row["late_weight"],
            "time_ms": row["late_time_ms"],
            "watermark_ms": row["watermark_ms"],
            "row": json.loads(row["late_row"]),
            "became": None if row["late_became"] is None else json.loads(row["late_became"]),
        }
        for row in table.late(key)
    ]


def _arguments(table: TableReader, state: GroupState) -> list[dict[str, Any]]:
    """Of each argument of the query's aggregates what the group remembers."""
    if state.group is None:
        return []
    program, plan = table.layout.program, table.plan
    described = []
    at = 1  # the first cell is the row count
    for index, (argument, kept) in enumerate(zip(plan.arguments, program.arguments, strict=True)):
        found: dict[str, Any] = {
            "argument": argument.name,
            "used_by": [
                f"{aggregate_shown(plan, each)} AS {each.name}"
                for each in plan.aggregates
                if each.argument == index
            ],
        }
        for accumulator in kept:
            cells = state.group.cells[at : at + len(accumulator.cells)]
            at += len(accumulator.cells)
            found |= numbers(accumulator, cells)
        if index in program.multisets:
            write = renderer(argument.type)
            found["multiset"] = [
                {"value": write(value), "multiplicity": count}
                for of, value, count in state.entries
                if of == index
            ]
        described.append(found)
    return described


def negative(document: dict[str, Any]) -> bool:
    """Whether a multiset holds values that were taken away and never given."""
    entries = [entry for each in document["arguments"] for entry in each.get("multiset", ())]
    return any(entry["multiplicity"] < 0 for entry in entries)
