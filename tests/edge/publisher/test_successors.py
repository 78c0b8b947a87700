"""A publisher that follows another one: it goes on where that one was, and fences it if it runs.

As in test_handle.py every test compares the topic with the epochs' own rows. A fault is placed by a
failpoint; the mark that it leaves is looked at.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import product
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import TransactionState

from jobs.core.publish.protocol import EpochToPublish
from jobs.edge.publisher import handle as kafka_publisher
from jobs.edge.publisher.handle import Publisher, PublisherFailed
from tests.support.published_changelog import (
    WAIT_SECONDS,
    Publishing,
    failed_with,
    publish,
    records,
    wait_until,
)
from tests.support.publisher_configuration import configuration, sink_topic
from tests.support.sampling import quick

# --- after its end ----------------------------------------------------------------------------


def test_a_start_finds_the_progress_and_passes_over_what_is_published(made: Publishing) -> None:
    first = made.start()
    publish(first, made.table.commit(10), made.table.commit(10))
    first.stop()
    second = made.start(generation=2)
    assert second.published == 2
    publish(second, *made.table.epochs, made.table.commit(10))
    made.must_be_exact()


# An epoch of three transactions, killed before, in and after the second one.
CRASHES = ["publish_begun=kill@2", "publish_produced=kill@2", "publish_committed=kill@2"]


@pytest.mark.parametrize("fault", quick(CRASHES, CRASHES[1::2]))
def test_killed_inside_an_epoch_the_next_one_goes_on_without_loss_or_repeat(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("RETALLY_FAILPOINTS", fault)
    publisher = made.start(transaction_records=400)
    publisher.send(made.table.commit(1_000))
    failed_with(publisher, "publisher-died")
    assert list(marks.iterdir())
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    partial = made.progress()[-1]
    assert (partial.epoch, partial.complete) == (1, False)
    again = made.start(transaction_records=400, generation=2)
    assert again.published == 0
    publish(again, *made.table.epochs, made.table.commit(1_000))
    made.must_be_exact()


# --- fencing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "place"),
    quick(product([1, 2], ["publish_begun", "publish_produced"]), [(1, "publish_produced")]),
)
def test_a_zombie_is_fenced_by_its_successor(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch, generation: int, place: str
) -> None:
    with_limits(monkeypatch, "PUBLISH_CHUNK_ROWS = 100")
    monkeypatch.setenv("RETALLY_FAILPOINTS", f"{place}=stall:0.3@3")
    zombie = made.start()
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    for _ in range(2):
        publish(zombie, made.table.commit(50))
    zombie.send(made.table.commit(1_000))
    wait_until(lambda: list(marks.iterdir()))  # its transaction is open
    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGSTOP)
    successor = made.start(generation=generation)
    assert successor.published == 2
    publish(successor, made.table.epochs[2], made.table.commit(100))
    os.kill(zombie.pid, signal.SIGCONT)
    failed_with(zombie, "fenced")
    with pytest.raises(PublisherFailed, match="fenced"):
        zombie.flush(0)
    publish(successor, made.table.commit(100))
    assert successor.failure is None
    made.must_be_exact()


@pytest.mark.parametrize("job", quick(["items", "other"], ["items"]))
def test_a_topic_of_another_table_is_refused_and_its_publisher_goes_on(
    made: Publishing, job: str
) -> None:
    publisher = made.start(table="ours")
    publish(publisher, made.table.commit(50))
    taken = f"publisher-sink-taken: topic '{made.topic}' has the changelog of"
    with pytest.raises(PublisherFailed, match=taken):
        made.start(job=job, table="theirs", transactional_id="retally-items")
    publish(publisher, made.table.commit(50))
    made.must_be_exact()


def test_a_table_behind_its_topic_is_told_so_and_nobody_is_fenced(made: Publishing) -> None:
    publisher = made.start(table="ours")
    publish(publisher, made.table.commit(50), made.table.commit(50))
    restored = Publisher(configuration(made.address, made.topic, table="ours", newest=1))
    try:
        (position,) = restored.start(WAIT_SECONDS).topics
        assert position.epoch == 2
    finally:
        restored.kill()
    publish(publisher, made.table.commit(50))
    made.must_be_exact()


def test_one_that_loses_its_id_to_nobody_who_publishes_may_start_again(made: Publishing) -> None:
    publisher = made.start(table="ours")
    publish(publisher, made.table.commit(50))
    fence(made)
    publisher.send(made.table.commit(50))
    failed_with(publisher, "publisher-displaced")
    again = made.start(table="ours")
    assert again.published == 1
    publish(again, made.table.epochs[1])
    made.must_be_exact()


def test_a_topic_that_becomes_the_first_goes_on_where_it_is(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view of the first topic is dropped, later another one comes before the one that stays."""
    left, new = f"{made.topic}-left", f"{made.topic}-new"
    ours = {"table": "ours", "transactional_id": f"retally-{made.topic}"}

    def of_both(epoch: EpochToPublish) -> EpochToPublish:
        return msgspec.structs.replace(epoch, files=2 * epoch.files)

    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1@2")
    both = made.start(**ours, sinks=[sink_topic(made.topic), sink_topic(left)])
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    publish(both, of_both(made.table.commit(50)))
    both.send(of_both(made.table.commit(50)))
    wait_until(lambda: list(marks.iterdir()))
    assert both.pid is not None
    os.kill(both.pid, signal.SIGSTOP)
    successor = made.start(**ours, sinks=[sink_topic(left)], generation=2)
    assert successor.published == 1
    publish(successor, made.table.epochs[1], made.table.commit(50))
    os.kill(both.pid, signal.SIGCONT)
    failed_with(both, "fenced")
    made.must_be_exact(left)
    successor.stop()

    # A topic that joins as the first one has no progress, and the other one has.
    joined = made.start(**ours, sinks=[sink_topic(new), sink_topic(left)], generation=3)
    publish(joined, *map(of_both, (*made.table.epochs, made.table.commit(50))))
    for name in (new, left):
        made.must_be_exact(name)


