"""The story of a group: what it is now, what is behind that, how it came about, in words.

explanation (as REST tells it) ──┬──► why its extremes are what they are, newest first
multisets over the epochs ───────┤──► epoch by epoch: columns, values taken and given, source
epoch rows ──────────────────────┘──► a chart a column; the values behind MAX and MIN as bars
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.explain.extreme_changes import (
    Remembered,
    Turn,
    began,
    cause,
    extremes,
    newest_turns,
    sentence,
    turns,
)
from jobs.core.values.json_values import Json
from schemas.limits import CONSOLE_COURSE_EPOCHS, CONSOLE_ENTRIES, CONSOLE_EPOCHS_TOLD
from schemas.table.epoch import EpochRow
from service.console.pictures.value_chart import CourseChart, course_chart
from service.console.rows import Step, cell, is_numeric, ranges_told, steps, text_of
from service.table.explanation import GroupHistory
from service.table.job_table import Key, Table
from service.table.row_shape import RowShape, safe_renderer

_WORDS = {"argument", "used_by", "multiset"}
_LINES_MAX = 3
_VALUES_TOLD = 12  # of an epoch, of each argument


@dataclass(frozen=True, slots=True)
class Known:
    """All that a table says of a group, read once for as long as no epoch comes."""

    document: dict[str, Any]
    remembered: Remembered
    rows: dict[int, EpochRow]


def known_of(table: Table, shape: RowShape, key: Key, buckets: int) -> Known:
    """A Problem where there is no such group, and never was."""
    history = GroupHistory(table, shape, key, buckets)
    document = history.explained()
    rows = {row.epoch: row for row in table.epochs()}
    return Known(document, history.remembered(rows), rows)


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence about an extreme."""

    epoch: int
    text: str
    more: str | None  # what has become of it since
    retreats: bool


@dataclass(frozen=True, slots=True)
class Bar:
    value: str
    times: int
    width: float
    shown_as: tuple[str, ...]  # the result columns that show it


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    used_by: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    bars: tuple[Bar | None, ...]  # the greatest first; None where some are left out
    values: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Values:
    """What went of a multiset, and what came."""

    argument: str
    told: tuple[tuple[int, str], ...]  # how often more or less, and the value
    more: int  # values that are left out


@dataclass(frozen=True, slots=True)
class Chapter:
    """What an epoch did to the group."""

    epoch: int
    at_ms: int | None
    kind: str
    read: str
    steps: tuple[Step, ...]
    changes: tuple[tuple[str, str], ...]
    values: tuple[Values, ...] | None  # None where that is forgotten
    sentences: tuple[str, ...]


