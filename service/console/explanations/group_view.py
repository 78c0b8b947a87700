"""A group as its page shows it: current values, multisets, charts, and its history.

document of /explain ───────┬──► the reason of each extreme change, newest first
multisets over the epochs ──┤──► epoch by epoch: columns, changes of multisets, source offsets
epoch rows ─────────────────┘──► one chart for each column; the values behind MAX and MIN as bars
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.explain.extreme_changes import (
    ExtremeChange,
    ValueChange,
    cause_sentence,
    epoch_before,
    extreme_columns,
    find_cause,
    find_extreme_changes,
    newest_changes,
    source_text,
)
from jobs.core.fold.state import rank
from jobs.core.values.change import Value
from jobs.core.values.json_values import Json
from jobs.reading.json_columns import safe_renderer
from jobs.reading.row_shape import RowShape
from schemas.documents.explanation import GroupEpoch, JoinedRow, LateRow, SideRow
from schemas.limits import CONSOLE_ENTRIES, CONSOLE_EPOCHS_DETAILED, CONSOLE_HISTORY_EPOCHS
from service.answers.group_snapshots import GroupSnapshot
from service.console.pictures.value_chart import Histogram, ValueChart, draw_histogram, draw_value
from service.console.rows import (
    Cell,
    ColumnChange,
    compare_rows,
    format_value,
    is_numeric,
    make_cell,
)

_NOT_NUMBERS = {"argument", "used_by", "multiset"}
_EXPLANATIONS_MAX = 3
_VALUES_SHOWN = 8  # of each multiset of an epoch
_WITHOUT_RECORDS = ("rewind", "evolve", "clone")  # kinds of epochs that read no records


@dataclass(frozen=True, slots=True)
class Explanation:
    """A sentence about one change of an extreme."""

    epoch: int
    text: str
    later: str | None  # the changes of the extreme since then
    extreme: bool  # whether MAX decreased or MIN increased


@dataclass(frozen=True, slots=True)
class ValueBar:
    value: str
    times: int
    width: float
    columns: tuple[str, ...]  # the result columns that show the value


@dataclass(frozen=True, slots=True)
class ArgumentView:
    """The state of one aggregate argument."""

    name: str
    used_by: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    bars: tuple[ValueBar | None, ...]  # the greatest first; None for omitted values
    values: int
    skipped: int
    histogram: Histogram | None  # of the values, with their multiplicities
    counts_differ: bool  # so that bars show something


@dataclass(frozen=True, slots=True)
class MultisetChange:
    """The values that one epoch added to a multiset and removed from it."""

    argument: str
    added: tuple[tuple[int, str], ...]  # how often, and the value
    removed: tuple[tuple[int, str], ...]
    more_added: int  # omitted values
    more_removed: int


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The changes of a group in one epoch."""

    epoch: int
    at_ms: int | None
    kind: str
    source: str  # the records that the epoch read
    columns: tuple[ColumnChange, ...]
    changes: tuple[tuple[str, str], ...]
    multisets: tuple[MultisetChange, ...] | None  # None if no longer known
    sentences: tuple[str, ...]


