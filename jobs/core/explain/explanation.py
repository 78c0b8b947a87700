"""Explanation: what a group remembers and what an epoch has read, readable; for the command line
and for the service alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jobs.core.fold.program import Program
from jobs.core.sql.printer import aggregate_shown
from jobs.core.values.change import Value
from jobs.core.values.json_values import Json
from schemas.table.epoch import EpochRow, Offsets
from schemas.types.sql_types import SqlType

# By topic and partition the offsets [from, to).
Read = dict[str, dict[str, list[int]]]


class Told(NamedTuple):
    """What a table says of a group that it remembers; cells None: it is gone."""

    cells: Sequence[Any] | None = None
    changed: int | None = None  # the epoch that wrote it last
    withheld: bool = False
    hidden: bool = False  # HAVING does not hold
    closed: bool = False
    written_ms: int | None = None
    entries: Sequence[tuple[int, Value, int]] = ()  # argument, value, multiplicity, in order


def explanation(
    program: Program,
    told: Told,
    *,
    write: Callable[[SqlType], Callable[[Value], Json]],
    changes: Iterable[tuple[int, str, dict[str, Json]]],
    rows: Mapping[int, EpochRow],
    late: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """What is told of a group beside its name and its row. `changes` are epoch, op and row, oldest
    first; `late` rows of the part of that name; `write` makes the renderer of a type."""
    return {
        "row_count": None if told.cells is None else told.cells[0],
        "changed": told.changed,
        "withheld": told.withheld,
        "hidden": told.hidden,
        "closed": told.closed,
        "late": [_late(row) for row in late],
        "written_ms": told.written_ms,
        "arguments": [] if told.cells is None else _arguments(program, told, write),
        "epochs": _by_epoch(changes, rows),
    }


def _late(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that came too late for the group, so that its result is without it."""
    return {
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


def _by_epoch(
    changes: Iterable[tuple[int, str, dict[str, Json]]], rows: Mapping[int, EpochRow]
) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for epoch, op, row in changes:
        if epoch not in found:
            offsets = offsets_read(rows, epoch)
            found[epoch] = {"epoch": epoch, "changes": [], "offsets": offsets}
        found[epoch]["changes"].append({"op": op, "row": row})
    return list(found.values())


def _arguments(
    program: Program, told: Told, write: Callable[[SqlType], Callable[[Value], Json]]
) -> list[dict[str, Any]]:
    """Of each argument of the query's aggregates what the group remembers."""
    plan = program.plan
    assert told.cells is not None
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
            found |= accumulator.told(told.cells[at : at + len(accumulator.cells)])
            at += len(accumulator.cells)
        if index in program.multisets:
            shown = write(argument.type)
            found["multiset"] = [
                {"value": shown(value), "multiplicity": count}
                for of, value, count in told.entries
                if of == index
            ]
        described.append(found)
    return described


def offsets_read(rows: Mapping[int, EpochRow], epoch: int) -> Read | None:
    """The offsets that an epoch read; None where the epoch is not known any more, or read nothing
    of its own (a rewind)."""
    row, before = rows.get(epoch), rows.get(epoch - 1)
    if row is None or before is None or row.kind == "rewind":
        return None
    return ranges_read(before.offsets, row.offsets)


def ranges_read(before: Offsets, after: Offsets) -> Read:
    """What lies between two sets of offsets."""
    found: Read = {}
    for topic, partitions in after.items():
        for partition, end in partitions.items():
            start = before.get(topic, {}).get(partition, 0)
            if start != end:
                found.setdefault(topic, {})[partition] = [start, end]
    return found


def negative(document: dict[str, Any]) -> bool:
    """Whether a multiset holds values that were taken away and never given."""
    entries = [entry for each in document["arguments"] for entry in each.get("multiset", ())]
    return any(entry["multiplicity"] < 0 for entry in entries)
