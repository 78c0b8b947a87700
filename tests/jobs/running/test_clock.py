"""The clock of a job: what epochs and the time between them tell, with real files and real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.alignment_group import AlignmentGroup
from jobs.edge.tasks.range_report import RangeReport
from jobs.running.clock import JobClock
from schemas.spec.file import Document, validate
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets
from tests.support.epoch_rows import epoch_row

NOON = 1_767_268_800_000  # 2026-01-01 12:00:00
MINUTE = 60_000
EVERY_MS = 20


class Lived:
    """A job's clock, and the epochs it is told of."""

    def __init__(self, watermark: dict[str, Any], topics: dict[str, int], **group: Any) -> None:
        rows = {"columns": {"k": "STRING"}, "watermark": {"emit_every": "10ms", **watermark}}
        read = {"source": {"topics": sorted(topics)}, **rows}
        if sources := group.pop("sources", None):  # of several: the topics of each
            read = {"sources": {name: {"topics": of, **rows} for name, of in sources.items()}}
        document: dict[str, Any] = {
            "name": "timed",
            "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
            "minibatch": {"latency": "10ms"},
            **read,
        }
        self.spec = validate(JobSpec, Document("", document))
        self.topics = topics
        self.offsets: Offsets = {t: {str(p): 0 for p in range(n)} for t, n in topics.items()}
        self.log: Offsets = {t: dict(at) for t, at in self.offsets.items()}
        self.group_name = str(group.get("group"))
        self.group = AlignmentGroup(every_ms=EVERY_MS, **group) if group else None
        self.row = self._row({})
        self.clock = self._begun()

    def _begun(self) -> JobClock:
        groups = {self.group_name: self.group} if self.group else {}
        return JobClock(
            self.spec, self.topics, self.row, read_log_ends=lambda: self.log, groups=groups
        )

    def _row(self, watermarks: dict[str, Any]) -> EpochRow:
        return epoch_row(0, offsets=self.offsets, watermarks=watermarks)

    def epoch(self, *ranges: tuple[str, int, int]) -> dict[str, Any]:
        """An epoch of one record in each of these ranges, and what its row says of time."""
        reports = []
        for number, (topic, partition, latest) in enumerate(ranges):
            at = self.offsets[topic][str(partition)] + 1
            self.offsets[topic][str(partition)] = at
            self.log[topic][str(partition)] = max(at, self.log[topic][str(partition)])
            reports.append(
                RangeReport(
                    number=number, topic=topic, partition=partition, read=1, event_time_max=latest
                )
            )
        time.sleep(0.015)  # a periodic emission is due
        self.clock.observe(reports, self.offsets)
        self.row = self._row(self.clock.snapshot())
        return self.row.watermarks

    def until(self, seen: Callable[[], bool]) -> dict[str, Any]:
        """Time passes without data until it is true."""
        end = time.monotonic() + 20
        while not seen():
            assert time.monotonic() < end, self.clock.time.list_partitions()
            time.sleep(0.005)
            self.clock.tick()
        return self.clock.snapshot()

    def restart(self) -> None:
        self.clock = self._begun()


def test_a_job_waits_for_the_slower_of_its_topics() -> None:
    job = Lived({"delay": "1s"}, {"left": 1, "right": 2})
    assert "combined" not in job.epoch(("left", 0, NOON), ("right", 0, NOON))
    output = job.epoch(("right", 1, NOON - MINUTE))
    assert output["combined"] == NOON - MINUTE - 1_001
    (held,) = output["held_by"]
    assert held.startswith("right partition 1, silent for")
    assert held.endswith("never idle (there is no idle_after)")


def test_a_job_waits_for_the_slower_of_its_sources_unless_that_is_idle() -> None:
    sources = {"orders": ["o"], "customers": ["c"]}
    job = Lived({"idle_after": "50ms"}, {"o": 1, "c": 2}, sources=sources)
    output = job.epoch(("o", 0, NOON + MINUTE), ("c", 0, NOON), ("c", 1, NOON + 2 * MINUTE))
    assert output["combined"] == NOON - 1
    assert output["holding"] == [{"topic": "c", "partition": 0}]
    job.log["o"]["0"] += 1  # the only partition with unread records is active
    output = job.until(lambda: job.clock.due and job.clock.time.watermark != NOON - 1)
    assert output["combined"] == NOON + MINUTE - 1


def test_a_topic_that_two_sources_read_has_the_greatest_time_of_both() -> None:
    job = Lived({}, {"t": 1}, sources={"orders": ["t"], "customers": ["t"]})
    assert job.epoch(("t", 0, NOON + MINUTE), ("t", 0, NOON))["combined"] == NOON + MINUTE - 1


