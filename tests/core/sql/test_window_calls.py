"""Windows in queries: their group columns, and the positions of refusals."""

from __future__ import annotations

import pytest

from jobs.core.plan.tree import Column, Plan, Window, WindowFunction
from jobs.core.plan.walk import plan_can_fail
from jobs.core.rows.consolidate import group_indexes
from jobs.core.sql.select import QueryError, QueryProblem, parse_query
from schemas.limits import DURATION_MS_MAX, WINDOWS_OF_A_ROW_MAX
from schemas.types.sql_types import BIGINT, INT, STRING, TIME, SqlType, timestamp
from tests.support.histories.plan_sql import plan_sql

COLUMNS: dict[str, SqlType] = {
    "k": STRING,
    "v": INT,
    "t": timestamp(3),
    "zoned": timestamp(6, local_zone=True),
    "number": BIGINT,
    "fine": timestamp(9),
    "clock": TIME,
}
MINUTE = "TUMBLE(t, INTERVAL '1' MINUTE)"


def plan(sql: str, columns: dict[str, SqlType] | None = None) -> Plan:
    return parse_query(sql, COLUMNS if columns is None else columns)


def grouped(window: str, select: str = "k, COUNT(*) AS n") -> Plan:
    return plan(f"SELECT {select} FROM s GROUP BY k, {window}")


def problem(sql: str) -> QueryProblem:
    with pytest.raises(QueryError) as caught:
        plan(sql)
    (found,) = caught.value.problems
    return found


def columns_of(made: Plan) -> list[str]:
    return [f"{each.name} {each.type}" for each in made.group]


# --- accepted ---------------------------------------------------------------------------------


def test_a_window_is_two_group_columns_whether_selected_or_not() -> None:
    made = grouped(MINUTE)
    assert made.window == Window("TUMBLE", Column("t", timestamp(3)), 60_000, 60_000)
    assert columns_of(made) == ["k STRING", "window_start TIMESTAMP(3)", "window_end TIMESTAMP(3)"]
    assert made.unselected == ("window_start", "window_end")
    assert [column.name for column in made.used] == ["k", "t"]
    made = grouped(MINUTE, "window_end, k, window_start AS since, COUNT(*) AS n")
    assert made.output == ("window_end", "k", "since", "n")
    assert [each.name for each in made.group] == ["k", "since", "window_end"]
    assert made.unselected == ()


def test_a_query_without_window_has_none_and_its_old_fingerprint() -> None:
    made = plan("SELECT k, COUNT(*) AS n FROM s GROUP BY k")
    assert made.window is None
    assert made.fingerprint == ("3c1ac2a9fd7cf1029e49c13f1cea296c983960ad3f6ac01e851c4aa97f10ca51")


def test_hop_says_its_slide_first_as_in_flink() -> None:
    made = grouped("HOP(t, INTERVAL '30' SECOND, INTERVAL '2' MINUTES)")
    assert made.window == Window("HOP", Column("t", timestamp(3)), 120_000, 30_000)
    assert made.copies_per_row == made.window.windows_per_row == 4
    assert grouped(MINUTE).copies_per_row == plan("SELECT COUNT(*) AS n FROM s").copies_per_row == 1


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("TUMBLE(t, INTERVAL '1' DAY, INTERVAL '-8' HOUR)", ("TUMBLE", 24, 24, 16)),
        ("TUMBLE(t, INTERVAL '1' DAY, INTERVAL '24' HOUR)", ("TUMBLE", 24, 24, 0)),
        ("HOP(t, INTERVAL '2' HOUR, INTERVAL '6' HOUR, INTERVAL '3' HOUR)", ("HOP", 6, 2, 1)),
        ("CUMULATE(t, INTERVAL '1' HOUR, INTERVAL '1' DAY)", ("CUMULATE", 24, 1, 0)),
        (
            "CUMULATE(t, INTERVAL '1' HOUR, INTERVAL '1' DAY, INTERVAL '8' HOUR)",
            ("CUMULATE", 24, 1, 8),
        ),
    ],
)
def test_windows_may_have_an_offset(
    call: str, window: tuple[WindowFunction, int, int, int]
) -> None:
    function, *hours = window
    size, slide, offset = (each * 3_600_000 for each in hours)
    made = grouped(call)
    assert made.window == Window(function, Column("t", timestamp(3)), size, slide, offset)
    assert plan(plan_sql(made)) == made


