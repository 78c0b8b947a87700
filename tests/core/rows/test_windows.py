"""Windows of a row, and the plan over rows with their windows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.plan.tree import Column, Window
from jobs.core.rows.windows import (
    END,
    START,
    WINDOWS_FROM_MS,
    WINDOWS_TO_MS,
    window_expander,
    windows_of,
    with_window_columns,
)
from jobs.core.sql.printer import expression_sql
from jobs.core.sql.select import parse_query
from jobs.core.values.json_values import render
from schemas.types.sql_types import BIGINT, INT, STRING, timestamp

TIME = Column("t", timestamp(3))
COLUMNS = {"k": STRING, "t": timestamp(6), "b": BIGINT, "v": INT}

windows = st.builds(
    lambda slide, count: Window("HOP", TIME, slide * count, slide),
    st.integers(1, 10**10),
    st.integers(1, 40),
)
any_windows = st.builds(
    lambda function, slide, count, offset: Window(
        function, TIME, slide * count, slide, offset % (slide * count)
    ),
    st.sampled_from(("HOP", "CUMULATE")),
    st.integers(1, 10**10),
    st.integers(1, 40),
    st.integers(0, 10**12),
)
times = st.integers(WINDOWS_FROM_MS + 10**12, WINDOWS_TO_MS - 10**12)
edges = st.one_of(
    st.integers(WINDOWS_FROM_MS, WINDOWS_FROM_MS + 10**12),
    st.integers(WINDOWS_TO_MS - 10**12, WINDOWS_TO_MS),
)


def window_starts(window: Window, time: int) -> list[int]:
    return [start for start, _ in windows_of(window, time)]


def tumble(size: int) -> Window:
    return Window("TUMBLE", TIME, size, size)


def hop(slide: int, size: int) -> Window:
    return Window("HOP", TIME, size, slide)


def test_a_window_begins_at_a_multiple_of_its_length_since_1970() -> None:
    assert list(window_starts(tumble(60_000), 0)) == [0]
    assert list(window_starts(tumble(60_000), 59_999)) == [0]
    assert list(window_starts(tumble(60_000), 60_000)) == [60_000]
    assert list(window_starts(tumble(7), 1_700_000_000_003)) == [1_700_000_000_003 // 7 * 7]


def test_a_time_before_1970_is_in_the_window_that_began_before_it() -> None:
    assert list(window_starts(tumble(60_000), -1)) == [-60_000]
    assert list(window_starts(tumble(60_000), -60_000)) == [-60_000]
    assert list(window_starts(tumble(60_000), -60_001)) == [-120_000]
    assert list(window_starts(hop(5, 10), -1)) == [-10, -5]


def test_a_hopping_row_is_in_every_window_that_holds_it() -> None:
    assert list(window_starts(hop(5, 10), 7)) == [0, 5]
    assert list(window_starts(hop(5, 10), 5)) == [0, 5]
    assert list(window_starts(hop(5, 10), 4)) == [-5, 0]
    assert list(window_starts(hop(10, 10), 7)) == list(window_starts(tumble(10), 7))


@given(windows, times)
def test_every_row_is_in_exactly_as_many_windows_as_slides_fit(window: Window, time: int) -> None:
    found = window_starts(window, time)
    assert len(found) == window.windows_per_row
    assert all(start <= time < start + window.size_ms for start in found)
    assert all(start % window.slide_ms == 0 for start in found)
    # The windows before and after do not contain the time.
    assert found[0] - window.slide_ms + window.size_ms <= time < found[-1] + window.slide_ms


@given(any_windows, times)
def test_windows_are_those_of_their_definition(window: Window, time: int) -> None:
    size, slide, offset = window.size_ms, window.slide_ms, window.offset_ms
    if window.function == "CUMULATE":
        start = (time - offset) // size * size + offset
        lengths = range(slide, size + 1, slide)
        wanted = [(start, start + length) for length in lengths if time < start + length]
    else:
        latest = (time - offset) // slide * slide + offset
        starts = range(latest - size + slide, latest + 1, slide)
        wanted = [(start, start + size) for start in starts if start <= time < start + size]
    assert windows_of(window, time) == wanted
    assert len(wanted) <= window.windows_per_row
    first, last = window.find_ends(np.array([time]))
    assert (first.tolist(), last.tolist()) == ([wanted[0][1]], [wanted[-1][1]])


def test_windows_beyond_the_years_that_there_are_do_not_exist() -> None:
    assert list(window_starts(tumble(60_000), WINDOWS_FROM_MS)) == [WINDOWS_FROM_MS]
    last = WINDOWS_TO_MS + 1 - 60_000  # it would end in the year 10000
    assert list(window_starts(tumble(60_000), last - 1)) == [last - 60_000]
    assert not window_starts(tumble(60_000), last)
    assert not window_starts(tumble(60_000), WINDOWS_FROM_MS - 1)
    assert not window_starts(tumble(60_000), WINDOWS_TO_MS)
    assert not window_starts(hop(30_000, 60_000), WINDOWS_FROM_MS)
    assert not window_starts(hop(30_000, 60_000), WINDOWS_TO_MS - 1)
    assert not window_starts(tumble(1_000), 2**63 - 1)


def test_an_opened_row_carries_a_window_of_the_kind_of_its_time() -> None:
    hop = "HOP({}, INTERVAL '1' SECOND, INTERVAL '2' SECOND)"
    query = f"SELECT k, COUNT(*) AS n FROM s GROUP BY k, {hop}"
    plan = parse_query(query.format("t"), COLUMNS)
    assert plan.window is not None
    assert window_expander(plan, plan.window)(("a", 1_999_999)) == [
        ("a", 1_999_999, 0, 2_000_000),
        ("a", 1_999_999, 1_000_000, 3_000_000),
    ]
    assert window_expander(plan, plan.window)(("a", -1)) == [
        ("a", -1, -2_000_000, 0),
        ("a", -1, -1_000_000, 1_000_000),
    ]
    assert window_expander(plan, plan.window)(("a", None)) == []
    plan = parse_query(query.format("b"), COLUMNS)
    assert plan.window is not None
    assert window_expander(plan, plan.window)(("a", 1_999)) == [
        ("a", 1_999, 0, 2_000),
        ("a", 1_999, 1_000, 3_000),
    ]


def test_a_plan_over_opened_rows_knows_nothing_of_windows() -> None:
    plan = parse_query(
        "SELECT MINUTE(window_end) AS m, MAX(window_start) FILTER (WHERE window_end > t) AS x "
        "FROM s WHERE v > 1 GROUP BY TUMBLE(t, INTERVAL '1' SECOND)",
        COLUMNS,
    )
    assert plan.window is not None
    plain = with_window_columns(plan, plan.window)
    assert plain.window is None
    assert [column.name for column in plain.used] == ["t", "v", START, END]
    assert [expression_sql(each.expression) for each in (*plain.group, *plain.arguments)] == [
        "`window start`",
        "`window end`",
        "MINUTE(`window end`)",
        "CASE WHEN CAST(`window end` AS TIMESTAMP(6)) > t THEN `window start` END",
    ]
    assert plain.where == plan.where
    assert plain.aggregates == plan.aggregates


@given(any_windows | st.builds(tumble, st.integers(1, 10**14)), edges)
def test_every_bound_of_a_window_can_be_read(window: Window, time: int) -> None:
    for bounds in windows_of(window, time):
        for bound in bounds:
            assert render(bound * 1_000, timestamp(3))
