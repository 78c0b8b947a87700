"""A decode task evaluates WHERE and expressions, and refuses the messages on whose rows they fail.

messages ──► parcels for the fold tasks, a report ──► a failing message: its bytes, quarantined
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from jobs.core.homes import ONE_TASK
from jobs.core.job.job_plan import plan_of
from jobs.core.job.views import plans_of, reading_plan
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.bucket import bucket_of_group
from jobs.core.rows.consolidate import WeightedRows
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import Records
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.late_rows import LATE, deadline_of, read_late
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import BUCKET, parcelling_of, unpack_parcels
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks import decode
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.decode_inputs import SourceRules, ViewInputs
from jobs.edge.tasks.range_report import RangeReport
from schemas.spec.file import load_spec
from schemas.types.arrow_values import from_arrow, to_arrow
from tests.support.jobs.parcels import sort_parcels

COLUMNS = {"id": "BIGINT", "sort": "STRING", "cnt": "INT", "at": "TIMESTAMP(3)"}
RANGE = OffsetRange("items", 0, 0, 4)


def message(offset: int, sort: str | None, cnt: int | None, at: str | None = None) -> Message:
    data = {"id": str(offset), "sort": sort, "cnt": None if cnt is None else str(cnt), "at": at}
    document = {
        "data": [data],
        "database": "shop",
        "table": "items",
        "type": "INSERT",
        "isDdl": False,
        "es": 1_700_000_000_000,
        "ts": 1_700_000_000_001,
        "id": offset,
    }
    value = msgspec.json.encode(document)
    stamp = (TIMESTAMP_CREATE_TIME, 1_700_000_000_002)
    return Message(topic="items", partition=0, offset=offset, value=value, timestamp=stamp)


MESSAGES = [
    message(0, "a", 6, "2026-01-01 00:00:07"),
    message(1, "b", 0, "2026-01-01 00:00:17"),
    message(2, "a", 3, "2026-01-01 00:00:07"),
    message(3, None, None),
]


class Topic:
    """The messages of the only partition; `again` has the ranges that were read a second time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.again: list[tuple[int, int]] = []
        self.compacted = False  # before it is read a second time
        monkeypatch.setattr(decode, "read_ranges", self.read_ranges)

    def read_ranges(self, _: Any, ranges: Sequence[OffsetRange]) -> Iterator[Any]:
        for planned in ranges:
            if planned != RANGE:
                self.again.append((planned.start, planned.end))
                if self.compacted:
                    return
            yield planned, Records.of(MESSAGES[planned.start : planned.end])


def spec_of(**more: Any) -> dict[str, Any]:
    source = {"topic": "items", "database": "shop", "table": "items"}
    return {"name": "items", "source": source, "columns": COLUMNS, **more}


def task_of(root: Path, document: dict[str, Any]) -> DecodeTask:
    spec = load_spec(document)
    plans = plans_of(spec)
    plan = reading_plan(plans)
    task = DecodeTask(
        plan, SourceRules.of(spec, plan), {}, (RANGE,), root, EpochAttempt(1, "uuid"), key_buckets=8
    )
    names = [column.name for column in plan.used]
    views = [
        ViewInputs(
            number,
            name,
            own,
            root / name if name else root,
            tuple(names.index(column.name) for column in own.used),
            deadline=None,
            parcelling=replace(parcelling_of(own, 8, ONE_TASK), reader=number),
        )
        for number, (name, own) in enumerate(plans.items())
    ]
    return replace(task, views=tuple(views))


def run(task: DecodeTask) -> tuple[RangeReport, dict[int, list[tuple[Any, ...]]]]:
    """The report of the range, and the rows of each view."""
    sent = sort_parcels(task.decode_ranges([0]))
    (report,) = sent.pop(None)
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for view, parcels in sent.items():
        assert view is not None
        found = unpack_parcels(parcels)
        names = [name for name in found.column_names if name[0] in "ga" or name == "__weight"]
        listed = zip(*(found[name].to_pylist() for name in names), strict=True)
        rows[view] = sorted(listed, key=repr)
    return msgspec.json.decode(report.content, type=RangeReport), rows


