"""Why a group's values are what they are, as one document; and how they came about.

accumulator ──► row count, sums and counts      multisets ──► what is behind MAX and MIN
changelog   ──► how the values came about       epoch rows ──► which source offsets did it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.aggregates import Cell, Storage
from jobs.core.explain.explanation import Told, explanation
from jobs.core.explain.extreme_changes import Entry, Remembered, reasons, settled_until
from jobs.core.fold.program import Program
from jobs.core.fold.state import rank
from jobs.core.plan.bucket import bucket_in
from jobs.core.values.change import Row, Value
from schemas.table.epoch import EpochRow
from schemas.table.parquet_file import rows_in
from schemas.types.arrow_values import from_arrow, listed, tuples
from schemas.types.sql_types import Kind
from service.problems import Problem
from service.table.job_table import (
    ACCUMULATORS,
    CHANGELOG,
    LATE,
    MULTISETS,
    Key,
    Table,
    group_columns,
    result_columns,
)
from service.table.row_shape import RowShape, safe_renderer


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
        told = Told()
        row = None
        if state is not None:
            shown = not state["tombstone"][0].as_py()
            withheld = bool(state["withheld"][0].as_py())
            # One that was never shown has a tombstone, and is withheld; one that HAVING hides has
            # a tombstone and is not; of one that is gone nothing is said of that.
            hidden = not shown and state["withheld"][0].as_py() is False
            if shown:
                row = self._shape.row(self._key, self._result(state))
            if shown or withheld or hidden:
                told = Told(
                    _cells(state, program.cells),
                    state["epoch"][0].as_py(),
                    withheld=withheld,
                    hidden=hidden,
                    closed=bool(state["window_closed"][0].as_py()),
                    written_ms=state["written_ms"][0].as_py(),
                    entries=self._entries(),
                )
        rows = self._table.epochs()
        by_number = {each.epoch: each for each in rows}
        document = {
            "epoch": newest.epoch,
            "moved": newest.moved,
            "group": self._shape.key(self._key),
            "row": row,
            **explanation(
                program,
                told,
                write=safe_renderer,
                changes=((each["epoch"], each["op"], each["row"]) for each in changes),
                rows=by_number,
                late=(row for table in self._rows(LATE) for row in table.to_pylist()),
            ),
            "history_complete": bool(rows) and self.complete(rows),
        }
        remembered = self.remembered(by_number)
        return document | {"why": reasons(self._shape.plan, document, remembered, by_number)}

    def _result(self, state: pa.Table) -> Row:
        return tuples(state, result_columns(self._shape.plan))[0]

    def complete(self, rows: Sequence[EpochRow]) -> bool:
        """Whether the changelog goes back to the job's first epoch."""
        counts = self._table.changelog_counts(-1)
        return rows[0].kind == "start" and all(
            counts.get(row.epoch, 0) == int(row.counters.get("changelog_rows", 0)) for row in rows
        )

    def changes(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The changelog rows of the group, oldest first; the newest `limit` of them."""
        found: list[dict[str, Any]] = []
        mine = self._filter()
        for file in reversed(self._table.of_part(CHANGELOG)):
            rows = self._mine(rows_in(self._table.root / file.path, filters=mine))
            results = tuples(rows, result_columns(self._shape.plan))
            found += [
                {"op": op, "epoch": epoch, "seq": seq, "row": self._shape.row(self._key, result)}
                for op, epoch, seq, result in zip(
                    listed(rows["op"]), listed(rows["epoch"]), listed(rows["seq"]),
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
        return self._rows(part, pc.field("bucket") == self._bucket)

    def _rows(self, part: str, wanted: pc.Expression | None = None) -> list[pa.Table]:
        """The rows of the group in the files of a part, oldest epochs first."""
        mine = self._filter()
        if wanted is not None:
            mine = wanted if mine is None else wanted & mine
        found = [
            self._mine(rows_in(self._table.root / file.path, filters=mine))
            for file in self._table.of_part(part)
        ]
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
        keys = tuples(table, self._group)
        marks = [self._shape.key_bytes(key) == wanted for key in keys]
        return table.filter(pa.array(marks, pa.bool_()))

    def remembered(self, rows: Mapping[int, EpochRow]) -> Remembered:
        """The group's multisets over the epochs, as far as they are kept apart; `rows` are all
        epoch rows."""
        live = {file.path for file in self._table.of_part(MULTISETS)}
        return Remembered(self._entry_rows, settled_until(live, rows.values()))

    @cached_property
    def _entry_rows(self) -> list[Entry]:
        """Every row of the group's multisets that is still there."""
        program = Program(self._shape.plan)
        arguments = self._shape.plan.arguments
        types = {arguments[index].name: arguments[index].type for index in program.multisets}
        indexes = {arguments[index].name: index for index in program.multisets}
        found: list[Entry] = []
        for table in self._state(MULTISETS) if types else ():
            columns = {
                name: from_arrow(table[f"value_{name}"], kind) for name, kind in types.items()
            }
            rows = zip(
                listed(table["epoch"]), listed(table["argument"]),
                listed(table["multiplicity"]), strict=True,
            )  # fmt: skip
            found += [
                Entry(indexes[name], columns[name][place], epoch, count)
                for place, (epoch, name, count) in enumerate(rows)
            ]
        return found

    def _entries(self) -> list[tuple[int, Value, int]]:
        """Argument, value and multiplicity, in order."""
        newest: dict[tuple[int, bytes], Entry] = {}
        for entry in self._entry_rows:
            name = (entry.argument, repr(entry.value).encode())
            if name not in newest or entry.epoch >= newest[name].epoch:
                newest[name] = entry
        found = [(e.argument, e.value, e.multiplicity) for e in newest.values() if e.multiplicity]
        return sorted(found, key=lambda entry: (entry[0], rank(entry[1])))


def _place(change: dict[str, Any]) -> tuple[int, int]:
    return change["epoch"], change["seq"]


def _cells(state: pa.Table | None, cells: Sequence[Cell]) -> list[int]:
    assert state is not None
    return [_cell(state, cell) for cell in cells]


def _cell(state: pa.Table, cell: Cell) -> int:
    column = state[cell.name]
    if cell.storage is Storage.DECIMAL:
        return int(from_arrow(column, cell.decimal_type)[0])
    return int(column[0].as_py())
