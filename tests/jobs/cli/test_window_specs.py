"""Specs with windows: what they must say, and what validate, plan and run say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.commands.run import describe_progress
from jobs.cli.spec_reading import load_job
from jobs.running.progress import JobProgress
from schemas.spec.file import SpecError, load_spec
from tests.support.command.lab import Retally
from tests.support.epoch_rows import epoch_row

TUMBLE = ", TUMBLE(at, INTERVAL '1' MINUTE)"
SPEC = """\
name: windowed
source: {{topic: t}}
columns: {{k: STRING, v: INT, at: TIMESTAMP(3), ms: BIGINT}}
query: SELECT k, SUM(v) AS total FROM s GROUP BY k{group}
"""
COLUMN = "watermark: {time: {column: at}}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spec.yaml"


def refused(path: Path, group: str, rest: str) -> list[str]:
    """The problems of a spec, each from its line on."""
    path.write_text(SPEC.format(group=group) + rest)
    with pytest.raises(SpecError) as caught:
        load_job(path)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


def test_emit_is_changes_and_windows_do_not_close_where_nothing_is_said() -> None:
    spec = load_spec(SPEC.format(group=""))
    assert (spec.emit, spec.allowed_lateness_ms) == ("changes", None)
    assert spec.document()["emit"] == "changes"
    assert "allowed_lateness" not in spec.document()
    said = SPEC.format(group=TUMBLE) + "emit: final\nallowed_lateness: 90s\n"
    assert load_spec(said).allowed_lateness_ms == 90_000
    assert load_spec(load_spec(said).document()) == load_spec(said)


@pytest.mark.parametrize("rest", ["emit: sometimes", "emit: true", "allowed_lateness: -1s"])
def test_other_values_are_refused(path: Path, rest: str) -> None:
    (problem,) = refused(path, TUMBLE, COLUMN + rest + "\n")
    assert problem.startswith("6:")


@pytest.mark.parametrize("rest", ["emit: final", "allowed_lateness: 0s"])
def test_what_belongs_to_windows_is_refused_without_them(path: Path, rest: str) -> None:
    key, _, _ = rest.partition(":")
    (problem,) = refused(path, "", rest + "\n")
    assert problem.startswith(f"5:1: {key}: belongs to a query with windows")


@pytest.mark.parametrize("time", ["es", "ts", "kafka", "ingestion"])
def test_windows_over_the_time_of_messages_are_refused_with_the_reason(
    path: Path, time: str
) -> None:
    (problem,) = refused(path, TUMBLE, f"watermark:\n  time: {time}\n")
    assert problem.startswith(f"6:3: watermark.time: {time} is the time of a message")
    assert "a retraction comes in another message" in problem
    assert problem.endswith("write time: {column: at}")


def test_a_watermark_has_to_follow_the_time_of_the_windows(path: Path) -> None:
    assert "watermark.time: es is the time of a message" in refused(path, TUMBLE, "")[0]
    (problem,) = refused(path, TUMBLE, "watermark: {time: {column: ms}}\n")
    assert problem.startswith("5:20: watermark.time.column: a watermark of `ms` does not show")
    path.write_text(SPEC.format(group=TUMBLE) + COLUMN)
    _, plans = load_job(path)
    assert plans[""].window is not None


def test_groups_of_windows_that_close_do_not_expire_as_well(path: Path) -> None:
    rest = COLUMN + "state: {ttl: 1h}\n"
    (problem,) = refused(path, TUMBLE, rest + "emit: final\n")
    assert problem.startswith("6:9: state.ttl: the groups of these windows end when")
    path.write_text(SPEC.format(group=TUMBLE) + rest)
    load_job(path)


def test_a_mistake_in_a_window_stands_where_it_stands_in_the_file(path: Path) -> None:
    (problem,) = refused(path, ", SESSION(at)", COLUMN)
    assert problem.startswith("4:53: query: SESSION has 2 arguments")


def test_the_plan_shows_the_window_and_what_becomes_of_it(retally: Retally, path: Path) -> None:
    hop = "HOP(at, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)"
    path.write_text(SPEC.format(group=f", {hop}") + COLUMN + "emit: final\nallowed_lateness: 10s\n")
    code, out, _ = retally("plan", str(path), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["window"] == {
        "window": hop,
        "time": "at",
        "size": "5m",
        "slide": "1m",
        "of_a_row": 5,
        "emit": "final",
        "allowed_lateness": "10s",
    }
    assert document["hidden"] == ["window_start", "window_end"]
    assert [line.strip(" +-") for line in document["topology"] if "Window" in line] == [
        "WindowAssigner(window=[HOP], time=[at], size=[5m], slide=[1m], emit=[final], "
        "allowedLateness=[10s])"
    ]
    path.write_text(SPEC.format(group=""))
    assert json.loads(retally("plan", str(path), "--json")[1])["window"] is None


@pytest.mark.parametrize("rest", ["emit: final", "allowed_lateness: 0s"])
def test_windows_that_close_do_not_go_with_last_images(path: Path, rest: str) -> None:
    (problem,) = refused(path, TUMBLE, COLUMN + f"primary_key: [k]\ndedupe: pk\n{rest}\n")
    assert problem.startswith("7:")
    assert ": dedupe: windows that close" in problem


def test_validate_notes_that_final_windows_wait_for_empty_partitions(
    retally: Retally, path: Path
) -> None:
    path.write_text(SPEC.format(group=TUMBLE) + COLUMN + "emit: final\n")
    code, out, err = retally("validate", str(path))
    assert (code, out) == (0, "ok\n")
    assert err.startswith(
        f"{path}:6:1: emit: windows wait for every partition, so one that is empty"
    )
    code, out, _ = retally("validate", str(path), "--json")
    (note,) = json.loads(out)["notes"]
    assert (json.loads(out)["ok"], note["path"], note["line"]) == (True, "emit", 6)


@pytest.mark.parametrize(
    ("watermark", "rest"),
    [
        ("idle_after: 30s", "emit: final"),
        ("idle_after: never", "emit: final"),
        ("generator: lag", "emit: final"),  # moves on without rows
        ("delay: 1s", "emit: changes"),
    ],
)
def test_validate_notes_nothing_where_idleness_is_decided_or_does_not_matter(
    retally: Retally, path: Path, watermark: str, rest: str
) -> None:
    section = f"watermark: {{time: {{column: at}}, {watermark}}}\n"
    path.write_text(SPEC.format(group=TUMBLE) + section + rest + "\n")
    assert retally("validate", str(path)) == (0, "ok\n", "")


def test_the_line_of_a_job_names_the_window_that_waits_and_the_partition_it_waits_for() -> None:
    held = ["t partition 1, empty, never idle (there is no idle_after)"]

    def line(**agenda: Any) -> str:
        row = epoch_row(3, watermarks={"held_by": held, "agenda": agenda})
        return describe_progress("items", JobProgress(newest=row), None)

    waits = "window up to 2026-01-01T12:00:59.999Z waits for t partition 1, empty"
    assert waits in line(emits="final", timers={"event": 1_767_268_859_999})
    assert "watermark waits for t partition 1, empty" in line(emits="final", timers={})
    assert "watermark waits for" in line(emits="changes", timers={"event": 5})


def test_the_line_of_a_job_counts_what_took_the_slow_way() -> None:
    groups = {"groups_touched": 50, "groups_in_arrays": 50}
    row = epoch_row(3, counters={"read": 9_000, "scanned": 7_000, **groups})
    counts = row.counts
    progress = JobProgress(row, counts.read, 0, counts.messages_one_by_one)
    assert ", 2,000 decoded one by one" in describe_progress("items", progress, None)
    assert "one by one" not in describe_progress("items", JobProgress(newest=row), None)


def test_sessions_are_emitted_as_they_change_or_once(path: Path) -> None:
    session = ", SESSION(at, INTERVAL '1' MINUTE)"
    event_clock = "minibatch: {clock: event, interval: 10s}\n"
    (problem,) = refused(path, session, COLUMN + event_clock)
    assert "use emit: final" in problem
    (problem,) = refused(path, session, COLUMN + "state: {ttl: 1h}\n")
    assert "use allowed_lateness" in problem
    path.write_text(SPEC.format(group=session) + COLUMN)
    load_job(path)


@pytest.mark.parametrize(
    "select", ["CAST(window_end AS DATE) AS d", "MAX(window_end) AS m", "MIN(window_start) AS m"]
)
def test_no_expression_is_over_the_bounds_of_a_session(path: Path, select: str) -> None:
    spec = SPEC.format(group=", SESSION(at, INTERVAL '1' MINUTE)")
    spec = spec.replace("SUM(v) AS total", f"SUM(v) AS total, {select}")
    assert select in spec
    path.write_text(spec + COLUMN)
    with pytest.raises(SpecError, match="the bounds of a session change while it grows"):
        load_job(path)
    path.write_text(spec.replace("SESSION", "TUMBLE") + COLUMN)
    load_job(path)
