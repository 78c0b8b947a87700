"""Emit the rows of a decoded range for each view of a job.

    signed rows with the columns of all views ─┬─► columns of view 1 ─► consolidated ─► parcels
                                               └─► columns of view 2 ─► consolidated ─► parcels

A view gets the rows that it would get in a job of its own. A message whose rows fail in a view is
in the quarantine of this view, and the other views take it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import RUNNING_BITS
from jobs.core.values.change import RejectCode, Rejected
from jobs.edge.rows.late_rows import Deadline
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import Parcelling
from jobs.edge.tasks.range_reading import RangeReader
from jobs.edge.tasks.reject_writer import RejectWriter, ViewRejects, WriteTarget
from schemas.limits import REASON_CHARACTERS_MAX
from schemas.table.object_path import TablePath
from schemas.types.arrow_values import from_arrow

Booleans = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class ViewInputs:
    """A view, for the tasks that decode messages for all views."""

    number: int
    name: str
    plan: Plan
    root: TablePath
    indexes: tuple[int, ...]  # of its columns among those of all views
    deadline: Deadline | None
    parcelling: Parcelling
    failing: tuple[tuple[int, str], ...] = ()  # positions of rows that fail, when it is read again

    @property
    def needs_messages(self) -> bool:
        return self.deadline is not None or bool(self.failing)


class Emitter(WriteTarget, Protocol):
    """A decode task, for all views or as for a job with one of them only."""

    @property
    def views(self) -> tuple[ViewInputs, ...]: ...

    def for_view(self, view: ViewInputs) -> Emitter: ...

    def emit_changes(
        self,
        run: RangeReader,
        rows: RangeRows,
        taken: Booleans | None = None,
    ) -> Iterator[pa.RecordBatch]: ...


def emit_views(task: Emitter, run: RangeReader, rows: RangeRows) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range for each view, as parcels, and count them by view."""
    for view in task.views:
        own = rows.select(view.indexes)
        part = task.for_view(view)
        taken = _refuse(part, view, run, own) if view.failing else None
        before = run.report.shipped
        yield from part.emit_changes(run, own, taken)
        run.report.views.append(run.report.shipped - before)


def _refuse(part: Emitter, view: ViewInputs, run: RangeReader, rows: RangeRows) -> Booleans | None:
    """Put the messages with failing rows into the view's quarantine; return which rows are left.

    A position names one of several equal rows, so each message with an equal row is refused.
    """
    numbers, columns = rows.number(), rows.columns
    start = run.number << RUNNING_BITS
    reasons: dict[int, str] = {}
    for position, reason in view.failing:
        at = (position if position >= 0 else ~position) - start
        if 0 <= at < len(numbers):
            reasons[int(numbers[at])] = f"{reason}; the row is {_format_row(view, columns, at)}"
    if not reasons:
        return None
    failing = np.flatnonzero(np.isin(numbers, list(reasons)))
    refused: dict[int, str] = {}  # by offset
    taken = np.ones(len(numbers), np.bool_)
    for row, offset, begin, end in run.messages.extents(failing):
        refused.setdefault(offset, reasons[int(numbers[row])])
        taken[begin:end] = False
    records = {record.offset: record for _, record in run.kept}
    # The job's own query has the table for a root, where the range has a quarantine too.
    rejects = RejectWriter(part, f"{run.writer}-v{view.number}")
    for offset, reason in sorted(refused.items()):
        named = f"view {view.name}: {reason}" if view.name else reason
        rejects.add(
            run.range.topic_partition, Rejected(named, code=RejectCode.EXPRESSION), records[offset]
        )
    rejects.write()
    run.report.refused.append(
        ViewRejects(view.number, rejects.count, rejects.files, rejects.first or "")
    )
    return taken


def _format_row(view: ViewInputs, columns: list[pa.Array], row: int) -> str:
    values = [
        from_arrow(array.slice(row, 1), column.type)[0]
        for array, column in zip(columns, view.plan.used, strict=True)
    ]
    named = zip(view.plan.used, values, strict=True)
    shown = ", ".join(f"{column.name} = {value!r}" for column, value in named)
    return shown[: REASON_CHARACTERS_MAX // 2]
