"""Windows in replay: results as they change or once the watermark has passed; late rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import duckdb
import pytest

from jobs.core.time.bundle_clocks import WATERMARK_MAX
from jobs.offline.replay import replay
from schemas.spec.file import SpecError

END = {"watermark": WATERMARK_MAX}
SECOND = "TUMBLE(t, INTERVAL '1' SECOND)"
HOP = "HOP(t, INTERVAL '1' SECOND, INTERVAL '2' SECOND)"
FINAL = {"emit": "final"}


def outputs(
    steps: Iterable[Mapping[str, Any] | str],
    window: str = SECOND,
    select: str = "k, SUM(v) AS s, window_start AS w",
    **sections: Any,
) -> list[dict[str, Any]]:
    spec = {
        "name": "windowed",
        "source": {"topic": "t"},
        "columns": {"k": "STRING", "v": "INT", "t": "BIGINT"},
        "query": f"SELECT {select} FROM s GROUP BY k, {window}",
        "watermark": {"time": {"column": "t"}},
        **sections,
    }
    return list(replay(spec, steps))


def row(op: str, k: str, v: int, t: int | None, **place: int) -> dict[str, Any]:
    values = {"k": k, "v": str(v), "t": None if t is None else str(t)}
    return {"op": op, "row": values, **place}


def at(watermark: int) -> dict[str, Any]:
    return {"watermark": watermark}


def lines(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """What came out, in short: rows as words, the other objects by their key."""
    shown = []
    for each in found:
        if "op" in each:
            shown.append(" ".join(map(str, [each["op"], *each["row"].values()])))
        elif "late" in each:
            late = each["late"]
            values = map(str, late["row"].values())
            shown.append(" ".join(["late", f"{late['weight']:+}", *values]))
        elif each != END and "flushed" not in each:
            shown.append(" ".join(f"{key} {value}" for key, value in each.items()))
    return shown


# --- emit: changes ----------------------------------------------------------------------------


def test_changes_are_a_group_by_of_the_window() -> None:
    steps = [row("+I", "a", 1, 0), row("+I", "a", 2, 999), row("+I", "a", 4, 1_000), at(5_000)]
    steps += [row("-D", "a", 2, 999), row("+I", "a", 8, -1), row("-D", "a", 4, 1_000)]
    assert lines(outputs(steps)) == [
        "+I a 3 0",
        "+I a 4 1000",
        "watermark 5000",
        "+I a 8 -1000",
        "-U a 3 0",
        "+U a 1 0",
        "-D a 4 1000",
    ]


def test_windows_that_are_not_selected_are_part_of_the_key_all_the_same() -> None:
    steps = [row("+I", "a", 1, 0), row("+I", "a", 2, 1_000)]
    found = lines(outputs(steps, select="k, SUM(v) AS s"))
    assert found == ["+I a 1", "+I a 2", "watermark 999"]


def test_a_hopping_row_counts_in_each_of_its_windows_and_leaves_them_all() -> None:
    steps = [row("+I", "a", 1, 500), row("+I", "a", 2, 1_500), {"flush": True}]
    steps += [row("-U", "a", 1, 500), row("+U", "a", 1, 2_500)]
    found = outputs(steps, HOP)
    assert lines(found) == [
        "+I a 1 -1000",
        "+I a 3 0",
        "+I a 2 1000",
        "watermark 1499",
        "-D a 1 -1000",
        "-U a 3 0",
        "+U a 2 0",
        "-U a 2 1000",
        "+U a 3 1000",
        "+I a 1 2000",
        "watermark 2499",
    ]
    assert [each["flushed"] for each in found if "flushed" in each] == [2, 2]


DUCKDB = {  # the start and the end of each window of a time t
    "TUMBLE(t, INTERVAL '7' SECOND, INTERVAL '2' SECOND)": (
        "SELECT {bucket} AS w, w + 7000 AS e",
        "7",
        "2",
    ),
    "HOP(t, INTERVAL '2' SECOND, INTERVAL '6' SECOND, INTERVAL '-1' SECOND)": (
        "SELECT {bucket} - i * 2000 AS w, w + 6000 AS e FROM range(3) r(i)",
        "2",
        "1",
    ),
    "CUMULATE(t, INTERVAL '2' SECOND, INTERVAL '6' SECOND, INTERVAL '1' SECOND)": (
        "SELECT {bucket} AS w, w + i * 2000 AS e FROM range(1, 4) r(i) WHERE e > t",
        "6",
        "1",
    ),
}


@pytest.mark.parametrize("window", DUCKDB)
def test_windows_with_an_offset_are_those_of_duckdb(window: str) -> None:
    """DuckDB knows where a bucket with an origin begins; the rest is the definition of windows."""
    windows, size, origin = DUCKDB[window]
    bucket = (
        f"epoch_ms(time_bucket(INTERVAL '{size} seconds', make_timestamp_ms(t), "
        f"TIMESTAMP '1970-01-01 00:00:0{origin}'))"
    )
    random, live, steps = Random(window), list[tuple[str, int, int]](), list[dict[str, Any]]()
    for _ in range(120):
        if live and random.random() < 0.4:
            steps.append(row("-D", *live.pop(random.randrange(len(live)))))
        else:
            live.append((random.choice("ab"), random.randint(0, 9), random.randint(-9_000, 30_000)))
            steps.append(row("+I", *live[-1]))
        if random.random() < 0.1:
            steps.append({"flush": True})
    select = "k, window_start AS w, window_end AS e, SUM(v) AS s, COUNT(*) AS n"
    left: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for each in outputs(steps, window, select):
        if each.get("op") in ("+I", "+U"):
            k, w, e, *results = each["row"].values()
            left[k, w, e] = tuple(results)
        elif each.get("op") == "-D":
            del left[tuple(each["row"].values())[:3]]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE live (k TEXT, v INT, t BIGINT)")
    connection.executemany("INSERT INTO live VALUES (?, ?, ?)", live)
    asked = connection.execute(
        f"SELECT k, w, e, SUM(v), COUNT(*) FROM live, LATERAL ({windows.format(bucket=bucket)}) "
        "GROUP BY ALL"
    )
    assert left == {(k, w, e): (s, n) for k, w, e, s, n in asked.fetchall()}
    assert len(left) > 5


def test_cumulated_windows_end_one_step_after_the_other() -> None:
    steps = [row("+I", "a", 1, 500), at(999), row("+I", "a", 2, 1_500), at(1_999)]
    steps += [row("+I", "a", 5, 100), at(2_999)]  # late for two of its three windows
    window, select = "CUMULATE(t, INTERVAL '1' SECOND, INTERVAL '3' SECOND)", "k, SUM(v) AS s"
    found = lines(outputs(steps, window, f"{select}, window_end AS e", **FINAL))
    assert found == [
        "+I a 1 1000",
        "watermark 999",
        "+I a 3 2000",
        "watermark 1999",
        "+I a 8 3000",
        "watermark 2999",
    ]


def test_a_hopping_row_fills_a_bundle_once() -> None:
    steps = [row("+I", "a", 1, 0), row("+I", "a", 1, 0), row("+I", "a", 1, 0)]
    found = outputs(steps, HOP, minibatch={"size": 2})
    assert [each["flushed"] for each in found if "flushed" in each] == [2, 1]


def test_bounds_are_shown_as_the_type_of_the_time() -> None:
    moment = {"k": "a", "v": "1", "t": "1969-12-31 23:59:59.9994"}
    for kind, start in (("TIMESTAMP(6)", "1969-12-31 23:59:59"), ("TIMESTAMP_LTZ(6)", None)):
        columns = {"k": "STRING", "v": "INT", "t": kind}
        value = {**moment, "t": moment["t"] + ("Z" if start is None else "")}
        (first, *_) = outputs([{"op": "+I", "row": value}], columns=columns)
        assert first["row"]["w"] == (start or "1969-12-31 23:59:59Z")


def test_a_message_with_a_row_that_has_no_window_is_rejected_whole() -> None:
    message = '{"type": "INSERT", "data": [{"k":"a","v":"1","t":"0"},{"k":"a","v":"2","t":null}]}'
    steps = [row("+I", "a", 4, 0), {"message": message, "partition": 2, "offset": 7}]
    steps.append(row("+I", "b", 1, 2**62))
    rejected, too_far, *rest = outputs(steps)
    reason = "TUMBLE(t, INTERVAL '1' SECOND): the time is NULL"
    assert too_far["rejected"]["reason"].startswith(reason) is (too_far["rejected"]["offset"] == 7)
    by_offset = {each["rejected"]["offset"]: each["rejected"] for each in (rejected, too_far)}
    assert by_offset[7]["reason"] == f"{reason}; the row is k = 'a', v = 2, t = None"
    assert by_offset[7]["partition"] == 2
    assert "the window is not within the years 1 to 9999" in by_offset[1]["reason"]
    # The message was read, so that its partition has a time.
    assert lines(rest) == ["+I a 4 0", "watermark -1"]


def test_watermarks_mean_nothing_to_windows_that_do_not_close() -> None:
    steps = [at(9_000), row("+I", "a", 1, 0)]
    assert lines(outputs(steps)) == ["watermark 9000", "+I a 1 0"]


# --- emit: final ------------------------------------------------------------------------------


def test_a_window_is_emitted_once_when_the_watermark_reaches_its_last_millisecond() -> None:
    steps = [row("+I", "a", 1, 0), row("+I", "b", 2, 10), at(998), row("+I", "a", 4, 999), at(999)]
    assert lines(outputs(steps, **FINAL)) == [
        "watermark 998",
        "+I a 5 0",
        "+I b 2 0",
        "watermark 999",
    ]


def test_a_bundle_of_the_event_clock_waits_and_so_do_its_windows() -> None:
    steps = [row("+I", "a", 1, 0), at(1_500), row("+I", "a", 2, 900), at(9_999)]
    clock = {"clock": "event", "interval": "10s"}
    assert lines(outputs(steps, minibatch=clock, **FINAL)) == ["+I a 3 0", "watermark 9999"]


# --- late -------------------------------------------------------------------------------------


def test_a_row_of_a_closed_window_is_late_and_changes_nothing() -> None:
    steps = [
        row("+I", "a", 1, 0),
        at(999),
        row("+I", "a", 2, 5, offset=8),
        row("+I", "a", 4, 1_000),
    ]
    found = outputs(steps, **FINAL)
    assert lines(found) == ["+I a 1 0", "watermark 999", "late +1 a 2 5", "+I a 4 1000"]
    (late,) = [each["late"] for each in found if "late" in each]
    assert late == {"row": {"k": "a", "v": 2, "t": 5}, "weight": 1, "partition": 0, "offset": 8}
    assert [each["flushed"] for each in found if "flushed" in each] == [1, 1]


def test_a_late_retraction_goes_although_its_update_does_not() -> None:
    steps = [row("+I", "a", 1, 0), at(999), row("-U", "a", 1, 0), row("+U", "a", 1, 1_000)]
    expected = ["+I a 1 0", "watermark 999", "late -1 a 1 0", "+I a 1 1000"]
    assert lines(outputs(steps, **FINAL)) == expected


def test_late_rows_do_not_fill_a_bundle() -> None:
    steps = [at(999), row("+I", "a", 1, 0), row("+I", "a", 1, 0), row("+I", "a", 2, 1_000)]
    found = outputs(steps, minibatch={"size": 2}, **FINAL)
    assert [each["flushed"] for each in found if "flushed" in each] == [1]


def test_a_row_that_is_late_for_some_of_its_windows_counts_in_the_others() -> None:
    steps = [at(999), row("+I", "a", 1, 0), at(1_999), row("+I", "a", 2, 0)]
    assert lines(outputs(steps, HOP, **FINAL)) == [
        "watermark 999",
        "+I a 1 0",
        "watermark 1999",
        "late +1 a 2 0",
    ]


def test_allowed_lateness_keeps_a_window_open_and_its_result_changes() -> None:
    steps = [row("+I", "a", 1, 0), at(999), row("+I", "a", 2, 5), row("+I", "b", 3, 5), at(1_498)]
    steps += [row("-D", "b", 3, 5), at(1_499), row("+I", "a", 4, 0)]
    found = lines(outputs(steps, allowed_lateness="500ms", **FINAL))
    assert found == [
        "+I a 1 0",
        "watermark 999",
        "-U a 1 0",
        "+U a 3 0",
        "+I b 3 0",
        "watermark 1498",
        "-D b 3 0",
        "watermark 1499",
        "late +1 a 4 0",
    ]


# --- with row expressions ---------------------------------------------------------------------


def test_row_expressions_and_windows_go_together() -> None:
    steps = [row("+I", "a", 1, 500), row("+I", "b", 0, None), row("+I", "c", 2, None), at(2_000)]
    query = (
        "SELECT UPPER(k) AS u, SUM(v * 2) AS s, MAX(window_end - v) AS m "
        f"FROM s WHERE v > 0 GROUP BY UPPER(k), {HOP}"
    )
    found = outputs(steps, query=query, **FINAL)
    assert "the time is NULL" in found[0]["rejected"]["reason"]
    assert lines(found[1:]) == ["+I A 2 999", "+I A 2 1999", "watermark 2000"]


# --- the spec ---------------------------------------------------------------------------------


def test_a_spec_whose_watermark_is_not_that_of_its_windows_is_refused() -> None:
    with pytest.raises(SpecError, match=r"watermark\.time: es is the time of a message"):
        outputs([], watermark={})


# --- in general -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("window", [SECOND, HOP])
def test_final_results_are_the_query_over_the_rows_that_are_left(window: str, seed: int) -> None:
    """The final results are those of a reader of the whole input, each window emitted once.

    Rows come and go in any order and in any bundles; none of them is late.
    """
    random = Random(f"{window} {seed}")
    live: list[tuple[str, int, int]] = []
    steps: list[dict[str, Any]] = []
    watermark = -3_000
    for _ in range(60):
        turn = random.random()
        if turn < 0.15:
            watermark += random.randint(0, 900)
            steps.append(at(watermark))
        elif turn < 0.25:
            steps.append({"flush": True})
        else:
            open_rows = [each for each in live if each[2] > watermark]
            if turn < 0.5 and open_rows:
                gone = random.choice(open_rows)
                live.remove(gone)
                steps.append(row("-D", *gone))
            else:
                new = (
                    random.choice("ab"),
                    random.randint(1, 5),
                    watermark + random.randint(1, 4_000),
                )
                live.append(new)
                steps.append(row("+I", *new))
    size, slide = (2_000, 1_000) if window == HOP else (1_000, 1_000)
    expected: dict[tuple[str, int], int] = {}
    for k, v, t in live:
        for start in range(t - t % slide + slide - size, t + 1, slide):
            expected[k, start] = expected.get((k, start), 0) + v
    found = outputs(steps, window, minibatch={"size": random.randint(1, 9)}, **FINAL)
    emitted = [each["row"] for each in found if each.get("op") == "+I"]
    assert not [each for each in found if "late" in each]
    assert len(emitted) == len([each for each in found if "op" in each])
    assert {(each["k"], each["w"]): each["s"] for each in emitted} == expected
    ends = [each["w"] for each in emitted]
    assert ends == sorted(ends)


def test_a_step_gives_the_watermark_of_the_job_that_writes_a_topic() -> None:
    spec = {
        "name": "second",
        "source": {"topic": "first", "format": "changelog-json"},
        "columns": {"k": "STRING", "t": "BIGINT"},
        "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k, TUMBLE(t, INTERVAL '10' SECOND)",
        "emit": "final",
        "watermark": {"from": "progress", "delay": "1s"},
    }
    row = {"op": "+I", "row": {"k": "a", "t": "5000"}}
    steps: list[dict[str, Any]] = [
        row,
        {"watermark": 10_998, "topic": "first"},
        {"watermark": 10_999, "topic": "first"},
    ]
    assert list(replay(spec, steps)) == [
        {"flushed": 1},
        at(9_998),
        {"op": "+I", "row": {"k": "a", "n": 1}},
        at(9_999),
        at(9_223_372_036_854_775_807),
    ]