class Story:
    """Of one group, as its page tells it. `asked` is an epoch that somebody came for."""

    def __init__(self, shape: RowShape, known: Known, asked: int | None) -> None:
        self.shape = shape
        self.known = known
        self.asked = asked
        self.document = known.document
        self._epochs: list[dict[str, Any]] = self.document["epochs"]
        told = ((e["epoch"], [(c["op"], c["row"]) for c in e["changes"]]) for e in self._epochs)
        self._turns = turns(shape.plan, told)

    # --- why ------------------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        """What somebody who looks at the extremes wants to know first."""
        chosen = [turn for turn in self._turns if turn.epoch == self.asked]
        for turn in newest_turns(self._turns):
            if turn not in chosen:
                chosen.append(turn)
        return [
            Line(turn.epoch, self._sentence(turn), self._since(turn), turn.retreats)
            for turn in chosen[:_LINES_MAX]
        ]

    def _since(self, turn: Turn) -> str | None:
        later = [t for t in self._turns if t.extreme == turn.extreme and t.epoch > turn.epoch]
        if not later:
            return None
        last = later[-1]
        after = "NULL" if last.after is None else text_of(last.after)
        times = "" if len(later) == 1 else f", after {len(later)} more changes"
        return f"Since then it has become {after}, in epoch {last.epoch}{times}."

    def _sentence(self, turn: Turn) -> str:
        changed = self.document["changed"]
        why = cause(turn, self.known.remembered, self.known.rows, changed)
        return sentence(turn, why, _plain)

    @property
    def steady(self) -> list[str]:
        """Extremes that never turned, as far as is known."""
        turned = {turn.extreme.column for turn in self._turns}
        return [each.column for each in extremes(self.shape.plan) if each.column not in turned]

    # --- how it came about ----------------------------------------------------------------------

    def chapters(self) -> list[Chapter]:
        """The newest first; the one that was asked for is among them."""
        return [self._chapter(each) for each in reversed(self._told())]

    def _told(self) -> list[dict[str, Any]]:
        newest = self._epochs[-CONSOLE_EPOCHS_TOLD:]
        older = [e for e in self._epochs[:-CONSOLE_EPOCHS_TOLD] if e["epoch"] == self.asked]
        return [*older, *newest]

    @property
    def untold(self) -> int:
        return len(self._epochs) - len(self._told())

    def _chapter(self, epoch: dict[str, Any]) -> Chapter:
        number, changes = epoch["epoch"], epoch["changes"]
        row = self.known.rows.get(number)
        first, last = changes[0], changes[-1]
        pair = first["op"] != "+I" and last["op"] != "-D"
        return Chapter(
            epoch=number,
            at_ms=None if row is None else row.committed_at // 1_000,
            kind="" if row is None else row.kind,
            read=ranges_told(epoch["offsets"]),
            steps=tuple(steps(self.shape, first["row"], last["row"])) if pair else (),
            changes=tuple((each["op"], _row_text(each["row"])) for each in changes),
            values=self._values(number),
            sentences=tuple(
                self._sentence(t) for t in self._turns if t.epoch == number and t.retreats
            ),
        )

    def _values(self, epoch: int) -> tuple[Values, ...] | None:
        """Which values of each multiset went and came."""
        since = began(self.known.rows, epoch)
        found = []
        for index, argument in enumerate(self.shape.plan.arguments):
            if not any(each.argument == index for each in extremes(self.shape.plan)):
                continue
            write = safe_renderer(argument.type)
            steps = None if since is None else self.known.remembered.steps(index, since, epoch)
            if steps is None:
                return None
            steps.sort(key=lambda step: step.after > step.before)
            if steps:
                told = tuple(
                    (step.after - step.before, _plain(write(step.value)))
                    for step in steps[:_VALUES_TOLD]
                )
                found.append(Values(argument.name, told, len(steps) - len(told)))
        return tuple(found)

    # --- pictures -------------------------------------------------------------------------------

    def charts(self) -> list[CourseChart]:
        """A chart for each column of numbers."""
        epochs = self._epochs[-CONSOLE_COURSE_EPOCHS:]
        falls = {t.extreme.column: set[int]() for t in self._turns}
        for turn in self._turns:
            if turn.retreats:
                falls[turn.extreme.column].add(turn.epoch)
        group = {named.name for named in self.shape.plan.group}
        found = []
        for name in self.shape.names:
            if name in group or not is_numeric(self.shape, name) or not epochs:
                continue
            points = _course(name, epochs)
            last = self.document["epoch"]
            chart = course_chart(name, points, last, falls.get(name, ()), self.asked)
            if chart is not None:
                found.append(chart)
        return found

    @property
    def charted(self) -> tuple[int, int]:
        """How many epochs the charts show, of how many that changed the group."""
        return min(len(self._epochs), CONSOLE_COURSE_EPOCHS), len(self._epochs)

    def arguments(self) -> list[Argument]:
        """What the group remembers of each argument."""
        by_name = {arg.name: i for i, arg in enumerate(self.shape.plan.arguments)}
        return [
            _argument(each, self._shown_by(by_name[each["argument"]]))
            for each in self.document["arguments"]
        ]

    def _shown_by(self, argument: int) -> list[tuple[str, Json]]:
        row = self.document["row"]
        if row is None:
            return []
        mine = [each for each in extremes(self.shape.plan) if each.argument == argument]
        return [(each.column, row[each.column]) for each in mine]

    def row(self) -> list[tuple[str, Any]]:
        """The columns behind the key, with what is shown."""
        row = self.document["row"]
        group = {named.name for named in self.shape.plan.group}
        if row is None:
            return []
        numeric = {name: is_numeric(self.shape, name) for name in self.shape.names}
        return [
            (name, cell(name, value, numeric=numeric[name]))
            for name, value in row.items()
            if name not in group
        ]

    def late(self) -> list[dict[str, Any]]:
        return [
            {
                **each,
                "text": _row_text(each["row"]),
                "now": each["became"] and _row_text(each["became"]),
            }
            for each in self.document["late"]
        ]


def _course(name: str, epochs: Sequence[Mapping[str, Any]]) -> list[tuple[int, Any]]:
    """The value of a column since each epoch; before the first one too, where it says so."""
    first = epochs[0]
    points: list[tuple[int, Any]] = []
    if first["changes"][0]["op"] in ("-U", "-D"):
        points.append((first["epoch"] - 1, first["changes"][0]["row"][name]))
    for epoch in epochs:
        last = epoch["changes"][-1]
        points.append((epoch["epoch"], None if last["op"] == "-D" else last["row"][name]))
    return points


def _argument(told: Mapping[str, Any], shown: Sequence[tuple[str, Json]]) -> Argument:
    entries = list(reversed(told.get("multiset", [])))
    half = CONSOLE_ENTRIES // 2
    cut: list[Any] = entries
    if len(entries) > CONSOLE_ENTRIES:
        cut = [*entries[:half], None, *entries[-half:]]
    most = max((abs(each["multiplicity"]) for each in cut if each), default=1)
    return Argument(
        name=told["argument"],
        used_by=tuple(told["used_by"]),
        numbers=tuple(
            (name.replace("_", " "), text_of(value))
            for name, value in told.items()
            if name not in _WORDS
        ),
        bars=tuple(None if each is None else _bar(each, most, shown) for each in cut),
        values=len(entries),
        skipped=max(0, len(entries) - CONSOLE_ENTRIES),
    )


def _bar(entry: Mapping[str, Any], most: int, shown: Sequence[tuple[str, Json]]) -> Bar:
    value, times = entry["value"], entry["multiplicity"]
    columns = tuple(name for name, of in shown if times > 0 and of == value)
    return Bar(_plain(value), times, round(100 * abs(times) / most, 2), columns)


def _plain(value: Json) -> str:
    return "NULL" if value is None else text_of(value)


def _row_text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_plain(value)}" for name, value in row.items())