@pytest.mark.parametrize(
    ("interval", "milliseconds"),
    [
        ("INTERVAL '1' SECOND", 1_000),
        ("interval '0.25' second", 250),
        ("INTERVAL '1.5' MINUTES", 90_000),
        ("INTERVAL '3' HOUR", 3 * 3_600_000),
        ("INTERVAL '7' DAYS", 7 * 86_400_000),
    ],
)
def test_lengths_are_intervals_of_one_unit(interval: str, milliseconds: int) -> None:
    made = grouped(f"TUMBLE(t, {interval})")
    assert made.window is not None
    assert made.window.size_ms == milliseconds


@pytest.mark.parametrize(
    ("time", "bound"), [("t", "TIMESTAMP(3)"), ("zoned", "TIMESTAMP_LTZ(3)"), ("number", "BIGINT")]
)
def test_bounds_are_of_the_kind_of_the_time(time: str, bound: str) -> None:
    made = grouped(f"TUMBLE({time}, INTERVAL '1' MINUTE)")
    assert columns_of(made)[1:] == [f"window_start {bound}", f"window_end {bound}"]


def test_flinks_older_spelling_of_bounds_is_the_same() -> None:
    older = grouped(MINUTE, MINUTE.replace("(", "_START(", 1) + " AS window_start, COUNT(*) AS n")
    assert older == grouped(MINUTE, "window_start, COUNT(*) AS n")
    made = grouped(
        "HOP(t, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)",
        "hop_end(t, interval '60' second, interval '2' minute), COUNT(*) AS n",
    )
    assert made.output == ("window_end", "n")


def test_what_is_made_of_bounds_belongs_to_the_group_and_aggregates_may_use_them() -> None:
    made = grouped(MINUTE, "k, MINUTE(window_end) AS m, MAX(window_start) AS latest")
    assert [each.name for each in made.group] == ["k", "window_start", "window_end", "m"]
    assert made.output == ("k", "m", "latest")


def test_the_time_may_come_through_a_derived_table_under_another_name() -> None:
    made = plan(
        f"SELECT COUNT(*) AS n FROM (SELECT t AS at FROM s) GROUP BY {MINUTE.replace('t,', 'at,')}"
    )
    assert made.window is not None
    assert made.window.time == Column("t", timestamp(3))


def test_a_column_of_the_source_goes_before_a_bound_of_the_same_name() -> None:
    columns = {**COLUMNS, "window_start": INT}
    made = plan(f"SELECT MAX(window_start) AS m FROM s GROUP BY {MINUTE}", columns)
    assert made.arguments[0].type == INT
    assert [each.name for each in made.group] == ["window_start", "window_end"]


