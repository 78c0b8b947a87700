"""The rows of a decoded range as one view of the job gets them.

    signed rows with the columns of all views ─┬─► columns of view 1 ─► consolidated ─► parcels
                                               └─► columns of view 2 ─► consolidated ─► parcels

A view gets the rows that it would get in a job of its own. If an expression fails on a row, the
view refuses the whole message.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.fold.window_closing import Late
from jobs.core.rows.consolidate import RUNNING_BITS, Booleans, Integers, WeightedRows, group_indexes
from jobs.edge.rows.evaluated_rows import EvaluatedRows, evaluate_rows
from jobs.edge.rows.late_rows import Deadline, late_rows
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import Parcel
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.range_reading import RangeReader
from schemas.limits import REASON_CHARACTERS_MAX
from schemas.types.arrow_values import from_arrow


class ViewRows:
    """The rows of a range for one view."""

    def __init__(self, view: ViewInputs, run: RangeReader, rows: RangeRows) -> None:
        self._view = view
        self._plan = view.plan
        self._run = run
        self._rows = rows.select(view.indexes)
        self._start = run.number << RUNNING_BITS

    # --- messages that are refused ----------------------------------------------------------------

    def find_refused(self) -> dict[int, str]:
        """Return the offsets of the messages on whose rows an expression fails, with the reasons.

        A position names one of several equal rows, so each message with an equal row is refused.
        """
        failures = self._find_failures() if self._view.can_fail else ()
        if not failures:
            return {}
        numbers, reasons = self._rows.number(), dict[int, str]()
        named = f"view {self._view.name}: " if self._view.name else ""
        for position, reason in failures:
            row = (position if position >= 0 else ~position) - self._start
            reasons[int(numbers[row])] = f"{named}{reason}; the row is {self._format(row)}"
        failing = np.isin(numbers, list(reasons))
        if self._plan.primary_key:
            failing &= self._rows.signs > 0
        offsets, refused = self._run.signed_rows.offsets, dict[int, str]()
        for row in np.flatnonzero(failing).tolist():
            refused.setdefault(int(offsets[row]), reasons[int(numbers[row])])
        return refused

    def _find_failures(self) -> tuple[tuple[int, str], ...]:
        """Return the positions of rows whose expressions fail, with the reasons."""
        if not self._plan.primary_key:
            return self._evaluate(self._rows, self._weigh(self._rows)).failures
        # Every image, also one that another image of the range replaces: whether its message is
        # refused must not depend on what came with it. A retraction may have only its key.
        images = np.flatnonzero(self._rows.signs > 0)
        weighted = WeightedRows(images, self._start + images, self._rows.signs[images])
        return evaluate_rows(self._plan, self._rows, weighted).failures

    def _format(self, row: int) -> str:
        shown = [
            f"{column.name} = {from_arrow(array.slice(row, 1), column.type)[0]!r}"
            for array, column in zip(self._rows.columns, self._plan.used, strict=True)
        ]
        return ", ".join(shown)[: REASON_CHARACTERS_MAX // 2]

    # --- parcels ----------------------------------------------------------------------------------

    def parcels(self, taken: Booleans | None) -> Iterator[Parcel]:
        """Yield the weighted rows for the fold tasks; only those `taken`, and count them."""
        self._run.report.shipped[self._view.number] = 0
        deadline, rows, late = self._view.deadline, self._rows, None
        if deadline is not None:
            late = deadline.late(self._plan, rows.columns, self._run.watermarks)
            if taken is not None:
                late = Late(late.whole & taken, late.partly & taken)
        together = taken
        if late is not None and late.partly.any():
            alone = late.partly if self._run.task.rules.in_order else late.whole
            together = ~alone if taken is None else ~alone & taken
        if together is not None:
            rows = rows.take(np.flatnonzero(together))
        yield from self._send(rows, self._weigh(rows))
        if deadline is not None and late is not None and late.partly.any():
            yield from self._late_parcels(deadline, late)

    def _send(
        self, rows: RangeRows, weighted: WeightedRows, late: pa.Array | None = None
    ) -> Iterator[Parcel]:
        """Yield weighted rows, evaluated, as parcels; `late` is what LATE has of each."""
        self._run.report.shipped[self._view.number] += len(weighted.indexes)
        parcelling = self._view.parcelling
        if parcelling.evaluates:
            evaluated = self._evaluate(rows, weighted)
            evaluated.require_no_failures()
            rows, weighted = evaluated.rows, evaluated.weighted
            late = None if late is None else late.take(pa.array(evaluated.origins))
        yield from parcelling.parcels(rows, weighted, late)

    def _evaluate(self, rows: RangeRows, weighted: WeightedRows) -> EvaluatedRows:
        """Return the evaluated rows of a range; they are evaluated once."""
        plan = self._plan
        return rows.once(("evaluated", plan), lambda: evaluate_rows(plan, rows, weighted))

    def _weigh(self, rows: RangeRows) -> WeightedRows:
        """Return the consolidated rows of a range; positions count in the range."""
        number, task = self._run.number, self._run.task
        if task.drop_early:
            return rows.consolidate_with_heads(number, group_indexes(self._plan))
        keep_zeros = task.touches_groups or self._view.can_fail
        return rows.consolidate(number, keep_zeros=keep_zeros)

    def _late_parcels(self, deadline: Deadline, late: Late) -> Iterator[Parcel]:
        """Yield each row that is late for at least one window, without consolidation."""
        run, signs = self._run, self._rows.signs
        found = late_rows(
            self._plan,
            deadline.closing,
            run.signed_rows.offsets,
            self._rows.columns,
            signs,
            late,
            run.watermarks,
        )
        partition = {"topic": run.range.topic, "partition": run.range.partition}
        payloads = [msgspec.json.encode(msgspec.structs.replace(row, **partition)) for row in found]
        indexes: Integers = np.flatnonzero(late.partly)
        positions, weights = self._start + indexes, signs[indexes]
        positions = np.where(weights < 0, ~positions, positions)  # as consolidation has them
        # Of their own rows, because `rows` may know the values of its consolidated rows.
        alone = self._rows.take(indexes)
        weighted = WeightedRows(np.arange(len(indexes)), positions, weights)
        yield from self._send(alone, weighted, pa.array(payloads, pa.binary()))