class GroupView:
    """One group; `highlighted` is the epoch that the user came for."""

    def __init__(self, shape: RowShape, snapshot: GroupSnapshot, highlighted: int | None) -> None:
        self.shape = shape
        self.snapshot = snapshot
        self.highlighted = highlighted
        self.document = snapshot.document
        self._epochs = self.document.epochs
        self._extreme_changes = find_extreme_changes(shape.plan, self._epochs)

    # --- reasons --------------------------------------------------------------------------------

    def explain(self) -> list[Explanation]:
        """Return the reasons of the highlighted epoch's changes, then of the newest ones."""
        chosen = [change for change in self._extreme_changes if change.epoch == self.highlighted]
        for change in newest_changes(self._extreme_changes):
            if change not in chosen:
                chosen.append(change)
        return [
            Explanation(
                change.epoch, self._write(change), self._summarize_later(change), change.retracted
            )
            for change in chosen[:_EXPLANATIONS_MAX]
        ]

    def _summarize_later(self, change: ExtremeChange) -> str | None:
        later = [
            t
            for t in self._extreme_changes
            if t.extreme == change.extreme and t.epoch > change.epoch
        ]
        if not later:
            return None
        last = later[-1]
        after = "NULL" if last.after is None else format_value(last.after)
        times = "" if len(later) == 1 else f", the last of {len(later)} later changes"
        return f"It changed to {after} in epoch {last.epoch}{times}."

    def _write(self, change: ExtremeChange) -> str:
        changed = self.document.changed
        why = find_cause(change, self.snapshot.remembered, self.snapshot.rows, changed)
        return cause_sentence(change, why, _format)

    @property
    def unchanged(self) -> list[str]:
        """The extremes that did not change within the available history."""
        changed = {change.extreme.column for change in self._extreme_changes}
        return [
            each.column for each in extreme_columns(self.shape.plan) if each.column not in changed
        ]

    # --- history --------------------------------------------------------------------------------

    def list_entries(self) -> list[HistoryEntry]:
        """Return the newest epochs and the highlighted one; newest first."""
        return [self._make_entry(each) for each in reversed(self._detailed)]

    @property
    def _detailed(self) -> list[GroupEpoch]:
        newest = self._epochs[-CONSOLE_EPOCHS_DETAILED:]
        older = self._epochs[:-CONSOLE_EPOCHS_DETAILED]
        return [*(each for each in older if each.epoch == self.highlighted), *newest]

    @property
    def omitted(self) -> int:
        return len(self._epochs) - len(self._detailed)

    def _make_entry(self, epoch: GroupEpoch) -> HistoryEntry:
        number, changes = epoch.epoch, epoch.changes
        row = self.snapshot.rows.get(number)
        first, last = changes[0], changes[-1]
        pair = first.op != "+I" and last.op != "-D"
        kind = "" if row is None else row.kind
        return HistoryEntry(
            epoch=number,
            at_ms=None if row is None else row.committed_at // 1_000,
            kind=kind,
            source=f"read {epoch.snapshot}"
            if epoch.snapshot
            else describe_source(kind, epoch.offsets),
            columns=tuple(compare_rows(self.shape, first.row, last.row)) if pair else (),
            changes=tuple((each.op, _format_row(each.row)) for each in changes),
            multisets=self._compare_multisets(number),
            sentences=tuple(
                self._write(t) for t in self._extreme_changes if t.epoch == number and t.retracted
            ),
        )

    def _compare_multisets(self, epoch: int) -> tuple[MultisetChange, ...] | None:
        """Return the changes of each multiset in an epoch; None if no longer known."""
        since = epoch_before(self.snapshot.rows, epoch)
        found = []
        for index, argument in enumerate(self.shape.plan.arguments):
            if not any(each.argument == index for each in extreme_columns(self.shape.plan)):
                continue
            write = safe_renderer(argument.type)
            steps = None if since is None else self.snapshot.remembered.steps(index, since, epoch)
            if steps is None:
                return None
            if steps:
                found.append(_compare_values(argument.name, steps, write))
        return tuple(found)

    # --- pictures -------------------------------------------------------------------------------

    def draw_charts(self) -> list[ValueChart]:
        """Return a chart for each column of numbers."""
        epochs = self._epochs[-CONSOLE_HISTORY_EPOCHS:]
        extreme = {t.extreme.column: set[int]() for t in self._extreme_changes}
        for change in self._extreme_changes:
            if change.retracted:
                extreme[change.extreme.column].add(change.epoch)
        group = {named.name for named in self.shape.plan.group}
        found = []
        for name in self.shape.names:
            if name in group or not is_numeric(self.shape, name) or not epochs:
                continue
            points = _find_points(name, epochs)
            last = self.document.epoch
            chart = draw_value(name, points, last, extreme.get(name, ()), self.highlighted)
            if chart is not None:
                found.append(chart)
        return found

    @property
    def charted(self) -> tuple[int, int]:
        """The number of epochs in the charts, and of all epochs that changed the group."""
        return min(len(self._epochs), CONSOLE_HISTORY_EPOCHS), len(self._epochs)

    def list_arguments(self) -> list[ArgumentView]:
        """Return the state of each aggregate argument."""
        by_name = {arg.name: i for i, arg in enumerate(self.shape.plan.arguments)}
        return [
            _make_argument(each, self._find_extremes(by_name[each["argument"]]))
            for each in self.document.arguments
        ]

    def _find_extremes(self, argument: int) -> list[tuple[str, Json]]:
        row = self.document.row
        if row is None:
            return []
        mine = [each for each in extreme_columns(self.shape.plan) if each.argument == argument]
        return [(each.column, row[each.column]) for each in mine]

    def list_cells(self) -> list[tuple[str, Cell]]:
        """Return the result columns with their current values, without the key."""
        row = self.document.row
        group = {named.name for named in self.shape.plan.group}
        if row is None:
            return []
        numeric = {name: is_numeric(self.shape, name) for name in self.shape.names}
        return [
            (name, make_cell(name, value, numeric=numeric[name]))
            for name, value in row.items()
            if name not in group
        ]

    def list_late_changes(self) -> list[tuple[LateRow, str, str]]:
        """Return the late rows with their text, and the text of what they became."""
        return [
            (each, _format_row(each.row), "" if each.became is None else _format_row(each.became))
            for each in self.document.late
        ]

    def list_joined_rows(self) -> list[tuple[JoinedRow, list[tuple[SideRow, str, str]]]]:
        """Return joined rows, and the row of each side with its text and what its epoch read."""
        joined = self.document.joined
        return [
            (each, [(side, _format_row(side.row), self._describe(side)) for side in each.rows])
            for each in (joined if isinstance(joined, list) else ())[:CONSOLE_ENTRIES]
        ]

    def _describe(self, side: SideRow) -> str:
        row = self.snapshot.rows.get(side.epoch)
        return describe_source("" if row is None else row.kind, side.offsets)


