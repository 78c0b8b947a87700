"""Time in a running job: `retally run` on a real broker, seen through its epoch rows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from schemas.table.epoch import EpochRow
from tests.support.jobs.running_job import RunningJob, create_topic, produce, producer_for
from tests.support.jobs.timed_job import (
    MINUTE,
    NOON,
    await_row,
    inserted,
    running,
    spec_of,
    watermark,
)
from tests.support.topics import add_partitions

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

DAY = 24 * 60 * MINUTE


def at(row: EpochRow, topic: str, partition: int) -> int:
    return row.offsets[topic][str(partition)]


def partition(row: EpochRow, topic: str, number: int) -> dict[str, Any]:
    """What an epoch row says of a partition's time; the first row has had none yet."""
    topics = row.watermarks.get("topics", {topic: {"partitions": {}}})
    found: dict[str, Any] = topics[topic]["partitions"].get(str(number), {})
    return found


def never_backwards(job: RunningJob) -> bool:
    output = [watermark(row) for row in job.epochs()]
    return output == sorted(output)


def test_a_silent_partition_is_idle_after_a_while_and_behind_when_it_comes_back(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    job = RunningJob(
        spec_of(topic, {"time": "es", "delay": "1s", "idle_after": "3s"}), tmp_path, broker.address
    )
    produce(broker.address, topic, [(0, inserted(NOON + MINUTE)), (1, inserted(NOON))])
    with running(job) as process:
        held = await_row(job, process, lambda row: watermark(row) == NOON - 1_001)
        assert "partition 1, silent for" in held.watermarks["held_by"][0]
        produce(broker.address, topic, [(0, inserted(NOON + 2 * MINUTE))])
        released = await_row(job, process, lambda row: watermark(row) >= NOON + 2 * MINUTE - 1_001)
        assert released.kind == "time", "nothing but time made it due"
        assert "idle" in partition(released, topic, 1)
        produce(broker.address, topic, [(1, inserted(NOON + 5_000))])
        back = await_row(job, process, lambda row: at(row, topic, 1) == 2)
        assert "idle" not in partition(back, topic, 1)
        process.kill()
    reached = watermark(job.epochs()[-1])
    with running(job) as process:
        produce(broker.address, topic, [(0, inserted(NOON + 3 * MINUTE))])
        await_row(job, process, lambda row: at(row, topic, 0) == 3)
        later = await_row(job, process, lambda row: watermark(row) > reached)
        assert "idle" in partition(later, topic, 1)
    assert never_backwards(job)


@pytest.mark.faults
def test_a_partition_a_day_ahead_waits_unread_for_one_that_starts_late(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    align = {"group": "g", "max_drift": "1m", "every": "300ms"}
    job = RunningJob(spec_of(topic, {"time": "es", "align": align}), tmp_path, broker.address)
    produce(broker.address, topic, [(0, inserted(NOON + DAY)), (1, inserted(NOON))])
    with running(job) as process:
        await_row(job, process, lambda row: watermark(row) == NOON - 1)
        paused = await_row(job, process, lambda row: "ahead" in partition(row, topic, 0))
        assert at(paused, topic, 0) == 1
        time.sleep(2)  # the query has begun anew without it
        produce(broker.address, topic, [(0, inserted(NOON + DAY))] * 5)
        produce(broker.address, topic, [(1, inserted(NOON + MINUTE))])
        alone = await_row(job, process, lambda row: at(row, topic, 1) == 2)
        assert at(alone, topic, 0) == 1, "who is ahead is not read"
        process.kill()
    with running(job) as process:
        produce(broker.address, topic, [(1, inserted(NOON + 2 * MINUTE))])
        still = await_row(job, process, lambda row: at(row, topic, 1) == 3)
        assert at(still, topic, 0) == 1, "nor after a crash"
        add_partitions(broker.address, topic, 3)
        producer_for.cache_clear()  # the next one knows them
        produce(broker.address, topic, [(2, inserted(NOON + DAY))])
        produce(broker.address, topic, [(1, inserted(NOON + DAY))])
        await_row(job, process, lambda row: at(row, topic, 0) == 6)
        await_row(job, process, lambda row: row.offsets[topic].get("2") == 1)
        await_row(job, process, lambda row: watermark(row) == NOON + DAY - 1)
    assert never_backwards(job)


def test_a_row_from_the_future_is_quarantined_and_moves_no_watermark(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    spec = spec_of(topic, {"time": "es", "future_skew": "1m"})
    job = RunningJob(spec, tmp_path, broker.address)
    ahead = int(time.time() * 1_000) + 10 * MINUTE
    produce(broker.address, topic, [(0, inserted(NOON)), (0, inserted(ahead))])
    job.must_run()
    (reject,) = job.part("quarantine")
    assert reject["quarantine_code"] == "future"
    assert reject["reason"].startswith("the row's time lies in the future")
    assert watermark(job.epochs()[-1]) == NOON - 1
    assert job.ask("results", job.spec["name"]) == [{"name": "a", "n": 1}]
    (report,) = job.ask("audit", job.spec["name"], "--brokers", broker.address)
    assert report["verdict"] == "equal"


# --- windows ----------------------------------------------------------------------------------


def windowed(topic: str) -> dict[str, Any]:
    return {
        **spec_of(topic, {"time": {"column": "t"}, "delay": "1s", "idle_after": "3s"}),
        "columns": {"name": "STRING", "cnt": "INT", "t": "BIGINT"},
        "query": "SELECT name, window_start AS start, COUNT(*) AS n, MAX(cnt) AS top FROM t "
        "GROUP BY name, TUMBLE(t, INTERVAL '1' MINUTE)",
        "emit": "final",
        "allowed_lateness": "30s",
    }


def bought(t: int, cnt: int = 1, kind: str = "INSERT", old: str = "") -> bytes:
    text = '{"data":[{"name":"a","cnt":"%d","t":"%d"}],%s"type":"%s","isDdl":false}'
    return (text % (cnt, t, f'"old":[{old}],' if old else "", kind)).encode()


@pytest.mark.faults
def test_an_empty_partition_holds_the_window_until_the_operator_lets_partitions_be_idle(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    spec = windowed(topic)
    del spec["watermark"]["idle_after"]
    job = RunningJob(spec, tmp_path, broker.address)
    produce(broker.address, topic, [(0, bought(NOON)), (0, bought(NOON + 2 * MINUTE))])
    with running(job) as process:
        held = await_row(job, process, lambda row: at(row, topic, 0) == 2)
        (partition,) = held.time.held_by
        assert partition == f"{topic} partition 1, empty, never idle (there is no idle_after)"
        process.kill()
    assert job.ask("results", job.spec["name"]) == []
    job.options = ("--idle-after", "2s")
    with running(job) as process:
        await_row(job, process, lambda row: row.counters.get("changelog_rows") == 1)
    assert [row["n"] for row in job.ask("results", job.spec["name"])] == [1]


@pytest.mark.faults
def test_a_window_is_told_once_and_late_rows_are_written_down_over_a_crash(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 4)
    job = RunningJob(windowed(topic), tmp_path, broker.address)
    name = job.spec["name"]
    first = [(number, bought(NOON + number, cnt=number)) for number in range(4)]
    produce(broker.address, topic, first)
    with running(job) as process:
        await_row(job, process, lambda row: watermark(row) == NOON - 1_001)
        process.kill()
    assert job.ask("results", name) == [], "the window is not complete"
    with running(job) as process:
        # One partition goes on, and the others turn idle: time alone completes the window.
        produce(broker.address, topic, [(0, bought(NOON + MINUTE + 1_500))])
        output = await_row(job, process, lambda row: row.counters.get("changelog_rows") == 1)
        assert output.kind == "time"
        in_time = '{"cnt":"3"}'
        produce(broker.address, topic, [(3, bought(NOON + 3, 9, "UPDATE", in_time))])
        await_row(job, process, lambda row: row.counters.get("changelog_rows") == 2)
        process.kill()
    row = {"name": "a", "start": NOON, "n": 4, "top": 9}
    assert job.ask("results", name) == [row]
    with running(job) as process:
        produce(broker.address, topic, [(0, bought(NOON + 2 * MINUTE))])
        await_row(job, process, lambda row: row.counters.get("closed") == 1)
        moved = f'{{"t":"{NOON + 2}","cnt":"2"}}'
        late = bought(NOON + 2 * MINUTE, 7, "UPDATE", moved)
        produce(broker.address, topic, [(2, late), (1, bought(NOON + 5, 8))])
        counted = await_row(job, process, lambda row: at(row, topic, 1) == 2)
    assert sum(row.counters.get("late", 0) for row in job.epochs()) == 2
    assert counted.counters["quarantined"] == 0
    assert job.ask("results", name)[0] == row, "nothing is taken back from a closed window"
    told_rows = [row for row in job.ask("changes", name) if row["row"]["start"] == NOON]
    assert [row["op"] for row in told_rows] == ["+I", "-U", "+U"]
    group = {"name": "a", "start": NOON, "window_end": NOON + MINUTE}
    (explained,) = job.ask("explain", name, json.dumps(group))
    by_offset = {(each["partition"], each["weight"]): each for each in explained["late"]}
    assert by_offset[2, -1]["row"] == {"name": "a", "cnt": 2, "t": NOON + 2}
    assert by_offset[2, -1]["became"] == {"name": "a", "cnt": 7, "t": NOON + 2 * MINUTE}
    assert by_offset[1, 1]["row"]["cnt"] == 8
    assert explained["closed"]
    (report,) = job.ask("audit", name, "--brokers", broker.address)
    assert report["verdict"] == "equal", report


def test_sessions_merge_and_split_as_the_audit_finds_them(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    spec = windowed(topic)
    for key in ("emit", "allowed_lateness"):
        del spec[key]
    spec["query"] = (
        "SELECT name, window_start AS start, window_end AS stop, COUNT(*) AS n, MAX(cnt) AS top "
        "FROM t GROUP BY name, SESSION(t, INTERVAL '30' SECOND)"
    )
    job = RunningJob(spec, tmp_path, broker.address)
    times = [0, 40_000, 80_000, 20_000, 60_000, 200_000, 230_000]
    produce(broker.address, topic, [(0, bought(NOON + at, cnt=at)) for at in times])
    job.must_run()
    assert [
        (row["start"] - NOON, row["stop"] - NOON, row["n"]) for row in job.ask("results", "timed")
    ] == [(0, 110_000, 5), (200_000, 260_000, 2)]
    produce(broker.address, topic, [(0, bought(NOON + 60_000, 60_000, "DELETE"))])
    produce(broker.address, topic, [(0, bought(NOON + 215_000, 1))])
    job.must_run()
    assert [(row["start"] - NOON, row["n"], row["top"]) for row in job.ask("results", "timed")] == [
        (0, 3, 40_000),
        (80_000, 1, 80_000),
        (200_000, 3, 230_000),
    ]
    (report,) = job.ask("audit", job.spec["name"], "--brokers", broker.address)
    assert report["verdict"] == "equal", report
    assert report["groups"] == 3
