"""`retally watermarks` keeps to its contract: steps in, watermarks, statuses and pauses out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.core.sql.select import QueryError
from jobs.core.time.custom_generator import Generator, GeneratorFailed
from jobs.offline.steps import StepError
from jobs.offline.watermarks import main, watermarks
from schemas.spec.file import Document, SpecError, validate
from schemas.spec.job import JobSpec

Steps = list[dict[str, Any]]
PERIODIC = {"periodic": True}
DAY = 1_551_169_000_000
EXAMPLE = [
    ("a", 1, 50000),
    ("aa", 33, 64001),
    ("a", 2, 54000),
    ("a", 3, 64002),
    ("b", 5, 100000),
    ("a", 4, 79003),
    ("aa", 44, 79004),
    ("b", 6, 108000),
]
PUNCTUATED = [{"watermark": DAY + at} for at in (47000, 61001, 61002, 97000, 105000)]


def spec(source: Mapping[str, Any] | None = None, **watermark: Any) -> dict[str, Any]:
    return {
        "name": "timed",
        "source": source or {"topic": "t"},
        "columns": {"k": "STRING", "v": "INT", "at": "BIGINT"},
        "query": "SELECT k, SUM(v) FROM t GROUP BY k",
        "watermark": watermark,
    }


def outputs(steps: Iterable[Mapping[str, Any] | str], **watermark: Any) -> list[dict[str, Any]]:
    return list(watermarks(spec(**watermark), steps))


def events(**more: Any) -> list[dict[str, Any]]:
    return [
        {"event": [0, DAY + at], "row": {"k": k, "v": str(v), "at": str(DAY + at)}, **more}
        for k, v, at in EXAMPLE
    ]


# --- the worked examples --------------------------------------------------------------------------


def test_punctuated_on_every_event() -> None:
    steps: Steps = [{"add": 0}, *events(), PERIODIC]
    assert outputs(steps, generator="punctuated", marker="TRUE", delay="3s") == PUNCTUATED


def test_periodic_every_200_ms() -> None:
    steps: Steps = [{"add": 0}]
    for event in events():
        steps += [event, {"clock": 200}, PERIODIC, {"clock": 200}, PERIODIC]
    risen = (50000, 64001, 64002, 100000, 108000)
    assert outputs(steps, exact=True) == [{"watermark": DAY + at} for at in risen]


def test_a_marker_is_a_predicate_over_the_row() -> None:
    marker = "k = 'b' AND CAST(v AS STRING) LIKE '%6'"
    steps: Steps = [{"add": 0}, *events(), {"event": [0, None], "row": {"k": None, "v": None}}]
    found = outputs(steps, generator="punctuated", marker=marker, delay="3s")
    assert found == PUNCTUATED[-1:]
    steps = [{"add": 0}, {"event": [0, 7]}]  # no column is read, so no row is needed
    assert outputs(steps, generator="punctuated", marker="1 + 1 = 2") == [{"watermark": 7}]
    with pytest.raises(StepError, match="step 3: the marker fails: division by zero"):
        outputs(
            ['{"add": 0}', "", '{"event": [0, 5], "row": {"v": "0"}}'],
            generator="punctuated",
            marker="6 / v > 1",
        )


# --- statuses and pauses --------------------------------------------------------------------------


def test_passing_time_emits_as_a_running_job_does() -> None:
    steps: Steps = [{"add": 0}, {"event": [0, 100]}, {"clock": 199}, {"clock": 1}]
    assert outputs(steps) == [{"watermark": 99}]
    assert outputs([*steps, {"clock": 100_000}], idle_after="1s") == [
        {"watermark": 99},
        {"status": "idle"},
    ]
    assert outputs(steps, generator="lag", delay="50ms") == [{"watermark": 150}]


def test_where_steps_say_when_to_emit_passing_time_emits_nothing() -> None:
    steps: Steps = [{"add": 0}, {"event": [0, 100]}, {"clock": 100_000}, PERIODIC]
    assert outputs(steps, generator="lag", delay="1s") == [{"watermark": 99_000}]


def test_steps_that_come_one_by_one_emit_only_where_they_say_so() -> None:
    steps: Steps = [{"add": 0}, {"event": [0, 100]}, {"clock": 100_000}]
    found = watermarks(spec(), iter(steps))
    assert list(found) == []


def test_a_partition_that_is_removed_no_longer_holds_the_others() -> None:
    steps: Steps = [{"add": 0}, {"add": 1}, {"event": [0, 10]}, PERIODIC, {"remove": 1}, PERIODIC]
    assert outputs(steps) == [{"watermark": 9}]
    again: Steps = [*steps, {"add": 1}, {"event": [0, 90]}, PERIODIC, {"event": [1, 40]}, PERIODIC]
    assert outputs(again) == [{"watermark": 9}, {"watermark": 39}]


def test_a_row_that_the_filter_before_the_strategy_removes_moves_nothing() -> None:
    steps: Steps = [{"add": 0}, *events(), PERIODIC]
    marks = {"generator": "punctuated", "marker": "k = k", "delay": "3s"}
    only_b = [{"watermark": DAY + at} for at in (97000, 105000)]
    assert outputs(steps, where="k = 'b'", **marks) == only_b
    assert outputs(steps, where="1 / (v - 6) < 2", **marks) == PUNCTUATED[:-1]  # fails on the last
    with pytest.raises(StepError, match=r"row is missing; watermark.where reads its columns"):
        outputs([{"add": 0}, {"event": [0, 5]}], where="k = 'b'")
    with pytest.raises(SpecError, match="lag follows the clock, so where has no effect"):
        outputs([], where="k = 'b'", generator="lag")


def test_the_watermark_of_two_sources_is_the_lower_one() -> None:
    rows = {"columns": {"k": "STRING"}}
    sources = {
        "orders": {"topic": "o", "watermark": {"delay": "10ms"}, **rows},
        "customers": {"topic": "c", **rows},
    }
    query = "SELECT o.k, COUNT(*) AS n FROM orders o JOIN customers c USING (k) GROUP BY o.k"
    joined = validate(JobSpec, Document("", {"name": "j", "sources": sources, "query": query}))
    added: Steps = [{"add": "o/0"}, {"add": "c/0"}]
    steps: Steps = [*added, {"event": ["o/0", 100]}, PERIODIC, {"event": ["c/0", 95]}, PERIODIC]
    later: Steps = [{"event": ["o/0", 200]}, PERIODIC]
    found = list(watermarks(joined, iter([*steps, *later])))
    assert found == [{"watermark": 89}, {"watermark": 94}]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({}, "step 2: has none of add, remove, event"),
        ({"add": 0}, "partition 0 was added before; remove it first"),
        ({"remove": 1}, "there is no partition 1; add it first"),
        ({"event": [1, 5]}, "there is no partition 1"),
        ({"event": [0]}, r"event is \[0\]; write \[partition, time\]"),
        ({"event": [0, "5"]}, "time is '5'; write a whole number"),
        ({"event": [True, 5]}, "partition is True"),
        ({"event": [0, 5], "row": "k"}, "row is not an object"),
        ({"pause": -1}, "partition is -1; write a whole number, 0 or more"),
        ({"clock": -5}, "clock is -5"),
        ({"clock": 5, "row": {}}, "'row' does not belong to a step with 'clock'"),
        ({"periodic": 1}, "periodic is 1; write true, or leave it out"),
        ('{"add": ', "step 2: Expecting value"),
    ],
)
def test_a_step_that_is_none_is_refused_with_its_number(step: Any, reason: str) -> None:
    with pytest.raises(StepError, match=reason):
        outputs([{"add": 0}, step])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (None, "row is missing; the marker reads its columns"),
        ({"k": "a"}, "row has no v, which the marker reads"),
        ({"v": "x"}, r"'x' is not a valid INT at \$\.row\.v"),
    ],
)
def test_a_row_that_the_marker_cannot_read_is_refused(row: object, reason: str) -> None:
    step = {"event": [0, 5]} | ({} if row is None else {"row": row})
    with pytest.raises(StepError, match=f"step 2: {reason}"):
        outputs([{"add": 0}, step], generator="punctuated", marker="v > 1")


def test_wrong_specs_and_markers_are_refused_before_any_step() -> None:
    with pytest.raises(SpecError, match="idle_after"):
        outputs([], idle_after=0)
    with pytest.raises(QueryError, match="line 1, column 5: unknown column `z`"):
        outputs([], generator="punctuated", marker="1 = z")
    with pytest.raises(QueryError, match="without GROUP BY"):
        outputs([], generator="punctuated", marker="v = 1 GROUP BY k")
    with pytest.raises(SpecError, match="not among the classes"):
        outputs([], generator={"class": "my.marks:Every10"})


# --- generators of the operator's ---------------------------------------------------------------


class EveryTen(Generator):
    """Tens, and back again: nobody may go back."""

    def __init__(self) -> None:
        self.seen = 0  # the base class has no fields that this could break

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        self.seen += time or 0
        return None

    def emit(self, now: int) -> int | None:
        return self.seen // 10 * 10 if now < 300 else 0


def test_a_class_that_the_operator_allows_makes_watermarks_and_none_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"{__name__}:EveryTen"
    monkeypatch.setenv("RETALLY_GENERATORS", f"other:One, {name}")
    steps: Steps = [{"add": 0}, {"event": [0, 38]}, PERIODIC, {"clock": 300}, PERIODIC]
    found = outputs(steps, generator={"class": name})
    assert found == [{"watermark": 30}]
    monkeypatch.setenv("RETALLY_GENERATORS", f"{__name__}:outputs")
    with pytest.raises(SpecError, match="not a subclass"):
        outputs([], generator={"class": f"{__name__}:outputs"})
    monkeypatch.setenv("RETALLY_GENERATORS", "no.such:Thing")
    with pytest.raises(SpecError, match=r"No module named 'no'; install its package"):
        outputs([], generator={"class": "no.such:Thing"})


class Deadlines(Generator):
    """Follows a column of the rows, and doubles the times of marks."""

    seen: int | None = None

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        self.seen = row.get("v", time)
        return None

    def on_mark(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        return None if time is None or self.seen is None else 2 * time + int(self.seen)


def test_a_class_sees_each_row_and_each_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{__name__}:Deadlines"
    monkeypatch.setenv("RETALLY_GENERATORS", name)
    rows = [{"k": "go", "v": "3", "at": None}, {"k": "end", "v": "5", "at": "70"}]
    steps: Steps = [{"add": 0}, *({"event": [0, 10], "row": row} for row in rows)]
    section: dict[str, Any] = {"generator": {"class": name}, "marker": "k = 'end'"}
    assert outputs(steps, **section) == [{"watermark": 25}]
    section["marker"] = {"when": "k = 'end'", "time": "at"}
    assert outputs(steps, **section) == [{"watermark": 145}]


class Broken(Generator):
    """Takes the text of a column for a number."""

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        return row["v"] + 1  # type: ignore[no-any-return]


def test_a_class_that_fails_is_named_with_its_line_and_the_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"{__name__}:Broken"
    monkeypatch.setenv("RETALLY_GENERATORS", name)
    steps: Steps = [{"add": 0}, {"event": [0, 10], "row": {"k": "go", "v": None, "at": None}}]
    with pytest.raises(GeneratorFailed) as failed:
        outputs(steps, generator={"class": name})
    assert f"the generator class {name}: on_event failed: TypeError: " in str(failed.value)
    assert "(test_watermarks.py, line " in str(failed.value)
    assert '"v": null' in str(failed.value)


# --- how it is called -----------------------------------------------------------------------------


def test_the_command_reads_and_prints_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, steps = tmp_path / "spec.json", tmp_path / "steps"
    path.write_text(json.dumps(spec()), encoding="utf-8")
    steps.write_text('{"add": 0}\n\n{"event": [0, 8]}\n{"periodic": true}\n{"x": 1}\n')
    assert main(str(path), str(steps)) == 2
    out, err = capsys.readouterr()
    assert out == '{"watermark": 7}\n'
    assert err.startswith("step 5: has none of")
    assert main(str(path), str(tmp_path / "nothing")) == 2
