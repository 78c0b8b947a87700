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
from jobs.edge.process.broker import Broker
from jobs.edge.publisher import handle as kafka_publisher
from jobs.edge.publisher.handle import Publisher, PublisherFailed
from tests.support.published_changelog import (
    WAIT_SECONDS,
    SmallTable,
    Start,
    assert_exactly_the_changelog,
    failed_with,
    progress_of,
    publish,
    records,
    wait_until,
)
from tests.support.publisher_configuration import configuration, sink_topic
from tests.support.sampling import quick

# --- after its end ----------------------------------------------------------------------------


def test_a_start_finds_the_progress_and_passes_over_what_is_published(
    broker: Broker, topic: str, start: Start, table: SmallTable
) -> None:
    first = start()
    publish(first, table.commit(10), table.commit(10))
    first.stop()
    second = start(generation=2)
    assert second.published == 2
    publish(second, *table.epochs, table.commit(10))
    assert_exactly_the_changelog(broker.address, topic, table)


# An epoch of three transactions, killed before, in and after the second one.
CRASHES = ["publish_begun=kill@2", "publish_produced=kill@2", "publish_committed=kill@2"]


@pytest.mark.parametrize("fault", quick(CRASHES, CRASHES[1::2]))
def test_killed_inside_an_epoch_the_next_one_goes_on_without_loss_or_repeat(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    marks: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    monkeypatch.setenv("RETALLY_FAILPOINTS", fault)
    publisher = start(transaction_records=400)
    publisher.send(table.commit(1_000))
    failed_with(publisher, "died")
    assert list(marks.iterdir())
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    partial = progress_of(broker.address, topic)[-1]
    assert (partial.epoch, partial.complete) == (1, False)
    again = start(transaction_records=400, generation=2)
    assert again.published == 0
    publish(again, *table.epochs, table.commit(1_000))
    assert_exactly_the_changelog(broker.address, topic, table)


# --- fencing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "place"),
    quick(product([1, 2], ["publish_begun", "publish_produced"]), [(1, "publish_produced")]),
)
def test_a_zombie_is_fenced_by_its_successor(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    marks: Path,
    monkeypatch: pytest.MonkeyPatch,
    generation: int,
    place: str,
) -> None:
    with_limits(monkeypatch, "PUBLISH_CHUNK_ROWS = 100")
    monkeypatch.setenv("RETALLY_FAILPOINTS", f"{place}=stall:0.3@3")
    zombie = start()
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    for _ in range(2):
        publish(zombie, table.commit(50))
    zombie.send(table.commit(1_000))
    wait_until(lambda: list(marks.iterdir()))  # its transaction is open
    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGSTOP)
    successor = start(generation=generation)
    assert successor.published == 2
    publish(successor, table.epochs[2], table.commit(100))
    os.kill(zombie.pid, signal.SIGCONT)
    failed_with(zombie, "fenced")
    with pytest.raises(PublisherFailed, match="fenced"):
        zombie.flush(0)
    publish(successor, table.commit(100))
    assert successor.failure is None
    assert_exactly_the_changelog(broker.address, topic, table)


@pytest.mark.parametrize("job", quick(["items", "other"], ["items"]))
def test_a_topic_of_another_table_is_refused_and_its_publisher_goes_on(
    broker: Broker, topic: str, start: Start, table: SmallTable, job: str
) -> None:
    publisher = start(table="ours")
    publish(publisher, table.commit(50))
    with pytest.raises(PublisherFailed, match=f"sink_taken: topic '{topic}' has the changelog of"):
        start(job=job, table="theirs", transactional_id="retally-items")
    publish(publisher, table.commit(50))
    assert_exactly_the_changelog(broker.address, topic, table)


def test_a_table_behind_its_topic_is_told_so_and_nobody_is_fenced(
    broker: Broker, topic: str, start: Start, table: SmallTable
) -> None:
    publisher = start(table="ours")
    publish(publisher, table.commit(50), table.commit(50))
    restored = Publisher(configuration(broker.address, topic, table="ours", newest=1))
    try:
        (position,) = restored.start(WAIT_SECONDS).topics
        assert position.epoch == 2
    finally:
        restored.kill()
    publish(publisher, table.commit(50))
    assert_exactly_the_changelog(broker.address, topic, table)


def test_one_that_loses_its_id_to_nobody_who_publishes_may_start_again(
    broker: Broker, topic: str, start: Start, table: SmallTable
) -> None:
    publisher = start(table="ours")
    publish(publisher, table.commit(50))
    fence(broker, configuration(broker.address, topic).transactional_id)
    publisher.send(table.commit(50))
    failed_with(publisher, "displaced")
    again = start(table="ours")
    assert again.published == 1
    publish(again, table.epochs[1])
    assert_exactly_the_changelog(broker.address, topic, table)


