"""Why a group's values are what they are, as one document; and how they came about.

accumulator ──► row count, sums and counts      multisets ──► what is behind MAX and MIN
changelog   ──► how the values came about       epoch rows ──► which source offsets did it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.core.accumulators import Cell, Storage
from jobs.core.bucket import bucket_in
from jobs.core.change import Value
from jobs.core.explanation import numbers, offsets_read
from jobs.core.program import Program
from jobs.core.sql_text import aggregate_shown
from jobs.core.state import rank
from schemas.epoch import EpochRow
from schemas.types import Kind
from service.problems import Problem
from service.row_shape import RowShape, safe_renderer
from service.table import (
    ACCUMULATORS,
    CHANGELOG,
    MULTISETS,
    Key,
    Table,
    group_columns,
    result_columns,
    rows_of,
    values,
)


class GroupHistory:
    """What a version of a table says of one group."""

    def __init__(self, table: Table, shape: RowShape, key: Key, buckets: int) -> None:
        self._table = table
        self._shape = shape
        self._key = key
        self._group = group_columns(shape.plan)
        self._bucket = bucket_in(shape.plan, key, buckets)

    def explained(self) -> dict[str, Any]:
        """Everything; a Problem where there is no such group, and never was."""
        program = Program(self._shape.plan)
        state = self._newest_state()
        changes = self.changes()
        newest = self._table.newest
        if state is None and not changes:
            detail = f"there is no such group at epoch {newest.epoch}, nor is one remembered"
            raise Problem("group-unknown", 404, detail, epoch=newest.epoch)
        shown = state is not None and not state["tombstone"][0].as_py()
        withheld = state is not None and bool(state["withheld"][0].as_py())
        # One that was never shown has a tombstone, and is withheld; one that HAVING hides has a
        # tombstone and is not; of one that is gone nothing is said of that.
        hidden = state is not None and not shown and state["withheld"][0].as_py() is False
        alive = shown or withheld or hidden
        row = None
        if shown:
            assert state is not None
            row = self._shape.row(self._key, rows_of(state, result_columns(self._shape.plan))[0])
        rows = self._table.epochs()
        return {
            "epoch": newest.epoch,
            "group": self._shape.key(self._key),
            "row": row,
            "row_count": _cells(state, program.cells)[0] if alive else None,
            "changed": state["epoch"][0].as_py() if alive and state is not None else None,
            "withheld": withheld,
            "hidden": hidden,
            "written_ms": state["written_ms"][0].as_py() if alive and state is not None else None,
            "arguments": self._arguments(program, state) if alive else [],
            "epochs": _by_epoch(changes, {row.epoch: row for row in rows}),
            "history_complete": bool(rows) and self.complete(rows),
        }

    def complete(self, rows: Sequence[EpochRow]) -> bool:
        """Whether the changelog goes back to the job's first epoch."""
        counts = self._table.changelog_counts(-1)
        return rows[0].kind == "start" and all(
            counts.get(row.epoch, 0) == int(row.counters.get("changelog_rows", 0)) for row in rows
        )

    def changes(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The changelog rows of the group, oldest first; the newest `limit` of them."""
        found: list[dict[str, Any]] = []
        for file in reversed(self._table.of_part(CHANGELOG)):
            rows = self._mine(pq.read_table(
                self._table.root / file.path, partitioning=None, filters=self._filter()
            ))  # fmt: skip
            results = rows_of(rows, result_columns(self._shape.plan))
            found += [
                {"op": op, "epoch": epoch, "seq": seq, "row": self._shape.row(self._key, result)}
                for op, epoch, seq, result in zip(
                    rows["op"].to_pylist(), rows["epoch"].to_pylist(), rows["seq"].to_pylist(),
                    results, strict=True,
                )
            ]  # fmt: skip
            if limit is not None and len(found) > 2 * limit:
                found.sort(key=_place)
                del found[:-limit]
        found.sort(key=_place)
        return found if limit is None else found[-limit:]

    # --- state ----------------------------------------------------------------------------------

    def _newest_state(self) -> pa.Table | None:
        """The newest accumulator of the group, a tombstone too, as a table of one row."""
        newest: pa.Table | None = None
        for table in self._state(ACCUMULATORS):
            for index in range(table.num_rows):
                row = table.slice(index, 1)
                if newest is None or row["epoch"][0].as_py() >= newest["epoch"][0].as_py():
                    newest = row
        return newest

    def _state(self, part: str) -> list[pa.Table]:
        wanted = pc.field("bucket") == self._bucket
        mine = self._filter()
        found = [
            self._mine(pq.read_table(
                self._table.root / file.path, partitioning=None,
                filters=wanted if mine is None else wanted & mine,
            ))
            for file in self._table.of_part(part)
        ]  # fmt: skip
        return [table for table in found if table.num_rows]

    def _filter(self) -> pc.Expression | None:
        """What Parquet's own statistics can pass over rows by; the rows left are looked at."""
        found: pc.Expression | None = None
        for (name, kind), value in zip(self._group, self._key, strict=True):
            if value is None:
                condition = pc.field(name).is_null()
            elif kind.integer or kind.kind in (Kind.STRING, Kind.BOOLEAN):
                condition = pc.field(name) == value
            else:
                continue
            found = condition if found is None else found & condition
        return found

    def _mine(self, table: pa.Table) -> pa.Table:
        wanted = self._shape.key_bytes(self._key)
        keys = rows_of(table, self._group)
        marks = [self._shape.key_bytes(key) == wanted for key in keys]
        return table.filter(pa.array(marks, pa.bool_()))

    def _arguments(self, program: Program, state: pa.Table | None) -> list[dict[str, Any]]:
        """Of each argument of the aggregates what the group remembers."""
        assert state is not None
        plan = self._shape.plan
        cells = _cells(state, program.cells)
        entries = self._entries(program)
        described = []
        at = 1  # the first cell is the row count
        for index, (argument, kept) in enumerate(
            zip(plan.arguments, program.arguments, strict=True)
        ):
            found: dict[str, Any] = {
                "argument": argument.name,
                "used_by": [
                    f"{aggregate_shown(plan, each)} AS {each.name}"
                    for each in plan.aggregates
                    if each.argument == index
                ],
            }
            for accumulator in kept:
                found |= numbers(accumulator, cells[at : at + len(accumulator.cells)])
                at += len(accumulator.cells)
            if index in program.multisets:
                write = safe_renderer(argument.type)
                found["multiset"] = [
                    {"value": write(value), "multiplicity": count}
                    for value, count in entries.get(argument.name, ())
                ]
            described.append(found)
        return described

    def _entries(self, program: Program) -> dict[str, list[tuple[Value, int]]]:
        """Argument -> its values with their multiplicities, in order."""
        arguments = self._shape.plan.arguments
        types = {arguments[index].name: arguments[index].type for index in program.multisets}
        newest: dict[tuple[str, bytes], tuple[int, Value, int]] = {}
        for table in self._state(MULTISETS) if types else ():
            columns = {name: values(table[f"value_{name}"], kind) for name, kind in types.items()}
            rows = zip(
                table["epoch"].to_pylist(), table["argument"].to_pylist(),
                table["multiplicity"].to_pylist(), strict=True,
            )  # fmt: skip
            for index, (epoch, name, count) in enumerate(rows):
                value = columns[name][index]
                entry = (name, repr(value).encode())
                if epoch >= newest.get(entry, (-1, None, 0))[0]:
                    newest[entry] = (epoch, value, count)
        found: dict[str, list[tuple[Value, int]]] = {}
        for (name, _), (_, value, count) in newest.items():
            if count:
                found.setdefault(name, []).append((value, count))
        for each in found.values():
            each.sort(key=lambda entry: rank(entry[0]))
        return found


def _place(change: dict[str, Any]) -> tuple[int, int]:
    return change["epoch"], change["seq"]


def _cells(state: pa.Table | None, cells: Sequence[Cell]) -> list[int]:
    assert state is not None
    return [_cell(state, cell) for cell in cells]


def _cell(state: pa.Table, cell: Cell) -> int:
    column = state[cell.name]
    if cell.storage is Storage.DECIMAL:
        return int(values(column, cell.decimal_type)[0])
    return int(column[0].as_py())


def _by_epoch(changes: Sequence[dict[str, Any]], rows: dict[int, EpochRow]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for change in changes:
        epoch = change["epoch"]
        entry = found.setdefault(
            epoch, {"epoch": epoch, "changes": [], "offsets": offsets_read(rows, epoch)}
        )
        entry["changes"].append({"op": change["op"], "row": change["row"]})
    return list(found.values())
