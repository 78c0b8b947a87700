"""An epoch that cannot be read is computed in halves, until it works or one record is found."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from jobs.edge.kafka.offset_ranges import count_planned_records, ranges_between
from jobs.edge.kafka.range_consumer import RangeTimedOut
from jobs.edge.spark.spark_failure import SparkFailed, WorkerLost, make_failure
from jobs.running.epoch_size import PoisonMessage, run_in_halves
from jobs.running.failure import classify
from schemas import limits
from schemas.table.epoch import EpochRow, Offsets
from tests.support.epoch_rows import epoch_row


@dataclass
class Reader:
    """Commits epochs; each that has one of these records fails."""

    deadly: set[tuple[int, int]]
    ends: Offsets
    offsets: Offsets = field(default_factory=lambda: {"t": {}})
    deaths: int = 0
    deaths_by_hand: int = 0
    failure: type[Exception] = WorkerLost
    brokers_answer: bool = True

    def run(self, ends: Offsets) -> EpochRow:
        ranges = ranges_between(self.offsets, ends)
        read = {(each.partition, at) for each in ranges for at in range(each.start, each.end)}
        if self.deaths_by_hand or read & self.deadly:
            self.deaths += 1
            self.deaths_by_hand = max(0, self.deaths_by_hand - 1)
            raise self.failure("what has happened")
        self.offsets = ends
        return epoch_row(1)

    def run_all(self) -> EpochRow:
        return run_in_halves(lambda: self.offsets, self.ends, self.run, self.require_brokers)

    def require_brokers(self) -> None:
        if not self.brokers_answer:
            raise ConnectionError("the brokers are silent")


def ends_of(*records: int) -> Offsets:
    return {"t": {str(partition): count for partition, count in enumerate(records)}}


@pytest.mark.parametrize("failure", [WorkerLost, RangeTimedOut])
@pytest.mark.parametrize("seed", range(12))
def test_a_message_that_nobody_can_read_is_found_and_named_and_nothing_after_it_is_read(
    seed: int, failure: type[Exception]
) -> None:
    dice = random.Random(seed)
    partitions = dice.randint(1, 9)
    ends = ends_of(*(dice.randint(1, 20_000) for _ in range(partitions)))
    partition = dice.randrange(partitions)
    offset = dice.randrange(ends["t"][str(partition)])
    reader = Reader({(partition, offset)}, ends, failure=failure)
    with pytest.raises(PoisonMessage) as found:
        reader.run_all()
    assert f"topic t, partition {partition}, offset {offset}, " in str(found.value)
    assert f"retally offsets JOB --set t/{partition}={offset + 1}" in str(found.value)
    assert reader.offsets["t"].get(str(partition), 0) == offset
    assert reader.deaths <= 20 + 4 + limits.MESSAGE_ATTEMPTS_MAX
    assert classify(found.value) == ("input-refused", False), "no start repeats it"
    # Who goes on after it reads the rest.
    reader.offsets = {"t": {**reader.offsets["t"], str(partition): offset + 1}}
    reader.run_all()
    assert reader.offsets == ends


@pytest.mark.parametrize("deaths", [1, 2])
@pytest.mark.parametrize("records", [(1,), (1_000,), (5, 0, 3)])
def test_workers_that_somebody_killed_cost_nothing_but_time(
    records: tuple[int, ...], deaths: int
) -> None:
    reader = Reader(set(), ends_of(*records), deaths_by_hand=deaths)
    reader.run_all()
    assert count_planned_records(ranges_between(reader.offsets, reader.ends)) == 0


def test_while_the_brokers_are_silent_no_message_is_to_blame() -> None:
    reader = Reader(set(), ends_of(9), failure=RangeTimedOut, brokers_answer=False)
    reader.deaths_by_hand = 1
    with pytest.raises(ConnectionError, match="silent") as silent:
        reader.run_all()
    assert reader.deaths == 1 and classify(silent.value)[1], "another start tries again"
    reader.brokers_answer = True
    reader.run_all()
    assert reader.offsets == reader.ends


def test_a_worker_that_dies_without_a_record_is_a_failure_as_any_other() -> None:
    reader = Reader(set(), ends_of(0), deaths_by_hand=1)
    with pytest.raises(WorkerLost) as lost:
        reader.run_all()
    assert classify(lost.value) == ("failed", True)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly",
            WorkerLost,
        ),
        ("Lost task 0.3 in stage 2.0: ExecutorLostFailure (executor 1 exited)", WorkerLost),
        ("Caused by: java.io.IOException: No space left on device", SparkFailed),
    ],
)
def test_the_end_of_a_process_is_told_from_other_failures(
    text: str, kind: type[SparkFailed]
) -> None:
    assert type(make_failure(RuntimeError(text))) is kind
