"""Charts: the shapes say what the numbers say, and nothing where there are none."""

from __future__ import annotations

import pytest

from service.console.formatting import format_duration, format_instant, render_time
from service.console.pictures.charts import (
    HEIGHT,
    WIDTH,
    TimeRange,
    draw_bars,
    draw_lines,
    draw_rates,
    round_up,
)
from service.live.epoch_history import EpochHistory
from tests.support.epoch_rows import epoch_row

GAP = 20


def test_a_line_goes_from_the_first_moment_to_the_last() -> None:
    chart = draw_lines([("lag", [(0, 0.0), (10, 50.0), (20, 100.0)])], 0, 20, GAP)
    assert chart.top == 200
    assert chart.lines[0].path == f"M0.0 {HEIGHT}.0L300.0 90.0L{WIDTH}.0 60.0"
    assert (chart.lines[0].now, chart.lines[0].highest) == (100.0, 100.0)


def test_a_peak_outside_the_span_does_not_scale_it() -> None:
    points = [(-50, 900.0), (0, 1.0), (10, 1.6), (20, 1.0), (70, 900.0)]
    chart = draw_lines([("freshness", points)], 0, 20, GAP)
    assert (chart.top, chart.lines[0].highest) == (2, 1.6)


def test_a_pause_is_a_gap_and_a_lonely_value_a_dot() -> None:
    points = [(0, 1.0), (10, 1.0), (60, 1.0), (95, None), (96, 1.0), (100, 1.0)]
    path = draw_lines([("lag", points)], 0, 100, GAP).lines[0].path
    assert path.count("M") == 3
    assert "M360.0 60.0h0" in path


DAY, MINUTE = 86_400_000, 60_000
NOW = 100 * DAY


@pytest.mark.parametrize(
    ("first", "last", "since", "until"),
    [
        (NOW - 5 * MINUTE, NOW - MINUTE, NOW - 5 * MINUTE, NOW - MINUTE),
        (NOW - MINUTE, NOW - 5 * MINUTE, NOW - 5 * MINUTE, NOW - MINUTE),
        (NOW - DAY, NOW - DAY, NOW - DAY - MINUTE // 2, NOW - DAY + MINUTE // 2),
        (NOW + DAY, NOW + DAY, NOW - MINUTE, NOW),  # of the future there is nothing
        (-DAY, NOW + MINUTE, NOW - DAY, NOW),
    ],
)
def test_a_range_of_two_times_is_one_that_a_history_has(
    first: int, last: int, since: int, until: int
) -> None:
    found = TimeRange.between(first, last, NOW)
    assert (found.since_ms, found.until_ms) == (since, until)


def test_a_range_of_long_ago_is_at_most_ten_years_old() -> None:
    now, first = 2_000_000_000_000, -62_135_596_800_000
    found = TimeRange.between(first, first, now)
    assert found.query == "from=2023-05-21T03:32:50Z&to=2023-05-21T03:33:50Z"


def test_a_range_in_a_slot_shows_it() -> None:
    now, at = NOW + 30 * DAY, NOW
    history = EpochHistory()
    history.add_epoch(epoch_row(1, committed_at=at * 1_000, counters={"read": 240}))
    for since in (at + MINUTE // 2, at + MINUTE):
        rates = draw_rates(history, now, TimeRange.between(since, since + MINUTE, now))
        assert rates.lines[0].highest == 2
    later = TimeRange.between(at + 2 * MINUTE, at + 3 * MINUTE, now)
    assert not draw_rates(history, now, later).known


def test_what_was_long_ago_is_not_so_now() -> None:
    chart = draw_lines([("lag", [(0, 5.0)])], 0, 1_000, GAP)
    assert chart.lines[0].now is None
    assert chart.known


def test_without_a_value_nothing_is_known() -> None:
    chart = draw_lines([("lag", [(0, None)]), ("other", [])], 0, 100, GAP)
    assert not chart.known
    assert chart.lines[0].path == ""


def test_pieces_of_a_bar_stand_on_each_other_up_to_its_whole() -> None:
    chart = draw_bars([("epoch 1", (2.0, 1.0, 1.0))], ("a", "b", "c"), 10)
    assert chart.top == 5
    pieces = chart.bars[0].pieces
    assert pieces[0].y + pieces[0].height == HEIGHT
    assert pieces[1].y + pieces[1].height == pieces[0].y
    assert pieces[2].y == pytest.approx(HEIGHT * (1 - 4 / 5))
    assert chart.bars[0].x > WIDTH * 0.9  # the newest is at the right


@pytest.mark.parametrize(
    ("value", "top"), [(0, 0), (0.03, 0.05), (1, 1), (1.1, 2), (5, 5), (6, 10), (999, 1000)]
)
def test_a_scale_ends_at_a_number_that_one_can_say(value: float, top: float) -> None:
    assert round_up(value) == pytest.approx(top)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0031, "3 ms"),
        (3.21, "3.2 s"),
        (59.9, "1 min"),
        (61, "1 min"),
        (150, "2 min"),
        (7_500, "2 h 5 min"),
        (7_200, "2 h"),
        (100_000, "1 d 3 h"),
        (None, "\u2013"),
        (0, "0 s"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


def test_times_outside_the_calendar_are_numbers() -> None:
    assert format_instant(2**62) == f"{2**62} ms"
    assert format_instant(0) == "1970-01-01 00:00:00"
    assert render_time(1_500) == (
        '<time datetime="1970-01-01T00:00:01.500+00:00">1970-01-01 00:00:01 UTC</time>'
    )
