"""Any spec of time gives the same watermarks and late rows in a replay and in a job's classes.

One side is `replay`. The other is what a running job has: tasks that decode ranges, the deadline of
an epoch, and the driver's clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given

from jobs.core.job.job_plan import plan_of
from jobs.core.job.window_rules import closing_of
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import Records
from jobs.edge.rows.late_rows import deadline_of
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.decode_inputs import SourceRules
from jobs.edge.tasks.range_reading import RangeReader
from jobs.offline.replay import replay
from jobs.running.clock import JobClock
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import Offsets, TopicPartition
from tests.support.epoch_rows import epoch_row
from tests.support.examples import examples
from tests.support.histories.timed_specs import Epochs, Keys, histories, steps_of, value_of


@examples(100)
@given(histories())
def test_replay_and_the_classes_of_a_job_agree(drawn: tuple[Keys, Epochs]) -> None:
    document, history = drawn
    output = list(replay(document, steps_of(history)))[:-1]  # without the watermark of the end
    late = [each["late"] for each in output if "late" in each]
    topic = load_spec(document).source.topics[0]
    places = sorted((each.get("topic", topic), each["partition"], each["offset"]) for each in late)
    emitted = [each["watermark"] for each in output if "watermark" in each]
    assert run_epochs(load_spec(document), history) == (emitted, places)


class StillClock(JobClock):
    """The clock of a job whose time the test moves."""

    at = 0

    @property
    def now(self) -> int:
        return self.at


def run_epochs(spec: JobSpec, history: Epochs) -> tuple[list[int], list[tuple[str, int, int]]]:
    """Return the watermarks and the late rows of epochs, with the classes of a running job."""
    partitions = {place for messages, _ in history for place, *_ in messages}
    silent = set(spec.source.topics) - {place.topic for place in partitions}
    offsets: Offsets = {}
    for place in (*partitions, *(TopicPartition(topic, 0) for topic in silent)):
        offsets.setdefault(place.topic, {})[str(place.partition)] = 0
    clock = StillClock(
        spec,
        dict.fromkeys(spec.source.topics, 0),
        epoch_row(0, offsets=offsets),
        read_log_ends=lambda: offsets,
    )
    for topic, numbers in offsets.items():
        for number in numbers:
            clock.time.add(topic, int(number))
    clock.tick()
    emitted: list[int] = []
    late: list[tuple[str, int, int]] = []

    def note(before: int | None) -> None:
        if clock.time.watermark is not None and clock.time.watermark != before:
            emitted.append(clock.time.watermark)

    for messages, passing in history:
        before = clock.time.watermark
        if messages:
            late += run_epoch(spec, clock, offsets, messages)
            note(before)
        until = clock.at + passing
        while (wakes_at := clock.time.wakes_at) is not None and wakes_at <= until:
            before, clock.at = clock.time.watermark, wakes_at
            clock.tick()
            note(before)
        clock.at = until
        clock.time.advance(until)
    return emitted, sorted(late)


def run_epoch(
    spec: JobSpec, clock: JobClock, offsets: Offsets, messages: list[Any]
) -> list[tuple[str, int, int]]:
    """Decode the messages of an epoch in tasks, report them to the clock; return late rows."""
    plan = plan_of(spec)
    rules = SourceRules.of(spec, plan)
    deadline = deadline_of(closing_of(spec, plan), clock.time.watermark, in_order=rules.in_order)
    reports, late = [], []
    for topic, partition in sorted({place for place, *_ in messages}):
        values = [
            (value_of(row, kind, time), time)
            for place, row, kind, time in messages
            if place == (topic, partition)
        ]
        start = offsets[topic][str(partition)]
        planned = OffsetRange(topic, partition, start, start + len(values))
        offsets[topic][str(partition)] = planned.end
        task = DecodeTask(
            plan,
            rules,
            {},
            (planned,),
            Path(),
            EpochAttempt(1, "uuid"),
            starts=clock.starts((planned,)),
            now_ms=clock.now,
        )
        reader = RangeReader(task, 0, "m0-0")
        of_range = [record(planned, start + i, *value) for i, value in enumerate(values)]
        reader.take(Records.of(of_range))
        reader.finish()
        reports.append(reader.report)
        if deadline is not None:
            columns = reader.signed_rows.concatenate().columns
            judged = deadline.late(plan, columns, reader.watermarks)
            late += [(topic, partition, start + i) for i in np.flatnonzero(judged.whole).tolist()]
    clock.observe(reports, offsets)
    return late


def record(place: OffsetRange, offset: int, value: str, time: int) -> Message:
    return Message(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        value=value.encode(),
        timestamp=(TIMESTAMP_CREATE_TIME, time),
    )
