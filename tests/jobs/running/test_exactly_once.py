"""Exactly once, end to end: a real broker, Spark and Delta, and the driver killed on the way.

random history ──► Kafka ──► retally run, killed at a failpoint ──► run again ──► the truth
                                                                         │
        topic (read_committed) == table's changelog, nothing lost, nothing twice, in order
             folded == results == the query over the live rows, as DuckDB computes it
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import structs

from jobs.edge.process.broker import Broker
from jobs.edge.table.delta_epochs import EpochTable, Fenced
from jobs.reading.epoch_rows import epoch_rows
from jobs.reading.files import live_files, open_table
from tests.support.histories.judge import QUERIES
from tests.support.histories.products import history
from tests.support.jobs.exact_job import must_be_exact, product_job
from tests.support.jobs.running_job import RUN_SECONDS_MAX, produce
from tests.support.service.served import eventually

pytestmark = pytest.mark.spark


@dataclass(frozen=True, slots=True)
class Fault:
    """Where the driver dies, and how small its epochs are."""

    name: str
    failpoint: str
    action: str
    max_rows: int = 120
    seed: int = 1
    marks: tuple[pytest.MarkDecorator, ...] = ()


SLOW, FAULTY = (pytest.mark.slow,), (pytest.mark.faults,)
FAULTS = [
    Fault("after the tasks, before the commit", "before_commit", "kill@3", seed=11),
    Fault(
        "after the commit, before anyone knows of it", "after_commit", "kill@3", seed=12, marks=SLOW
    ),
    Fault("after the publisher got the epoch", "epoch_sent", "kill@2", seed=13, marks=FAULTY),
    # Compaction begins after 32 epochs and takes seconds on a busy machine, so these are small.
    Fault(
        "in a compaction, before its commit",
        "compaction_commit",
        "kill@1",
        2,
        seed=14,
        marks=FAULTY,
    ),
]


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=each.marks, id=each.failpoint) for each in FAULTS]
)
def test_nothing_is_lost_or_repeated_when_the_driver_is_killed(
    fault: Fault, broker: Broker, topic: str, tmp_path: Path
) -> None:
    query = fault.seed % len(QUERIES)
    job = product_job(broker, topic, tmp_path, query, fault.max_rows)
    made = history(fault.seed, messages=600)
    half = len(made.messages) // 2
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages[:half]])
    job.must_die_at(fault.failpoint, fault.action)
    job.spec["minibatch"]["max_rows"] = 120
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages[half:]])
    job.must_run_by_itself()
    must_be_exact(job, made, query)
    report = job.ask("audit", "items", "--brokers", broker.address)[0]
    assert report["verdict"] == "equal"


@pytest.mark.slow
def test_a_commit_whose_reply_is_lost_is_recognised_and_not_made_twice(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    fault = Fault("the reply is lost", "commit_reply_lost", "lost@3", seed=15)
    query = fault.seed % len(QUERIES)
    job = product_job(broker, topic, tmp_path, query, fault.max_rows)
    made = history(fault.seed, messages=400)
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages])
    code, said = job.run("commit_reply_lost=lost@3")
    assert code == 0, said
    assert job.fired("commit_reply_lost")
    must_be_exact(job, made, query)


@pytest.mark.slow
def test_a_driver_that_starts_takes_over_from_one_that_commits_meanwhile(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    job = product_job(broker, topic, tmp_path, query=0)
    made = history(5, messages=200)
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages[:100]])
    job.must_run_by_itself()
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages[100:]])
    starting = job.start("start_checked=stall:5")
    eventually(lambda: job.fired("start_checked"), RUN_SECONDS_MAX)
    other = EpochTable.open(job.table, job.layout)
    newest = other.newest()
    assert newest is not None
    theirs = structs.replace(
        newest,
        epoch=newest.epoch + 1,
        uuid=uuid4().hex,
        kind="time",
        counters={"groups": newest.groups},
        files={},
    )
    other.commit_epoch(theirs, ())
    said, _ = starting.communicate(timeout=RUN_SECONDS_MAX)
    assert starting.returncode == 0, said
    must_be_exact(job, made, query=0)
    rows = epoch_rows(job.table, live_files(open_table(job.table)))
    assert theirs in rows, "it went on from the other one's epoch"
    with pytest.raises(Fenced):
        other.commit_epoch(structs.replace(theirs, epoch=theirs.epoch + 1, uuid=uuid4().hex), ())