def refused(root: Path, report: RangeReport) -> list[tuple[int, str]]:
    found = [pq.ParquetFile(root / file.path).read().to_pylist() for file in report.quarantine]
    return [(row["offset"], row["reason"]) for file in found for row in file]


def test_where_and_expressions_are_evaluated_where_rows_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(monkeypatch)
    query = "SELECT CASE sort WHEN 'a' THEN 1 END AS k, SUM(cnt) AS s FROM items WHERE cnt > 2"
    report, rows = run(task_of(tmp_path, spec_of(query=query + " GROUP BY 1")))
    assert rows == {0: [(1, 3, 1), (1, 6, 1)]}
    assert (report.decoded, report.shipped, report.quarantined, topic.again) == (4, {0: 4}, 0, [])


def test_rows_come_once_for_each_window_and_grouping_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Topic(monkeypatch)
    hop = "HOP(at, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
    query = f"SELECT window_end, sort, COUNT(*) AS n FROM items WHERE cnt < 3 GROUP BY {hop}, sort"
    report, rows = run(task_of(tmp_path, spec_of(query=query)))
    assert [(str(row[1])[17:19], row[2]) for row in rows[0]] == [("20", "b"), ("25", "b")]
    query = "SELECT sort, COUNT(*) AS n FROM items WHERE cnt < 3 GROUP BY ROLLUP(sort)"
    report, rows = run(task_of(tmp_path, spec_of(query=query)))
    assert {row[0] for row in rows[0]} == {"b", None}
    assert report.shipped == {0: 4}


def test_a_message_on_whose_row_an_expression_fails_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(monkeypatch)
    query = "SELECT sort, SUM(60 / cnt) AS s FROM items GROUP BY sort"
    report, rows = run(task_of(tmp_path, spec_of(query=query)))
    assert rows == {0: [("a", 10, 1), ("a", 20, 1), (None, None, 1)]}
    ((offset, reason),) = refused(tmp_path, report)
    assert offset == 1
    assert reason == "60 / cnt: division by zero; the row is sort = 'b', cnt = 0"
    assert (report.decoded, report.rows, report.shipped, report.quarantined) == (3, 3, {0: 3}, 1)
    assert topic.again == [(1, 2)]


def test_a_row_that_where_removes_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(monkeypatch)
    query = "SELECT sort, SUM(60 / cnt) AS s FROM items WHERE cnt <> 0 GROUP BY sort"
    report, rows = run(task_of(tmp_path, spec_of(query=query)))
    assert rows == {0: [("a", 10, 1), ("a", 20, 1)]}
    assert (report.quarantined, topic.again) == (0, [])


def test_a_view_refuses_a_message_that_another_view_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(monkeypatch)
    views = {
        "parts": {"query": "SELECT sort, SUM(60 / cnt) AS s FROM items GROUP BY sort"},
        "some": {"query": "SELECT COUNT(*) AS n FROM items WHERE sort = 'b'"},
    }
    report, rows = run(task_of(tmp_path, spec_of(views=views)))
    assert rows == {0: [("a", 10, 1), ("a", 20, 1), (None, None, 1)], 1: [(1,)]}
    assert (report.decoded, report.quarantined, topic.again) == (4, 0, [(1, 2)])
    ((view, count, first),) = [(each.view, each.count, each.first) for each in report.refused]
    assert (view, count) == (0, 1)
    assert first.startswith("items/0 offset 1: view parts: 60 / cnt: division by zero")


def test_a_refused_message_that_compaction_has_removed_meanwhile_is_not_lost_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Topic(monkeypatch).compacted = True
    query = "SELECT sort, SUM(60 / cnt) AS s FROM items GROUP BY sort"
    report, rows = run(task_of(tmp_path, spec_of(query=query)))
    assert report.silent and "compaction has removed offset 1 " in (report.unreadable or "")
    assert not any(rows.values()), "the epoch is tried again"