def test_sources_are_aligned_with_each_other() -> None:
    align = {"align": {"group": "g", "max_drift": "1m", "every": f"{EVERY_MS}ms"}}
    job = Lived(align, {"o": 1, "c": 1}, sources={"orders": ["o"], "customers": ["c"]})
    job.epoch(("o", 0, NOON + 5 * MINUTE), ("c", 0, NOON))
    job.until(lambda: job.clock.paused == {("o", 0)})
    job.epoch(("c", 0, NOON + 5 * MINUTE))
    job.until(lambda: not job.clock.paused)


def test_an_empty_partition_is_named_as_the_one_that_holds_the_watermark() -> None:
    job = Lived({}, {"t": 3})
    job.log["t"]["2"] = 1  # has a record that the job has not read yet
    output = job.epoch(("t", 0, NOON))
    assert output["held_by"] == [
        "t partition 1, empty, never idle (there is no idle_after)",
        "t partition 2, no record yet, never idle (there is no idle_after)",
    ]
    output = job.epoch(("t", 2, NOON))
    assert output["holding"] == [{"topic": "t", "partition": 1}]
    (held,) = job.epoch(("t", 1, NOON - MINUTE))["held_by"]
    assert held.startswith("t partition 1, silent for")


def test_silence_is_told_by_time_alone_and_unread_records_are_no_silence() -> None:
    job = Lived({"idle_after": "50ms"}, {"t": 2})
    assert job.epoch(("t", 0, NOON + MINUTE), ("t", 1, NOON))["combined"] == NOON - 1
    job.log["t"]["1"] += 1  # the broker has one more
    time.sleep(0.2)
    job.clock.tick()
    assert job.clock.time.watermark == NOON - 1
    job.log["t"]["1"] -= 1
    output = job.until(lambda: job.clock.due and job.clock.time.watermark != NOON - 1)
    assert output["combined"] == NOON + MINUTE - 1
    assert not job.clock.due, "it has been told"


def test_a_new_process_goes_on_where_the_row_stands_and_blames_nobody_for_the_pause() -> None:
    job = Lived({"idle_after": "200ms"}, {"t": 2})
    output = job.epoch(("t", 0, NOON + MINUTE), ("t", 1, NOON))
    time.sleep(0.4)
    job.restart()
    job.clock.tick()
    assert job.clock.time.watermark == output["combined"] == NOON - 1
    assert not any(partition.idle for partition in job.clock.time.list_partitions())
    assert job.epoch(("t", 0, NOON - MINUTE))["event_time_max"]["t/0"] == NOON + MINUTE


def test_a_job_that_is_ahead_waits_for_another_one_of_its_group(tmp_path: Path) -> None:
    align = {"align": {"group": "g", "max_drift": "1m", "every": f"{EVERY_MS}ms"}}
    fast = Lived(align, {"t": 1}, data=tmp_path, group="g", job="fast")
    slow = Lived(align, {"t": 1}, data=tmp_path, group="g", job="slow")
    slow.epoch(("t", 0, NOON))
    fast.epoch(("t", 0, NOON + 5 * MINUTE))
    fast.until(lambda: fast.clock.paused == {("t", 0)})
    assert not slow.clock.paused
    slow.epoch(("t", 0, NOON + 5 * MINUTE))
    fast.until(lambda: not fast.clock.paused)
    fast.epoch(("t", 0, NOON + 10 * MINUTE))
    fast.until(lambda: bool(fast.clock.paused))
    assert slow.group is not None
    slow.group.leave()  # who has ended holds nobody back
    fast.until(lambda: not fast.clock.paused)


def test_the_clock_follows_that_of_the_machine_forward_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Lived({}, {"t": 1}).clock
    began = clock.now
    for passed, expected in ((8 * 60 * MINUTE, 8 * 60 * MINUTE), (-MINUTE, 8 * 60 * MINUTE)):
        monkeypatch.setattr("jobs.running.clock.now_ms", lambda at=began + passed: at)
        assert began + expected <= clock.now < began + expected + MINUTE
    assert clock.horizons["t"] > began + 8 * 60 * MINUTE


def test_a_group_member_that_says_nothing_for_long_is_left_behind(tmp_path: Path) -> None:
    one = AlignmentGroup(tmp_path, "g", "one", every_ms=1_000)
    other = AlignmentGroup(tmp_path, "g", "other", every_ms=1_000)
    assert one.others(NOON) == []
    other.report([5, 7], NOON)
    assert one.others(NOON + 9_999) == [5, 7]
    assert one.others(NOON + 10_001) == []
    (tmp_path / "alignment" / "g" / "torn.json").write_text("{")
    assert one.others(NOON) == [5, 7]
    assert other.others(NOON) == []