def test_a_row_may_fail_and_its_group_takes_an_expression() -> None:
    """No shortcut of plain plans applies, because a row without time is rejected."""
    made = grouped(MINUTE)
    assert plan_can_fail(made)
    assert group_indexes(made) is None


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT k, window_start, COUNT(*) AS n FROM s GROUP BY k, {MINUTE}",
        f"SELECT window_end AS a, window_end AS b, SUM(v) AS n FROM s GROUP BY {MINUTE}, k",
        "SELECT HOUR(window_end) AS h, COUNT(*) FILTER (WHERE window_start > t) AS c FROM s "
        "WHERE v > 1 GROUP BY HOP(t, INTERVAL '0.5' SECOND, INTERVAL '1' SECOND)",
        f"SELECT k, window_end FROM s GROUP BY window_end, 1, {MINUTE}",
    ],
)
def test_a_plan_with_windows_reads_back_from_its_own_sql(sql: str) -> None:
    made = plan(sql)
    assert plan(plan_sql(made)) == made


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("SESSION(t, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)", "SESSION has 2 arguments"),
        ("SESSION(v, INTERVAL '5' MINUTE)", "`v` is INT; the time of a window must be TIMESTAMP"),
        ("HOP(t, INTERVAL '5' SECOND, INTERVAL '12' SECOND)", "(12s) must be a multiple of"),
        ("HOP(t, INTERVAL '2' MINUTE, INTERVAL '1' MINUTE)", "must be a multiple"),
        ("HOP(t, INTERVAL '1' SECOND, INTERVAL '1' DAY)", f"at most {WINDOWS_OF_A_ROW_MAX}"),
        ("HOP(t, INTERVAL '1' SECOND)", "HOP has 3 arguments"),
        ("TUMBLE(t)", "TUMBLE has 2 arguments"),
        ("CUMULATE(t, INTERVAL '2' HOUR, INTERVAL '1' HOUR)", "must be a multiple of the step"),
        ("CUMULATE(t, INTERVAL '1' HOUR)", "CUMULATE has 3 arguments"),
        ("TUMBLE(t, INTERVAL '1' DAY, 5)", "a literal interval of one unit"),
        ("TUMBLE(t, 60)", "a literal interval of one unit"),
        ("TUMBLE(t, INTERVAL '1')", "a literal interval of one unit"),
        ("TUMBLE(t, INTERVAL v SECOND)", "a literal interval of one unit"),
        ("TUMBLE(t, INTERVAL '1' DAY TO HOUR)", "a literal interval of one unit"),
        ("TUMBLE(t, INTERVAL '1' MONTH)", "a MONTH has no fixed length"),
        ("TUMBLE(t, INTERVAL '1' FORTNIGHT)", "the unit of an interval is one of DAY, HOUR"),
        ("TUMBLE(t, INTERVAL '-1' SECOND)", "the unit of an interval is one of"),
        ("TUMBLE(t, INTERVAL '0' SECOND)", "above 0"),
        ("TUMBLE(t, INTERVAL '0.0001' SECOND)", "the unit of an interval is one of"),
        ("TUMBLE(t, INTERVAL '0.001' MINUTE)", None),
        (f"TUMBLE(t, INTERVAL '{DURATION_MS_MAX // 86_400_000 + 1}' DAY)", "at most 36600d long"),
        ("TUMBLE(v, INTERVAL '1' SECOND)", "`v` is INT; the time of a window must be TIMESTAMP"),
        ("TUMBLE(clock, INTERVAL '1' SECOND)", "`clock` is TIME; the time of a window must be"),
        ("TUMBLE(fine, INTERVAL '1' SECOND)", "windows over TIMESTAMP(9) are not supported"),
        ("TUMBLE(CAST(k AS TIMESTAMP(3)), INTERVAL '1' SECOND)", "a source column, not an"),
        (f"{MINUTE}, {MINUTE}", "one window"),
        (f"UPPER({MINUTE})", "only possible as a key of GROUP BY"),
    ],
)
def test_a_window_that_is_not_taken_is_refused_with_the_reason(
    window: str, message: str | None
) -> None:
    sql = f"SELECT k, COUNT(*) AS n FROM s GROUP BY k, {window}"
    if message is None:
        assert plan(sql).window
        return
    found = problem(sql)
    assert message in found.message
    assert found.line == 1
    assert found.column >= len("SELECT k, COUNT(*) AS n FROM s GROUP BY k, ")


@pytest.mark.parametrize(
    ("sql", "column", "message"),
    [
        ("SELECT k, window_start FROM s GROUP BY k", 11, "`window_start` needs a window"),
        (f"SELECT COUNT(*) FROM s WHERE window_end > t GROUP BY {MINUTE}", 30, "is not for WHERE"),
        (
            f"SELECT COUNT(*) FROM s WHERE {MINUTE.replace('(', '_END(')} > t GROUP BY {MINUTE}",
            30,
            "TUMBLE_END needs GROUP BY TUMBLE(t, INTERVAL '1' MINUTE)",
        ),
        (
            f"SELECT {MINUTE} AS w, COUNT(*) FROM s GROUP BY {MINUTE}",
            8,
            "only possible as a key of GROUP BY",
        ),
        (
            f"SELECT TUMBLE_START(t, INTERVAL '2' MINUTE) FROM s GROUP BY {MINUTE}",
            8,
            f"the window of this query is {MINUTE}",
        ),
        (f"SELECT t, COUNT(*) FROM s GROUP BY {MINUTE}", 8, "`t` is neither in GROUP BY"),
        ("SELECT COUNT(*) FROM s GROUP BY TUMBLE(x, INTERVAL '1' DAY)", 40, "unknown column `x`"),
    ],
)
def test_a_bound_without_its_window_is_refused_where_it_stands(
    sql: str, column: int, message: str
) -> None:
    found = problem(sql)
    assert message in found.message
    assert (found.line, found.column) == (1, column)
