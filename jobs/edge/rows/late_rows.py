"""Find late rows, whose windows closed before they came, for the table's part `late`.

    decode task   signed rows ──► in time: consolidated like all others
                         └──────► late: one by one, each with its position in the source (LATE)
                                        │ projection: WHERE, failures, the group with its window
    fold task     in time, windows that are open   ──► fold
                  late, windows that have closed   ──► one row per window in the part `late`

So each pair of a row and its window is in exactly one of the two. A row of a hopping window may be
in time for one window and late for another. Unless rows are checked in order, one watermark holds
for a whole epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.fold.window_closing import Closing, Late
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Booleans, Integers
from jobs.core.time.rows_in_order import BEFORE_ALL
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
    became: str | None  # for a before image: the after image, which may be in time
    whole: bool  # late for all of its windows
    watermark: int | None = None  # before the row; None: the watermark before the epoch


read_late = msgspec.json.Decoder(LateRow).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Deadline:
    """The watermark before an epoch, and the spec's rules by which windows close after it."""

    closing: Closing
    watermark: int
    in_order: bool = False  # rows may have a watermark of their own

    def late(self, plan: Plan, columns: Sequence[pa.Array], watermarks: Sequence[int] = ()) -> Late:
        """Return which rows are late; a row without a time is not, because it has no window.

        `watermarks` has the watermark before each row, if the topic's rows are checked in order."""
        time = columns[plan.used.index(self.closing.window.time)]
        present = ~time.is_null().to_numpy(zero_copy_only=False)
        values = time.view(pa.int64()).fill_null(0).to_numpy()
        times = values // self.closing.window.unit
        before = np.array(watermarks, np.int64) if watermarks else self.watermark
        late = self.closing.late(times, before)
        return Late(late.whole & present, late.partly & present)

    def takes(self, rows: pa.Table) -> Booleans:
        """Return which projected rows are in a window that is still open."""
        ends = rows[f"g{self.closing.index}"].combine_chunks().view(pa.int64()).to_numpy()
        taken: Booleans = ends >= self.closing.open_end(self.watermark)
        if self.in_order:
            late = np.flatnonzero(rows[LATE].is_valid().to_numpy())
            payloads = rows[LATE].take(pa.array(late)).to_pylist()
            for row, payload in zip(late.tolist(), payloads, strict=True):
                before = read_late(payload).watermark
                before = self.watermark if before is None else before
                taken[row] = ends[row] >= self.closing.open_end(before)
        return taken

    def keeps(self, rows: pa.Table) -> pa.Array:
        """Return which late rows a fold takes for the windows that are still open.

        In order a row that is late for one window is sent alone. Otherwise it is sent twice: alone
        for the windows that have closed, and consolidated for the others.
        """
        return pa.array(np.full(rows.num_rows, self.in_order))


def deadline_of(
    closing: Closing | None, watermark: int | None, *, in_order: bool = False
) -> Deadline | None:
    """Return the deadline of an epoch; None if no window has closed or can close in it."""
    if closing is None or (watermark is None and not in_order):
        return None
    return Deadline(closing, BEFORE_ALL if watermark is None else watermark, in_order)


def late_rows(
    plan: Plan,
    closing: Closing,
    offsets: Integers,  # of the message of each row
    columns: Sequence[pa.Array],
    signs: Integers,
    late: Late,
    watermarks: Sequence[int] = (),
) -> list[LateRow]:
    """Return the late rows of a range, in order."""
    rows = np.flatnonzero(late.partly)
    time, unit = plan.used.index(closing.window.time), closing.window.unit
    reader = _RowReader(plan, columns, rows)
    ends = np.searchsorted(offsets, offsets[rows], "right")  # of the rows of each row's message
    return [
        LateRow(
            offset=int(offsets[row]),
            weight=int(signs[row]),
            time_ms=reader.read(row)[time] // unit,
            row=reader.format(row),
            became=reader.format(row + 1) if is_update(signs, row, end) else None,
            whole=bool(late.whole[row]),
            watermark=watermarks[row] if watermarks else None,
        )
        for row, end in zip(rows.tolist(), ends.tolist(), strict=True)
    ]


def is_update(signs: Integers, row: int, end: int) -> bool:
    """Return whether a row is the before image of an update; its after image is the next row."""
    return bool(signs[row] < 0 and row + 1 < end and signs[row + 1] > 0)


class _RowReader:
    """Reads some rows of a range, and the row after each of them."""

    def __init__(self, plan: Plan, columns: Sequence[pa.Array], rows: Integers) -> None:
        self._renderers = [(column.name, renderer(column.type)) for column in plan.used]
        wanted = np.union1d(rows, rows + 1)
        wanted = wanted[wanted < len(columns[0])]
        picked = [
            from_arrow(array.take(pa.array(wanted)), column.type)
            for array, column in zip(columns, plan.used, strict=True)
        ]
        self._rows = dict(zip(wanted.tolist(), zip(*picked, strict=True), strict=True))

    def read(self, row: int) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self._rows[row]
        return found

    def format(self, row: int) -> str:
        """Return a row as JSON."""
        named = zip(self._renderers, self._rows[row], strict=True)
        return _encode({name: render(value) for (name, render), value in named}).decode()
