"""Explain a group: its state and the epochs that changed it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from jobs.core.fold.program import Program
from jobs.core.sql.printer import aggregate_label
from jobs.core.values.change import Value
from jobs.core.values.json_values import Json
from schemas.documents.explanation import Change, GroupChange, GroupEpoch, LateRow, OffsetRanges
from schemas.table.epoch import EpochRow, Offsets
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import SqlType


class StoredGroup(NamedTuple):
    """The state of a group in a table; `cells` is None if the group is not live."""

    cells: Sequence[Any] | None = None
    changed: int | None = None  # the epoch that wrote it last
    withheld: bool = False
    hidden: bool = False  # below zero, or HAVING is not true
    closed: bool = False
    written_ms: int | None = None
    entries: Sequence[tuple[int, Value, int]] = ()  # argument, value, multiplicity, in order


def read_late(row: Mapping[str, Any]) -> LateRow:
    """Return a row of the table part of late rows."""
    became = row["late_became"]
    return LateRow(
        row["epoch"],
        row["topic"],
        row["partition"],
        row["offset"],
        row["late_weight"],
        row["late_time_ms"],
        row["watermark_ms"],
        json.loads(row["late_row"]),
        None if became is None else json.loads(became),
    )


def list_epochs(changes: Iterable[Change], rows: Mapping[int, EpochRow]) -> list[GroupEpoch]:
    """Return changes, oldest first, by their epochs."""
    return [
        GroupEpoch(
            epoch,
            [GroupChange(each.op, each.row) for each in mine],
            epoch_offsets(rows, epoch),
            _snapshot_of(rows.get(epoch)),
        )
        for epoch, mine in groupby(changes, key=lambda each: each.epoch)
    ]


def _snapshot_of(row: EpochRow | None) -> str | UnsetType:
    part = None if row is None else row.counts.snapshot_part
    return UNSET if part is None else str(part)


def list_arguments(
    program: Program, stored: StoredGroup, write: Callable[[SqlType], Callable[[Value], Json]]
) -> list[JsonObject]:
    """Return the group's state of each argument of the query's aggregates."""
    plan = program.plan
    if stored.cells is None:
        return []
    documents = []
    at = 1  # the first cell is the row count
    for index, (argument, kept) in enumerate(zip(plan.arguments, program.arguments, strict=True)):
        document: JsonObject = {
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


def epoch_offsets(rows: Mapping[int, EpochRow], epoch: int) -> OffsetRanges | None:
    """Return the offsets that an epoch read; None if it is unknown, or if it is a rewind."""
    row, before = rows.get(epoch), rows.get(epoch - 1)
    if row is None or before is None or row.kind == "rewind":
        return None
    return ranges_between(before.offsets, row.offsets)


def ranges_between(before: Offsets, after: Offsets) -> OffsetRanges:
    """Return the ranges between two sets of offsets."""
    ranges: OffsetRanges = {}
    for topic, partitions in after.items():
        for partition, end in partitions.items():
            start = before.get(topic, {}).get(partition, 0)
            if start != end:
                ranges.setdefault(topic, {})[partition] = [start, end]
    return ranges