def _compare_values(
    argument: str, steps: Sequence[ValueChange], write: Callable[[Value], Json]
) -> MultisetChange:
    """Return what was added and what was removed, the most frequent and greatest values first."""
    ordered = sorted(steps, key=lambda step: rank(step.value), reverse=True)
    changes = [(step.after - step.before, _format(write(step.value))) for step in ordered]
    added = [change for change in changes if change[0] > 0]
    removed = [(-times, value) for times, value in changes if times < 0]
    for side in (added, removed):
        side.sort(key=lambda change: change[0], reverse=True)
    return MultisetChange(
        argument,
        tuple(added[:_VALUES_SHOWN]),
        tuple(removed[:_VALUES_SHOWN]),
        max(0, len(added) - _VALUES_SHOWN),
        max(0, len(removed) - _VALUES_SHOWN),
    )


def describe_source(kind: str, ranges: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Return which records an epoch read."""
    if kind in _WITHOUT_RECORDS:
        return "read no records"
    if ranges is None:
        return "source offsets no longer known"
    text = source_text(ranges)
    return f"read {text}" if text else "read no records: a timer was due"


def _find_points(name: str, epochs: Sequence[GroupEpoch]) -> list[tuple[int, Any]]:
    """Return the value of a column since each epoch, and before the first one if known."""
    first = epochs[0].changes[0]
    points: list[tuple[int, Any]] = []
    if first.op in ("-U", "-D"):
        points.append((epochs[0].epoch - 1, first.row[name]))
    for epoch in epochs:
        last = epoch.changes[-1]
        points.append((epoch.epoch, None if last.op == "-D" else last.row[name]))
    return points


def _make_argument(
    argument: Mapping[str, Any], extremes: Sequence[tuple[str, Json]]
) -> ArgumentView:
    entries = list(reversed(argument.get("multiset", [])))
    half = CONSOLE_ENTRIES // 2
    cut: list[Any] = entries
    if len(entries) > CONSOLE_ENTRIES:
        cut = [*entries[:half], None, *entries[-half:]]
    most = max((abs(each["multiplicity"]) for each in cut if each), default=1)
    return ArgumentView(
        name=argument["argument"],
        used_by=tuple(argument["used_by"]),
        numbers=tuple(
            (name.replace("_", " "), format_value(value))
            for name, value in argument.items()
            if name not in _NOT_NUMBERS
        ),
        bars=tuple(None if each is None else _make_bar(each, most, extremes) for each in cut),
        values=len(entries),
        skipped=max(0, len(entries) - CONSOLE_ENTRIES),
        histogram=draw_histogram([(each["value"], each["multiplicity"]) for each in entries]),
        counts_differ=len({each["multiplicity"] for each in entries}) > 1,
    )


def _make_bar(
    entry: Mapping[str, Any], most: int, extremes: Sequence[tuple[str, Json]]
) -> ValueBar:
    value, times = entry["value"], entry["multiplicity"]
    columns = tuple(name for name, extreme in extremes if times > 0 and extreme == value)
    return ValueBar(_format(value), times, round(100 * abs(times) / most, 2), columns)


def _format(value: Json) -> str:
    return "NULL" if value is None else format_value(value)


def _format_row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_format(value)}" for name, value in row.items())
