"""What a fold task gets, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from jobs.core.fold.rules import DEFAULT_RULES, Rules
from jobs.core.plan.tree import Plan
from jobs.edge.rows.late_rows import Deadline, deadline_of
from jobs.edge.state.bucket_states import CommittedState
from jobs.edge.table.file_writer import AddedFile, EpochAttempt
from jobs.edge.tasks.body import TaskReport


class FoldReport(TaskReport, msgspec.Struct, kw_only=True, tag="fold"):
    view: int = 0  # the number of the view
    arrived: int = 0  # weighted rows
    counted: int = 0  # of them, `counted_copies` of each
    files: list[AddedFile] = []
    due: list[AddedFile] = []  # changelog rows for the driver to sort
    counters: dict[str, int] = {}
    dropped_keys: list[tuple[str, int]] = []
    below_zero_delta: int = 0  # additional groups in the state without a row
    keys_below_zero: list[str] = []
    changelog_rows: int = 0
    groups_delta: int = 0
    timers: dict[str, int] = {}  # the earliest timer of each clock
    seconds: float = 0.0  # from the arrival of the rows to the report


@dataclass(frozen=True, slots=True)
class FoldInputs:
    """The epoch that a fold task works for, and the state that it starts from."""

    plan: Plan
    committed: CommittedState
    attempt: EpochAttempt
    rules: Rules = DEFAULT_RULES
    now_ms: int = 0  # the driver's clock; tasks do not read clocks
    watermark: int | None = None  # the watermark before this epoch
    in_order: bool = False  # rows are late or not by the rows before them in the epoch
    buckets: int = 0  # of the state, for an epoch without data
    view: int = 0  # the number of the view

    @property
    def deadline(self) -> Deadline | None:
        """The deadline of rows in this epoch; None if no windows close."""
        return deadline_of(self.rules.closing, self.watermark, in_order=self.in_order)