@pytest.mark.slow
def test_a_view_does_not_continue_in_the_topic_of_another_one(made: Publishing) -> None:
    """The other view was dropped, or the two have swapped their topics."""
    low, top, query = (sink_topic(made.topic, view=view) for view in ("low", "top", msgspec.UNSET))
    publish(made.start(sinks=[low]), made.table.commit(20))
    for sink in (top, query):
        with pytest.raises(PublisherFailed, match=r"has the changelog of view 'low' of this job"):
            made.start(sinks=[sink], generation=2)
    publish(made.start(sinks=[low], generation=2), made.table.commit(20))


@pytest.mark.slow
def test_the_query_of_a_job_may_get_views_beside_it(made: Publishing) -> None:
    for number, view in enumerate((msgspec.UNSET, "", msgspec.UNSET, "")):
        sink = sink_topic(made.topic, view=view)
        publish(made.start(sinks=[sink], generation=1 + number), made.table.commit(20))


def fence(made: Publishing) -> None:
    """What a process does that takes the id and ends before it publishes."""
    taken = configuration(made.address, made.topic).transactional_id
    stray = Producer({"bootstrap.servers": made.address, "transactional.id": taken})
    stray.init_transactions(WAIT_SECONDS)


@pytest.mark.slow
def test_a_machine_that_slept_through_its_transaction_goes_on(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker aborts the transaction and fences the producer, though nobody took over."""
    with_limits(monkeypatch, "TRANSACTION_TIMEOUT_MS = 1_000")
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1.5@2")
    publisher = made.start()
    publish(publisher, made.table.commit(100))
    publisher.send(made.table.commit(100))
    wait_until(lambda: transaction_open(made))
    assert list(marks.iterdir())
    assert publisher.pid is not None
    before = len(records(made.address, made.topic, while_open=True))
    os.kill(publisher.pid, signal.SIGSTOP)
    wait_until(lambda: not transaction_open(made))
    os.kill(publisher.pid, signal.SIGCONT)
    assert publisher.flush(WAIT_SECONDS)
    assert len(made.records()) > before
    made.must_be_exact()


def with_limits(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """The process as it is, with another bound."""
    program = (
        f"from schemas import limits; limits.{setting};"
        "from jobs.edge.publisher.process import main; main()"
    )
    monkeypatch.setattr(kafka_publisher, "COMMAND", (sys.executable, "-c", program))


def transaction_open(made: Publishing) -> bool:
    client = KafkaAdminClient(bootstrap_servers=[made.address])
    try:
        (found,) = client.describe_transactions([f"retally-{made.topic}"]).values()
        return bool(found.state == TransactionState.ONGOING)
    finally:
        client.close()


def test_an_older_generation_does_not_start(made: Publishing) -> None:
    made.start(generation=5).stop()
    with pytest.raises(PublisherFailed, match="generation 5"):
        made.start(generation=4)
