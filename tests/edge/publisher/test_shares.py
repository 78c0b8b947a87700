"""Several publishers of a job against a real broker: each row once, and whole epochs only.

As in test_handle.py every test compares the topic with the epochs' own rows. A fault is placed in
share 0 or in its helper by a failpoint, and the mark that it leaves is looked at.
"""

from __future__ import annotations

import io
import os
import signal
from contextlib import suppress
from itertools import product
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient

from jobs.core.publish.protocol import Progress
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.publisher.claims import Claims
from jobs.edge.publisher.handle import Publisher, PublisherFailed
from jobs.edge.publisher.pipes import Inbox
from jobs.edge.publisher.session import Session
from jobs.edge.publisher.topic_writer import SinkTopicWriter
from schemas.table.changelog import progress_topic, shares_topic
from tests.support.published_changelog import (
    HELPER,
    SHARE_0,
    Publishing,
    failed_with,
    place_fault,
    publish,
    records,
    wait_until,
)
from tests.support.publisher_configuration import configuration, sink_topic
from tests.support.sampling import quick

FORMATS = ("changelog-json", "canal-json", "debezium-json", "upsert-json")


def must_be_whole(made: Publishing) -> None:
    """Every epoch that the progress covers is in the topic, as a consumer's page reads it."""
    last = made.progress()[-1]
    whole = (last.epoch or 0) if last.complete else (last.epoch or 0) - 1
    wanted = [(row[0], row[1]) for row in made.table.expected() if row[0] <= whole]

    def found() -> list[tuple[int, int]]:
        seen = records(made.address, made.topic, while_open=True)  # of a killed one, for a while
        return sorted((each.epoch, each.seq) for each in seen if each.epoch <= whole)

    wait_until(lambda: found() == wanted, 10)


# --- without faults ---------------------------------------------------------------------------


def test_two_publishers_write_what_one_writes(made: Publishing) -> None:
    two = made.start(publishers=2, transaction_records=200)
    publish(two, *(made.table.commit(size) for size in (300, 1, 0, 200)))
    assert two.published == 4
    two.stop()
    made.must_be_exact()
    must_be_whole(made)
    alone = Publishing(made.address, f"{made.topic}-alone", made.table)
    one = alone.start(transaction_records=200)
    publish(one, *made.table.epochs)
    one.stop()

    def covered(of: Publishing) -> list[tuple[object, ...]]:
        found = [each for each in of.progress() if each.complete and each.epoch is not None]
        return [(each.epoch, each.watermark, each.offsets, each.status) for each in found]

    assert covered(made)[-1] == covered(alone)[-1]
    keys = {record.key for record in records(made.address, progress_topic(made.topic))}
    assert keys == {b"items"}
    epochs = [each.epoch or 0 for each in made.progress()]
    assert epochs == sorted(epochs)
    with KafkaAdmin({"bootstrap_servers": [made.address]}) as admin:
        assert admin.topic(shares_topic(made.topic)) is not None
        assert admin.topic(shares_topic(alone.topic)) is None


@pytest.mark.parametrize("name", quick(FORMATS, FORMATS[1:2]))
def test_the_records_of_each_format_are_those_of_one_publisher(made: Publishing, name: str) -> None:
    epochs = [made.table.commit(60) for _ in range(3)]
    one = Publishing(made.address, f"{made.topic}-alone", made.table)
    for publishing, publishers in ((made, 3), (one, 1)):
        sink = sink_topic(publishing.topic, format=name)
        publisher = publishing.start(sinks=[sink], publishers=publishers)
        publish(publisher, *epochs)
        publisher.stop()

    def seen(of: Publishing) -> list[tuple[object, ...]]:
        text = [(each.partition, each.key, each.epoch, each.seq) for each in of.records()]
        values = [str(each.value).replace(of.topic, "topic") for each in of.records()]
        return [(*place, value) for place, value in zip(text, values, strict=True)]

    assert seen(made) == seen(one)


def test_the_number_of_publishers_changes_between_runs(made: Publishing) -> None:
    for generation, publishers in enumerate((1, 2, 1, 3, 2), 1):
        publisher = made.start(publishers=publishers, generation=generation)
        publish(publisher, *made.table.epochs, made.table.commit(40), made.table.commit(40))
        publisher.stop()
        must_be_whole(made)
    made.must_be_exact()


