"""Tasks and the job's time say of any rows what the replay of the same rows says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.job.job_plan import plan_of
from jobs.core.job.window_rules import closing_of
from jobs.core.time.job_time import JobTime
from jobs.edge.kafka.ranges import OffsetRange
from jobs.edge.rows.late_rows import deadline_of
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.range_reading import RangeReader
from jobs.offline.replay import replay
from jobs.running.source_rules import make_source_rules
from schemas.spec.file import load_spec
from tests.support.examples import examples

PARTITIONS = 2
MARKS = {"when": "k = 'mark'", "time": "upto"}
SECTIONS: list[dict[str, Any]] = [
    {"delay": "3ms"},
    {"delay": "3ms", "within_epoch": True},
    {"generator": "monotonous", "within_epoch": True},
    {"generator": "punctuated", "marker": "k = 'mark'", "delay": "2ms"},
    {"generator": "punctuated", "marker": MARKS},
    {"time": {"expression": "COALESCE(t, upto * 2)"}, "within_epoch": True},
    {"time": {"expression": "CAST(text AS BIGINT)"}},
    {"time": {"expression": "100 / (t - 20)"}, "within_epoch": True},
]

rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "mark"]),
        "t": st.integers(0, 60).map(str),
        "upto": st.integers(0, 60).map(str) | st.none(),
        "text": st.sampled_from(["7", "30", "55", "no number"]),
    }
)
messages = st.tuples(st.integers(0, PARTITIONS - 1), rows, st.sampled_from(["INSERT", "DELETE"]))
epochs = st.lists(st.lists(messages, max_size=8), min_size=1, max_size=5)


def spec_of(section: dict[str, Any], lateness: str) -> dict[str, Any]:
    return {
        "name": "timed",
        "source": {"topic": "t"},
        "columns": {"k": "STRING", "t": "BIGINT", "upto": "BIGINT", "text": "STRING"},
        "query": "SELECT k, window_start, COUNT(*) AS n FROM t "
        "GROUP BY k, TUMBLE(t, INTERVAL '0.010' SECOND)",
        "watermark": {"time": {"column": "t"}, **section},
        "minibatch": {"size": 1_000_000},
        "emit": "final",
        "allowed_lateness": lateness,
    }


def value_of(row: dict[str, Any], kind: str) -> str:
    return json.dumps({"type": kind, "data": [row]})


@examples(150)
@given(st.sampled_from(SECTIONS), st.sampled_from(["0s", "4ms"]), epochs)
def test_watermarks_and_late_rows_are_those_of_the_replay(
    section: dict[str, Any], lateness: str, history: list[list[Any]]
) -> None:
    document = spec_of(section, lateness)
    steps: list[dict[str, Any]] = []
    partitions = {partition for epoch in history for partition, *_ in epoch} or {0}
    for epoch in history:
        steps += [{"message": value_of(row, kind), "partition": p} for p, row, kind in epoch]
        steps.append({"flush": True})
    output = list(replay(document, steps))[:-1]  # without the watermark of the end
    late = sorted(
        (each["late"]["partition"], each["late"]["offset"]) for each in output if "late" in each
    )
    told = [each["watermark"] for each in output if "watermark" in each]
    watermarks, found = run_epochs(document, history, partitions)
    assert watermarks == told
    assert sorted(found) == late


def run_epochs(
    document: dict[str, Any], history: list[list[Any]], partitions: set[int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the watermarks and late rows of epochs, with the classes of a running job."""
    spec = load_spec(document)
    plan = plan_of(spec)
    rules = make_source_rules(spec, plan)
    time = JobTime(spec.watermark, ("t",))
    for partition in sorted(partitions):
        time.add("t", partition)
    offsets = dict.fromkeys(partitions, 0)
    told: list[int] = []
    late: list[tuple[int, int]] = []
    for epoch in history:
        deadline = deadline_of(
            closing_of(spec, plan), time.watermark, in_order=rules.times.in_order
        )
        reports = []
        for partition in sorted({partition for partition, *_ in epoch}):
            start = offsets[partition]
            values = [value_of(row, kind) for p, row, kind in epoch if p == partition]
            offsets[partition] = end = start + len(values)
            place = OffsetRange("t", partition, start, end)
            starts = (time.start_of("t", partition),) if rules.times.in_order else ()
            task = DecodeTask(
                plan, rules, {}, (place,), Path(), 1, "uuid", deadline=deadline, starts=starts
            )
            reader = RangeReader(task, 0, "m0-0")
            reader.take([record(place, start + i, value) for i, value in enumerate(values)])
            reader.finish()
            reports.append(reader.report)
            if deadline is not None:
                columns, _ = reader.signed_rows.concatenate()
                judged = deadline.late(plan, columns, reader.watermarks)
                late += [(partition, start + i) for i in np.flatnonzero(judged.whole).tolist()]
        before = time.watermark
        for each in reports:
            time.observe("t", each.partition, each.event_time_max, each.read, each.generator)
        time.pass_time(0)
        time.emit()
        if time.watermark is not None and time.watermark != before:
            told.append(time.watermark)
    return told, late


def record(place: OffsetRange, offset: int, value: str) -> Message:
    return Message(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        value=value.encode(),
        timestamp=(TIMESTAMP_CREATE_TIME, 0),
    )