def test_a_topic_that_becomes_the_first_goes_on_where_it_is(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    marks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The view of the first topic is dropped, later another one comes before the one that stays."""
    left, new = f"{topic}-left", f"{topic}-new"
    ours = {"table": "ours", "transactional_id": f"retally-{topic}"}

    def of_both(epoch: EpochToPublish) -> EpochToPublish:
        return msgspec.structs.replace(epoch, files=2 * epoch.files)

    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1@2")
    both = start(**ours, sinks=[sink_topic(topic), sink_topic(left)])
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    publish(both, of_both(table.commit(50)))
    both.send(of_both(table.commit(50)))
    wait_until(lambda: list(marks.iterdir()))
    assert both.pid is not None
    os.kill(both.pid, signal.SIGSTOP)
    successor = start(**ours, sinks=[sink_topic(left)], generation=2)
    assert successor.published == 1
    publish(successor, table.epochs[1], table.commit(50))
    os.kill(both.pid, signal.SIGCONT)
    failed_with(both, "fenced")
    assert_exactly_the_changelog(broker.address, left, table)
    successor.stop()

    # A topic that joins as the first one has no progress, and the other one has.
    joined = start(**ours, sinks=[sink_topic(new), sink_topic(left)], generation=3)
    publish(joined, *map(of_both, (*table.epochs, table.commit(50))))
    for name in (new, left):
        assert_exactly_the_changelog(broker.address, name, table)


@pytest.mark.slow
def test_a_view_does_not_continue_in_the_topic_of_another_one(
    topic: str, start: Start, table: SmallTable
) -> None:
    """The other view was dropped, or the two have swapped their topics."""
    low, top, query = (sink_topic(topic, view=view) for view in ("low", "top", msgspec.UNSET))
    publish(start(sinks=[low]), table.commit(20))
    for sink in (top, query):
        with pytest.raises(PublisherFailed, match=r"has the changelog of view 'low' of this job"):
            start(sinks=[sink], generation=2)
    publish(start(sinks=[low], generation=2), table.commit(20))


@pytest.mark.slow
def test_the_query_of_a_job_may_get_views_beside_it(
    topic: str, start: Start, table: SmallTable
) -> None:
    for number, view in enumerate((msgspec.UNSET, "", msgspec.UNSET, "")):
        sink = sink_topic(topic, view=view)
        publish(start(sinks=[sink], generation=1 + number), table.commit(20))


def fence(broker: Broker, transactional_id: str) -> None:
    """What a process does that takes the id and ends before it publishes."""
    stray = Producer({"bootstrap.servers": broker.address, "transactional.id": transactional_id})
    stray.init_transactions(WAIT_SECONDS)


@pytest.mark.slow
def test_a_machine_that_slept_through_its_transaction_goes_on(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    marks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker aborts the transaction and fences the producer, though nobody took over."""
    with_limits(monkeypatch, "TRANSACTION_TIMEOUT_MS = 1_000")
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1.5@2")
    publisher = start()
    publish(publisher, table.commit(100))
    publisher.send(table.commit(100))
    wait_until(lambda: transaction_open(broker, topic))
    assert list(marks.iterdir())
    assert publisher.pid is not None
    before = len(records(broker.address, topic, while_open=True))
    os.kill(publisher.pid, signal.SIGSTOP)
    wait_until(lambda: not transaction_open(broker, topic))
    os.kill(publisher.pid, signal.SIGCONT)
    assert publisher.flush(WAIT_SECONDS)
    assert len(records(broker.address, topic)) > before
    assert_exactly_the_changelog(broker.address, topic, table)


def with_limits(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """The process as it is, with another bound."""
    program = (
        f"from schemas import limits; limits.{setting};"
        "from jobs.edge.publisher.process import main; main()"
    )
    monkeypatch.setattr(kafka_publisher, "COMMAND", (sys.executable, "-c", program))


def transaction_open(broker: Broker, topic: str) -> bool:
    client = KafkaAdminClient(bootstrap_servers=[broker.address])
    try:
        (found,) = client.describe_transactions([f"retally-{topic}"]).values()
        return bool(found.state == TransactionState.ONGOING)
    finally:
        client.close()


def test_an_older_generation_does_not_start(start: Start) -> None:
    start(generation=5).stop()
    with pytest.raises(PublisherFailed, match="generation 5"):
        start(generation=4)
