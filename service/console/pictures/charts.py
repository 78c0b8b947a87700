"""Charts: the shapes of line and bar charts; templates/charts.html renders them.

    values over time ──► scale ──► paths and bars of a picture 600 x 120 ──► SVG, stretched

SVG stretches shapes and would stretch text, so labels are HTML around the picture. An unknown value
is a gap in a line; a single value between two gaps is a dot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from schemas import limits
from service.console.formatting import (
    count_of,
    format_duration,
    format_instant,
    format_time_of_day,
)
from service.live.epoch_history import (
    DAY_SLOT_MS,
    HOUR_MS,
    SLOT_MS,
    EpochHistory,
    EpochPoint,
    Slot,
)

WIDTH, HEIGHT = 600, 120
_HEADROOM = 1.02
_BAR_GAP = 0.15  # of a bar's width
_MINUTE_MS = 60_000
_TICK_STEPS_MS = tuple(_MINUTE_MS * each for each in (1, 2, 5, 10, 30, 60, 240, 1_440, 10_080))
_TICKS_MAX = 7
_TICK_MARGIN = 4  # per cent; a label nearer to the end would be cut

# Times and values; None for an unknown value.
Points = Sequence[tuple[int, float | None]]


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    hue: int  # 1 to 5
    path: str
    area: str
    now: float | None
    highest: float | None


@dataclass(frozen=True, slots=True)
class LineChart:
    lines: tuple[Line, ...]
    top: float  # of the scale, which starts at 0
    since_ms: int
    until_ms: int

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Round times of the day: the position in per cent, and HH:MM."""
        span = self.until_ms - self.since_ms
        step = next(each for each in _TICK_STEPS_MS if span / each <= _TICKS_MAX)
        first = -(-self.since_ms // step) * step
        found = []
        for at in range(first, self.until_ms + 1, step):
            percent = 100 * (at - self.since_ms) / max(1, span)
            if _TICK_MARGIN <= percent <= 100 - _TICK_MARGIN:
                found.append((f"{percent:.2f}", format_time_of_day(at)[:5]))
        return found

    @property
    def known(self) -> bool:
        """Whether any line has a value."""
        return any(line.highest is not None for line in self.lines)


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment of a stacked bar."""

    name: str
    hue: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    title: str
    x: float
    width: float
    pieces: tuple[Piece, ...]
    at_ms: int | None = None  # when its epoch was committed

    @property
    def label(self) -> str:
        return self.title.partition(":")[0]


@dataclass(frozen=True, slots=True)
class BarChart:
    bars: tuple[Bar, ...]
    names: tuple[tuple[str, int], ...]  # of the pieces, with their hues
    top: float
    slots: int  # bars that fit, the newest at the right


def draw_lines(
    series: Sequence[tuple[str, Points]], since_ms: int, until_ms: int, gap_ms: int
) -> LineChart:
    """Draw lines over one span of time; points more than `gap_ms` apart leave a gap."""
    shown = [
        (name, [point for point in points if since_ms <= point[0] <= until_ms])
        for name, points in series
    ]
    known = [value for _, points in shown for _, value in points if value is not None]
    top = round_up(max(known, default=0.0) * _HEADROOM) or 1.0
    lines = tuple(
        _draw_line(name, hue, points, (since_ms, until_ms), top, gap_ms)
        for hue, (name, points) in enumerate(shown, 1)
    )
    return LineChart(lines, top, since_ms, until_ms)


def _draw_line(
    name: str, hue: int, points: Points, span: tuple[int, int], top: float, gap_ms: int
) -> Line:
    since, until = span
    runs = _split_runs(points, gap_ms)
    path: list[str] = []
    area: list[str] = []
    for run in runs:
        positions = [
            (WIDTH * (at - since) / max(1, until - since), HEIGHT - HEIGHT * value / top)
            for at, value in run
        ]
        steps = [f"{x:.1f} {y:.1f}" for x, y in positions]
        # A line of no length has round ends, and so is a dot.
        path.append("M" + "L".join(steps) if len(steps) > 1 else f"M{steps[0]}h0")
        if len(positions) > 1:
            first, last = positions[0][0], positions[-1][0]
            area.append(f"M{first:.1f} {HEIGHT}L{'L'.join(steps)}L{last:.1f} {HEIGHT}Z")
    values = [value for run in runs for _, value in run]
    now = None
    if runs and until - runs[-1][-1][0] <= 2 * gap_ms:
        now = runs[-1][-1][1]
    return Line(name, hue, "".join(path), "".join(area), now, max(values, default=None))


def _split_runs(points: Points, gap_ms: int) -> list[list[tuple[int, float]]]:
    """Return the points as runs without a gap."""
    runs: list[list[tuple[int, float]]] = []
    before: int | None = None
    for at, value in points:
        if value is None:
            before = None
            continue
        if before is None or at - before > gap_ms:
            runs.append([])
        runs[-1].append((at, value))
        before = at
    return runs


def draw_bars(
    bars: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], slots: int
) -> BarChart:
    """Draw stacked bars, right-aligned in a picture with room for `slots` bars."""
    top = round_up(max((sum(values) for _, values in bars), default=0.0) * _HEADROOM) or 1.0
    width = WIDTH / slots
    shown = []
    first = slots - len(bars)
    for index, (title, values) in enumerate(bars):
        pieces, bottom = [], float(HEIGHT)
        for hue, (name, value) in enumerate(zip(names, values, strict=True), 1):
            height = HEIGHT * value / top
            bottom -= height
            if value > 0:
                pieces.append(Piece(name, hue, round(bottom, 2), round(height, 2)))
        x = width * (first + index) + width * _BAR_GAP / 2
        shown.append(Bar(title, round(x, 2), round(width * (1 - _BAR_GAP), 2), tuple(pieces)))
    hues = tuple((name, hue) for hue, name in enumerate(names, 1))
    return BarChart(tuple(shown), hues, top, slots)


def round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50 ... as the end of a scale."""
    if value <= 0:
        return 0.0
    step = 10.0 ** math.floor(math.log10(value))
    return next((step * each for each in (1, 2, 5) if value <= step * each * (1 + 1e-9)), step * 10)


SPANS_MS = {"10m": 10 * _MINUTE_MS, "1h": HOUR_MS, "24h": 24 * HOUR_MS}  # widths of charts
EPOCHS_SHOWN = 60
_GAP_SLOTS = 3  # without a value, after which a line ends
_PHASES = ("read and decode", "fold", "shuffle and wait", "plan and check", "commit")
_WHOLE = ("time to commit",)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time that charts show."""

    since_ms: int
    until_ms: int
    span: str | None  # of SPANS_MS, up to now; None if the address has the range

    @classmethod
    def last(cls, span: str, now_ms: int) -> TimeRange:
        return cls(now_ms - SPANS_MS[span], now_ms, span)

    @classmethod
    def between(cls, first_ms: int, last_ms: int, now_ms: int) -> TimeRange:
        """Return the range of two times, with the width that a history has: a minute to a day."""
        oldest_ms = now_ms - 1_000 * limits.CHARTS_SECONDS_BACK_MAX
        since, until = sorted(max(oldest_ms, min(each, now_ms)) for each in (first_ms, last_ms))
        lacking = max(0, _MINUTE_MS - (until - since))
        until = min(until + lacking // 2, now_ms)
        since = max(min(since, until - _MINUTE_MS), until - SPANS_MS["24h"])
        return cls(since, until, None)

    @property
    def query(self) -> str:
        """The parameters of an address that shows this range."""
        if self.span is not None:
            return f"span={self.span}"
        ends = (datetime.fromtimestamp(ms / 1_000, UTC) for ms in (self.since_ms, self.until_ms))
        return "from={:%Y-%m-%dT%H:%M:%SZ}&to={:%Y-%m-%dT%H:%M:%SZ}".format(*ends)

    @property
    def label(self) -> str:
        if self.span is not None:
            return f"over the last {format_duration(SPANS_MS[self.span] / 1_000)}"
        return f"from {format_instant(self.since_ms)} to {format_instant(self.until_ms)}"


@dataclass(frozen=True, slots=True)
class JobCharts:
    """The charts of one range of time."""

    range: TimeRange
    lag: LineChart
    freshness: LineChart
    rates: LineChart
    epochs: BarChart


def draw_job(history: EpochHistory, now_ms: int, shown: TimeRange) -> JobCharts:
    """Draw the charts of a job's page."""
    since, until = shown.since_ms, shown.until_ms
    slots, gap = _find_slots(history, now_ms, shown), _GAP_SLOTS * _slot_ms(now_ms - since)
    lag = [(slot.at_ms, slot.lag) for slot in slots if slot.lag is not None]
    delay = [(slot.at_ms, slot.delay_ms / 1_000) for slot in slots if slot.delay_ms is not None]
    return JobCharts(
        shown,
        draw_lines([("records", lag)], since, until, gap),
        draw_lines([("seconds", delay)], since, until, gap),
        draw_rates(history, now_ms, shown),
        draw_epochs(history, shown),
    )


def _find_slots(history: EpochHistory, now_ms: int, shown: TimeRange) -> list[Slot]:
    """Return the slots of a range; one that begins before it is drawn at the range's start."""
    age = now_ms - shown.since_ms
    return [
        replace(slot, at_ms=max(slot.at_ms, shown.since_ms))
        for slot in history.slots_of(age)
        if slot.at_ms + _slot_ms(age) > shown.since_ms and slot.at_ms <= shown.until_ms
    ]


def _slot_ms(age_ms: int) -> int:
    return SLOT_MS if age_ms <= HOUR_MS else DAY_SLOT_MS


def draw_rates(history: EpochHistory, now_ms: int, shown: TimeRange) -> LineChart:
    """Draw messages read and changelog rows written per second.

    The current slot is incomplete and would look like a drop, so it is left out.
    """
    width = _slot_ms(now_ms - shown.since_ms)
    found = _find_slots(history, now_ms, shown)
    slots = [slot for slot in found if slot.at_ms + width <= now_ms]
    read = [(slot.at_ms, slot.read_per_second) for slot in slots]
    written = [(slot.at_ms, slot.changes_per_second) for slot in slots]
    series = [("messages in", read), ("changelog rows out", written)]
    return draw_lines(series, shown.since_ms, shown.until_ms, _GAP_SLOTS * width)


def draw_epochs(history: EpochHistory, shown: TimeRange) -> BarChart:
    """Draw the durations of the newest epochs, of a fixed range those in it, split into phases."""
    epochs = [
        each
        for each in history.epochs
        if each.seconds is not None
        and (shown.span is not None or shown.since_ms <= each.at_ms <= shown.until_ms)
    ][-EPOCHS_SHOWN:]
    parts = any(each.decoding is not None for each in epochs)
    bars = [(_describe_epoch(each, parts), _split_duration(each, parts)) for each in epochs]
    chart = draw_bars(bars, _PHASES if parts else _WHOLE, EPOCHS_SHOWN)
    placed = zip(chart.bars, epochs, strict=True)
    return replace(chart, bars=tuple(replace(bar, at_ms=each.at_ms) for bar, each in placed))


def _split_duration(epoch: EpochPoint, parts: bool) -> tuple[float, ...]:
    """Return the seconds of each phase; tasks of two stages may overlap, so cap each one."""
    whole = left = epoch.seconds or 0.0
    if not parts:
        return (whole,)
    found = []
    for part in (epoch.planning, epoch.decoding, epoch.folding):
        found.append(min(part or 0.0, left))
        left -= found[-1]
    planning, decoding, folding = found
    return decoding, folding, left, planning, epoch.commit or 0.0


def _describe_epoch(epoch: EpochPoint, parts: bool) -> str:
    took = f"epoch {epoch.epoch}: {format_duration(epoch.seconds)}"
    if parts:
        named = zip(_PHASES, _split_duration(epoch, parts), strict=True)
        phases = ", ".join(f"{name} {format_duration(each)}" for name, each in named if each)
        took += f" ({phases})"
    rows = f"{count_of(epoch.read, 'message')}, {count_of(epoch.changes, 'changelog row')}"
    return f"{took}, {rows}"
