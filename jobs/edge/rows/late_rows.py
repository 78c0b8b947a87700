"""Find late rows, whose windows closed before they came, for the table's part `late`.

    decode task   signed rows ──► in time: consolidated like all others
                         └──────► late: one by one, each with its position in the source (LATE)
                                        │ projection: WHERE, failures, the group with its window
    fold task     in time, windows that are open   ──► fold
                  late, windows that have closed   ──► one row per window in the part `late`

So each pair of a row and its window is in exactly one of the two. A row of a hopping window may be
in time for one window and late for another. A window does not close in the middle of an epoch.
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
    became: str | None  # for a before image: the after image, which may be in time
    whole: bool  # late for all of its windows


read_late = msgspec.json.Decoder(LateRow).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Deadline:
    """The watermark before an epoch, and the spec's rules by which windows close after it."""

    closing: Closing
    watermark: int

    def late(self, plan: Plan, columns: Sequence[pa.Array]) -> Late:
        """Return which rows are late; a row without a time is not, because it has no window."""
        time = columns[plan.used.index(self.closing.window.time)]
        present = ~time.is_null().to_numpy(zero_copy_only=False)
        values = time.view(pa.int64()).fill_null(0).to_numpy()
        late = self.closing.late(values // self.closing.window.unit, self.watermark)
        return Late(late.whole & present, late.partly & present)

    def takes(self, rows: pa.Table) -> Booleans:
        """Return which projected rows are in a window that is still open."""
        ends = rows[f"g{self.closing.place}"].combine_chunks().view(pa.int64()).to_numpy()
        taken: Booleans = ends >= self.closing.open_end(self.watermark)
        return taken


def deadline_of(closing: Closing | None, watermark: int | None) -> Deadline | None:
    """Return the deadline of an epoch; None if no window has closed."""
    return None if closing is None or watermark is None else Deadline(closing, watermark)


class Messages:
    """The messages from which the signed rows of a range were decoded."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._ends: list[int] = [0]

    def add(self, offset: int, rows: int) -> None:
        """Add the next message, which has so many rows."""
        self._offsets.append(offset)
        self._ends.append(self._ends[-1] + rows)

    def places(self, rows: Integers) -> Iterator[tuple[int, int, int]]:
        """Yield of each row: the row, its message's offset, and the end of the message's rows."""
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
    """Return the late rows of a range, in order."""
    rows = np.flatnonzero(late.partly)
    time, unit = plan.used.index(closing.window.time), closing.window.unit
    reader = _RowReader(plan, columns, rows)
    return [
        LateRow(
            offset=offset,
            weight=int(signs[row]),
            time_ms=reader.read(row)[time] // unit,
            row=reader.format(row),
            became=reader.format(row + 1) if is_update(signs, row, end) else None,
            whole=bool(late.whole[row]),
        )
        for row, offset, end in messages.places(rows)
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
        """Return the values of a row."""
        found: tuple[Any, ...] = self._rows[row]
        return found

    def format(self, row: int) -> str:
        """Return a row as JSON."""
        named = zip(self._renderers, self._rows[row], strict=True)
        return _encode({name: render(value) for (name, render), value in named}).decode()
