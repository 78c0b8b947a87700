"""Late rows: those whose windows had closed before they came, and the part of the table for them.

    decode task   signed rows ──► in time: consolidated like all others
                         └──────► late: one by one, each with its place in the source (LATE)
                                        │ projection: WHERE, failures, the group with its window
    fold task     in time, windows that take rows ──► folded
                  late, windows that have closed  ──► the part `late`, a row for each of them

So a row and a window it is in meet in exactly one of the two: of a hopping row some windows may
take it and others not. A window is closed for all of an epoch or for nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.fold.window_closing import Booleans, Closing, Late
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Integers
from jobs.core.values.json_values import renderer
from schemas.types.arrow_values import from_arrow

LATE = "__late"


class LateRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that came too late for a window."""

    topic: str = ""
    partition: int = -1
    offset: int
    weight: int  # 1 or -1
    time_ms: int
    row: str  # JSON
    became: str | None  # of the before image of an update: what it became, which may be in time
    whole: bool  # no window takes it


read_late = msgspec.json.Decoder(LateRow).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the windows of an epoch closed: a watermark, and what a spec allows after it."""

    closing: Closing
    watermark: int

    def late(self, plan: Plan, columns: Sequence[pa.Array]) -> Late:
        """Which rows are late; one without a time has no window to miss."""
        time = columns[plan.used.index(self.closing.window.time)]
        present = ~time.is_null().to_numpy(zero_copy_only=False)
        values = time.view(pa.int64()).fill_null(0).to_numpy()
        late = self.closing.late(values // self.closing.window.unit, self.watermark)
        return Late(late.whole & present, late.partly & present)

    def takes(self, rows: pa.Table) -> Booleans:
        """Which projected rows are in a window that takes them still."""
        ends = rows[f"g{self.closing.place}"].combine_chunks().view(pa.int64()).to_numpy()
        taken: Booleans = ends >= self.closing.open_end(self.watermark)
        return taken


def deadline_of(closing: Closing | None, watermark: int | None) -> Deadline | None:
    """None while no window has closed."""
    return None if closing is None or watermark is None else Deadline(closing, watermark)


class Messages:
    """Which messages the signed rows of a range came from."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._ends: list[int] = [0]

    def add(self, offset: int, rows: int) -> None:
        self._offsets.append(offset)
        self._ends.append(self._ends[-1] + rows)

    def places(self, rows: Integers) -> Iterator[tuple[int, int, int]]:
        """Of some rows: the row, its message's offset, and where that message's rows end."""
        found = np.searchsorted(self._ends, rows, "right") - 1
        for row, message in zip(rows.tolist(), found.tolist(), strict=True):
            yield row, self._offsets[message], self._ends[message + 1]


def late_rows(
    plan: Plan,
    closing: Closing,
    messages: Messages,
    columns: Sequence[pa.Array],
    signs: Integers,
    late: Late,
) -> list[LateRow]:
    """What is to be known of the rows of a range that are late, in their order."""
    rows = np.flatnonzero(late.partly)
    time, unit = plan.used.index(closing.window.time), closing.window.unit
    read = _Rows(plan, columns, rows)
    return [
        LateRow(
            offset=offset,
            weight=int(signs[row]),
            time_ms=read.values(row)[time] // unit,
            row=read.shown(row),
            became=read.shown(row + 1) if is_update(signs, row, end) else None,
            whole=bool(late.whole[row]),
        )
        for row, offset, end in messages.places(rows)
    ]


def is_update(signs: Integers, row: int, end: int) -> bool:
    """Whether a row is the before image of an update, whose after image follows it."""
    return bool(signs[row] < 0 and row + 1 < end and signs[row + 1] > 0)


class _Rows:
    """Some rows of a range, and those right behind them, by their place."""

    def __init__(self, plan: Plan, columns: Sequence[pa.Array], rows: Integers) -> None:
        self._renderers = [(column.name, renderer(column.type)) for column in plan.used]
        wanted = np.union1d(rows, rows + 1)
        wanted = wanted[wanted < len(columns[0])]
        picked = [
            from_arrow(array.take(pa.array(wanted)), column.type)
            for array, column in zip(columns, plan.used, strict=True)
        ]
        self._rows = dict(zip(wanted.tolist(), zip(*picked, strict=True), strict=True))

    def values(self, row: int) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self._rows[row]
        return found

    def shown(self, row: int) -> str:
        named = zip(self._renderers, self._rows[row], strict=True)
        return _encode({name: render(value) for (name, render), value in named}).decode()