def test_several_publishers_at_least_once_repeat_only_what_can_be_recognised(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for generation in (1, 2):
        if generation == 2:
            place_fault(monkeypatch, HELPER, "publish_committed=kill@1")
        publisher = made.start(publishers=2, delivery="at_least_once", generation=generation)
        publisher.send(made.table.commit(100))
        if generation == 1:
            assert publisher.flush(60)
            publisher.stop()
    failed_with(publisher, "publisher-died")
    assert list(marks.iterdir())
    place_fault(monkeypatch, HELPER, "")
    publish(made.start(delivery="at_least_once", generation=3), made.table.epochs[1])
    found = made.records()
    assert len(found) > len(made.table.expected())
    once = {(each.epoch, each.seq): each.value for each in found}
    rows = [(*place, value["op"], value["row"]) for place, value in sorted(once.items())]
    assert rows == made.table.expected()


def test_at_least_once_does_not_need_the_progress_of_helpers(made: Publishing) -> None:
    """A kill while the hand-over is flushed has left the record of share 0 alone."""
    publisher = made.start(delivery="at_least_once")
    publish(publisher, made.table.commit(50))
    publisher.stop()
    half = msgspec.structs.replace(made.progress()[-1], publishers=2)
    producer = Producer({"bootstrap.servers": made.address})
    producer.produce(progress_topic(made.topic), key="items", value=msgspec.json.encode(half))
    producer.flush()
    publisher = made.start(delivery="at_least_once", publishers=2, generation=2)
    assert publisher.published == 1
    publish(publisher, made.table.commit(50))
    made.must_be_exact()


def test_the_progress_inside_an_epoch_has_the_uuid_of_the_epoch_before(made: Publishing) -> None:
    """Epochs wait together, and share 0 has most of their rows: two partitions of three."""
    epochs = [
        msgspec.structs.replace(made.table.commit(50), uuid=f"uuid {number}")
        for number in range(1, 5)
    ]
    half = sum(epoch.rows for epoch in epochs) // 2
    of = configuration(made.address, made.topic, publishers=2, transaction_records=half)
    made.started.append(publisher := Publisher(of))
    publisher.launch()
    publish(publisher, *epochs)
    uuids = {0: ""} | {epoch.epoch: epoch.uuid for epoch in epochs}
    for each in made.progress():
        if each.epoch is not None:
            assert each.uuid == uuids[each.epoch - (not each.complete)]
    assert sorted(publisher.take_latencies()) == [1, 2, 3, 4]
    made.must_be_exact()


def test_an_open_transaction_of_a_helper_hides_no_progress_of_another(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = configuration(broker.address, topic, publishers=3)
    inbox = Inbox(io.BytesIO(msgspec.json.encode(of) + b"\n"))
    writer = SinkTopicWriter(of.job, of.sinks[0])
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        writer.require_shares_topic(admin)
    one, other = (Session(of.of_share(share), inbox) for share in (1, 2))
    one.commit([Progress(epoch=1)])
    monkeypatch.setattr(other, "_commit", other._flush)
    other.commit([Progress(epoch=1)])  # written, and its transaction stays open
    one.commit([Progress(epoch=2)])
    one.abandon()
    again = Session(of.of_share(1), inbox)  # after the end of its last transaction
    assert Claims(of, [writer], inbox).read_share(writer, 1).epoch == 2
    again.abandon()
    other.abandon()


# --- kills ------------------------------------------------------------------------------------

POINTS = [
    "publisher_fenced=kill@1",
    "publish_begun=kill@2",
    "publish_produced=kill@1",
    "publish_produced=kill@2",
    "publish_committed=kill@1",
    "publish_committed=kill@2",
]
PLACES = [(SHARE_0, "publisher_fenced=kill@2"), *product((SHARE_0, HELPER), POINTS)]
KILLS = [(*place, after) for place, after in product(PLACES, (1, 2, 3))]
IN_SHORT = [(HELPER, "publish_committed=kill@2", 1), (SHARE_0, "publish_produced=kill@1", 3)]


@pytest.mark.parametrize(("where", "fault", "after"), quick(KILLS, IN_SHORT))
def test_killed_anywhere_the_next_ones_go_on_without_loss_or_repeat(
    made: Publishing,
    marks: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    fault: str,
    after: int,
) -> None:
    """A share is killed inside a large epoch; the others may be ahead, and their number changes."""
    publish(made.start(publishers=2, transaction_records=150), made.table.commit(50))
    made.started.pop().stop()
    place_fault(monkeypatch, where, fault)
    with suppress(PublisherFailed):  # if it is killed at its start
        made.start(publishers=2, transaction_records=150, generation=2)
    for changes in (600, 50):
        epoch = made.table.commit(changes)
        with suppress(PublisherFailed):
            made.started[-1].send(epoch)
    failed_with(made.started[-1], "publisher-died")
    assert list(marks.iterdir())
    must_be_whole(made)
    place_fault(monkeypatch, where, "")
    for generation, publishers in ((3, after), (4, 2)):
        again = made.start(publishers=publishers, transaction_records=150, generation=generation)
        covered = again.published or 0
        publish(again, *made.table.epochs[covered:], made.table.commit(50))
        again.stop()
    made.must_be_exact()


@pytest.mark.slow
def test_killed_between_two_hand_overs_nothing_is_forgotten(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper is ahead by an epoch; each start after it dies before that epoch is published."""
    place_fault(monkeypatch, SHARE_0, "publish_produced=kill@2")
    publisher = made.start(publishers=2)
    publish(publisher, made.table.commit(50))
    publisher.send(made.table.commit(300))
    failed_with(publisher, "publisher-died")
    for generation, publishers in enumerate((1, 3, 1, 2), 2):
        place_fault(monkeypatch, SHARE_0, "publish_produced=kill@1")
        publisher = made.start(publishers=publishers, generation=generation)
        publisher.send(made.table.epochs[1])
        failed_with(publisher, "publisher-died")
        assert made.progress()[-1].epoch == 1
    assert len(list(marks.iterdir())) == 5
    place_fault(monkeypatch, SHARE_0, "")
    publish(made.start(generation=9), made.table.epochs[1], made.table.commit(50))
    made.must_be_exact()


# --- fencing ----------------------------------------------------------------------------------


def helper_of(pid: int) -> int:
    (found,) = [
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if (text := read(stat)) and text.rpartition(")")[2].split()[1] == str(pid)
    ]
    return found


def read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended meanwhile
        return ""


@pytest.mark.parametrize("publishers", quick([1, 2], [1]))
def test_a_helper_that_outlives_its_share_0_is_fenced(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch, publishers: int
) -> None:
    """The whole job is replaced while the helper stands still inside a transaction."""
    place_fault(monkeypatch, HELPER, "publish_produced=stall:0.5@2")
    first = made.start(publishers=2)
    publish(first, made.table.commit(50))
    first.send(made.table.commit(300))
    wait_until(lambda: list(marks.iterdir()))
    assert first.pid is not None
    helper = helper_of(first.pid)
    os.kill(helper, signal.SIGSTOP)
    try:
        os.kill(first.pid, signal.SIGSTOP)
        place_fault(monkeypatch, HELPER, "")
        successor = made.start(publishers=publishers, generation=2)
        publish(successor, made.table.epochs[1], made.table.commit(50))
        must_be_whole(made)
        os.kill(helper, signal.SIGCONT)  # it commits, before it sees that its parent is stopped
        os.kill(first.pid, signal.SIGCONT)
        failed_with(first, "fenced")
    finally:
        first.kill()
    publish(successor, made.table.commit(50))
    assert successor.failure is None
    made.must_be_exact()


def test_a_topic_of_shares_that_was_deleted_stops_the_job(made: Publishing) -> None:
    publisher = made.start(publishers=2)
    publish(publisher, made.table.commit(20))
    publisher.stop()
    client = KafkaAdminClient(bootstrap_servers=[made.address])
    try:
        client.delete_topics([shares_topic(made.topic)])
    finally:
        client.close()
    with KafkaAdmin({"bootstrap_servers": [made.address]}) as admin:
        wait_until(lambda: admin.topic(shares_topic(made.topic)) is None)
    with pytest.raises(PublisherFailed, match="lacks the progress of publisher 1: it was deleted"):
        made.start(publishers=1, generation=2)


def test_the_position_of_a_topic_has_what_its_helper_is_ahead(
    made: Publishing, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a table that was restored to before that is refused."""
    place_fault(monkeypatch, SHARE_0, "publish_produced=kill@2")
    publisher = made.start(publishers=2)
    publish(publisher, msgspec.structs.replace(made.table.commit(50), uuid="first"))
    publisher.send(msgspec.structs.replace(made.table.commit(50), uuid="second"))
    failed_with(publisher, "publisher-died")
    assert list(marks.iterdir())
    place_fault(monkeypatch, SHARE_0, "")
    (position,) = made.start_with(generation=2).topics
    assert (position.published, position.newest) == (1, 2)
    assert position.ahead == [(3, -1, "second")]
    found = made.records(shares_topic(made.topic))
    assert {record.key for record in found} == {b"items/1"}
    assert all(msgspec.convert(each.value, Progress).publishers == 2 for each in found)