def test_rows_without_a_window_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Topic(monkeypatch)
    window = "TUMBLE(at, INTERVAL '10' SECOND)"
    query = f"SELECT window_start, COUNT(*) AS n FROM items GROUP BY {window}"
    report, rows = run(task_of(tmp_path, spec_of(query=query)))
    ((offset, reason),) = refused(tmp_path, report)
    assert offset == 3
    assert "the time is NULL" in reason
    assert [row[-1] for row in rows[0]] == [2, 1]


def test_a_late_row_comes_alone_once_for_each_window_with_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Topic(monkeypatch)
    window = "TUMBLE(at, INTERVAL '10' SECOND)"
    document = spec_of(
        query=f"SELECT window_end, UPPER(sort) AS k, COUNT(*) AS n FROM items GROUP BY {window}, 2",
        watermark={"time": {"column": "at"}, "idle_after": "never"},
        emit="final",
    )
    task = task_of(tmp_path, document)
    closing = closing_of(load_spec(document), task.plan)
    watermark = 1_767_225_611_000  # 00:00:11: the first window has closed
    (view,) = task.views
    view = replace(
        view,
        deadline=deadline_of(closing, watermark),
        parcelling=parcelling_of(task.plan, 8, ONE_TASK, closes=True),
    )
    task = replace(task, views=(view,))
    rows = unpack_parcels(sort_parcels(task.decode_ranges([0]))[0])
    late = [None if row is None else read_late(row).offset for row in rows[LATE].to_pylist()]
    assert sorted(zip(rows["g2"].to_pylist(), late, strict=True), key=repr) == [
        ("A", 0),
        ("A", 2),
        ("B", None),
    ]


def test_sessions_of_one_key_share_a_bucket() -> None:
    window = "SESSION(at, INTERVAL '10' SECOND)"
    query = f"SELECT window_start, sort, COUNT(*) AS n FROM items GROUP BY {window}, sort"
    plan = plan_of(load_spec(spec_of(query=query)))
    values: dict[str, list[Any]] = {"sort": ["a", "a"], "at": [0, 10**9]}
    columns = [to_arrow(values[column.name], column.type) for column in plan.used]
    numbers = np.arange(2)
    weighted = WeightedRows(numbers, numbers, np.ones(2, np.int64))
    found = evaluate_rows(plan, RangeRows(columns, weighted.weights), weighted)
    sent = parcelling_of(plan, 8, ONE_TASK).parcels(found.rows, found.weighted)
    rows = unpack_parcels(sent)
    group = [from_arrow(rows[f"g{i}"], each.type) for i, each in enumerate(plan.group)]
    first, second = zip(*group, strict=True)
    assert first != second
    assert set(rows[BUCKET].to_pylist()) == {bucket_of_group(plan, first, 8)}


def test_an_image_that_fails_is_refused_although_a_later_one_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused must not depend on what comes in the same epoch."""
    monkeypatch.setattr(f"{__name__}.MESSAGES", [message(0, "a", 0), message(1, "a", 3)])
    topic = Topic(monkeypatch)
    query = "SELECT SUM(60 / cnt) AS s FROM items"
    document = spec_of(query=query, primary_key=["sort"], dedupe="pk")
    task = task_of(tmp_path, document)
    sent = sort_parcels(task.decode_ranges([0]))
    images = unpack_parcels(sent[0])
    assert sorted(zip(*(images[name].to_pylist() for name in ("sort", "cnt")), strict=True)) == [
        ("a", 3)
    ]
    report = msgspec.json.decode(sent[None][0].content, type=RangeReport)
    assert [offset for offset, _ in refused(tmp_path, report)] == [0]
    assert topic.again == [(0, 1)]
