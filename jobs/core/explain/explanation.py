"""Explain a group: its state and the epochs that changed it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jobs.core.fold.program import Program
from jobs.core.sql.printer import aggregate_label
from jobs.core.values.change import Value
from jobs.core.values.json_values import Json
from schemas.table.epoch import EpochRow, Offsets
from schemas.types.sql_types import SqlType

# The offsets [from, to) by topic and partition.
Read = dict[str, dict[str, list[int]]]


class StoredGroup(NamedTuple):
    """The state of a group in a table; `cells` is None if the group is not live."""

    cells: Sequence[Any] | None = None
    changed: int | None = None  # the epoch that wrote it last
    withheld: bool = False
    hidden: bool = False  # below zero, or HAVING is not true
    closed: bool = False
    written_ms: int | None = None
    entries: Sequence[tuple[int, Value, int]] = ()  # argument, value, multiplicity, in order


def explain_group(
    program: Program,
    stored: StoredGroup,
    *,
    write: Callable[[SqlType], Callable[[Value], Json]],
    changes: Iterable[tuple[int, str, dict[str, Json]]],
    rows: Mapping[int, EpochRow],
    late: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the document that explains a group, without its name and its row.

    `changes` are epoch, op and row, oldest first. `late` are rows of the table part of that name.
    `write` returns the renderer of a type."""
    return {
        "row_count": None if stored.cells is None else stored.cells[0],
        "changed": stored.changed,
        "withheld": stored.withheld,
        "hidden": stored.hidden,
        "closed": stored.closed,
        "late": [_late_document(row) for row in late],
        "written_ms": stored.written_ms,
        "arguments": [] if stored.cells is None else _argument_documents(program, stored, write),
        "epochs": _epoch_documents(changes, rows),
    }


def _late_document(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row that was too late for the group, so that its result lacks the row."""
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


def _epoch_documents(
    changes: Iterable[tuple[int, str, dict[str, Json]]], rows: Mapping[int, EpochRow]
) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for epoch, op, row in changes:
        if epoch not in found:
            offsets = epoch_offsets(rows, epoch)
            found[epoch] = {"epoch": epoch, "changes": [], "offsets": offsets}
        found[epoch]["changes"].append({"op": op, "row": row})
    return list(found.values())


def _argument_documents(
    program: Program, stored: StoredGroup, write: Callable[[SqlType], Callable[[Value], Json]]
) -> list[dict[str, Any]]:
    """Return the group's state of each argument of the query's aggregates."""
    plan = program.plan
    assert stored.cells is not None
    documents = []
    at = 1  # the first cell is the row count
    for index, (argument, kept) in enumerate(zip(plan.arguments, program.arguments, strict=True)):
        document: dict[str, Any] = {
            "argument": argument.name,
            "used_by": [
                f"{aggregate_label(plan, each)} AS {each.name}"
                for each in plan.aggregates
                if each.argument == index
            ],
        }
        for accumulator in kept:
            document |= accumulator.describe(stored.cells[at : at + len(accumulator.cells)])
            at += len(accumulator.cells)
        if index in program.multisets:
            render = write(argument.type)
            document["multiset"] = [
                {"value": render(value), "multiplicity": count}
                for of, value, count in stored.entries
                if of == index
            ]
        documents.append(document)
    return documents


def epoch_offsets(rows: Mapping[int, EpochRow], epoch: int) -> Read | None:
    """Return the offsets that an epoch read; None if it is unknown, or if it is a rewind."""
    row, before = rows.get(epoch), rows.get(epoch - 1)
    if row is None or before is None or row.kind == "rewind":
        return None
    return ranges_between(before.offsets, row.offsets)


def ranges_between(before: Offsets, after: Offsets) -> Read:
    """Return the ranges between two sets of offsets."""
    ranges: Read = {}
    for topic, partitions in after.items():
        for partition, end in partitions.items():
            start = before.get(topic, {}).get(partition, 0)
            if start != end:
                ranges.setdefault(topic, {})[partition] = [start, end]
    return ranges


def has_negative(document: dict[str, Any]) -> bool:
    """Return whether a multiset has a value that was retracted but never added."""
    entries = [entry for each in document["arguments"] for entry in each.get("multiset", ())]
    return any(entry["multiplicity"] < 0 for entry in entries)
