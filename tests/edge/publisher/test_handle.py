"""One publisher against a real broker: nothing lost, nothing twice, and its topics as they must be.

Every test makes epochs of a small table, publishes them, reads the topic as a read_committed
consumer does, and compares with the epochs' own rows. Faults are placed by failpoints, so that
each really happens. Publishers that follow others are in test_successors.py.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.publisher import handle as kafka_publisher
from jobs.edge.publisher.handle import Publisher, PublisherFailed
from schemas import limits
from schemas.table.changelog import SINKS_OF_REGISTRY, SinkFormat, progress_topic
from tests.support.published_changelog import (
    WAIT_SECONDS,
    Publishing,
    Row,
    Seen,
    SmallTable,
    failed_with,
    publish,
    wait_until,
)
from tests.support.publisher_configuration import PARTITIONS, configuration, sink_topic
from tests.support.sampling import quick

GONE_SECONDS_MAX = 10
CHECKOUT = Path(__file__).resolve().parents[3]


# --- the formats ------------------------------------------------------------------------------


def test_the_changelog_arrives_once_in_order_with_updates_together(made: Publishing) -> None:
    publisher = made.start()
    publish(publisher, *(made.table.commit(size) for size in (300, 1, 0, 200)))
    assert publisher.published == 4
    publisher.stop()
    made.must_be_exact()


def latest(image: dict[bytes, Row], record: Seen) -> None:
    """One record of any format, folded as its consumers do."""
    value = record.value
    if value is None:
        image.pop(record.key)
    elif "row" in value:
        if value["op"] in ("-U", "-D"):
            assert image.pop(record.key) == value["row"]
        else:
            assert image.setdefault(record.key, value["row"]) == value["row"]
    elif "type" in value:
        (row,) = value["data"]
        row = {"name": row["name"], "n": int(row["n"])}
        if value["type"] == "INSERT":
            assert record.key not in image
            image[record.key] = row
        elif value["type"] == "UPDATE":
            (old,) = value["old"]
            former = {**row, **{name: int(text) for name, text in old.items()}}
            assert image[record.key] == former
            image[record.key] = row
        else:
            assert image.pop(record.key) == row
    elif "source" in value:
        assert image.pop(record.key, None) == value["before"]
        if value["after"] is not None:
            image[record.key] = value["after"]
    else:
        image[record.key] = value


JSON = [name for name in get_args(SinkFormat) if name not in SINKS_OF_REGISTRY]


@pytest.mark.parametrize("name", quick(JSON, ["changelog-json", "upsert-json"]))
def test_the_folded_topic_is_the_table(made: Publishing, name: SinkFormat) -> None:
    publish(
        made.start(sinks=[sink_topic(made.topic, format=name)]),
        *(made.table.commit(100) for _ in range(4)),
    )
    image: dict[bytes, Row] = {}
    for record in made.records():
        latest(image, record)
    assert sorted(row["name"] for row in image.values()) == sorted(made.table.rows)
    assert {row["name"]: row["n"] for row in image.values()} == made.table.rows


def test_topics_are_created_as_their_contents_need(made: Publishing) -> None:
    made.start(sinks=[sink_topic(made.topic, format="upsert-json")])
    with KafkaAdmin({"bootstrap_servers": [made.address]}) as admin:
        changelog, progress = admin.topic(made.topic), admin.topic(progress_topic(made.topic))
    assert changelog is not None
    assert progress is not None
    assert (changelog.partitions, progress.partitions) == (PARTITIONS, 1)
    assert policies(made.address, made.topic, progress_topic(made.topic)) == ["compact", "compact"]


def policies(address: str, *topics: str) -> list[str]:
    client = KafkaAdminClient(bootstrap_servers=[address])
    try:
        found = client.describe_configs([ConfigResource("topic", name) for name in topics])
        return [found["topic"][name]["cleanup.policy"]["value"] for name in topics]
    finally:
        client.close()


# --- progress ---------------------------------------------------------------------------------


def test_the_watermark_of_an_epoch_follows_after_all_its_rows(made: Publishing) -> None:
    publish(made.start(transaction_records=100), made.table.commit(20), made.table.commit(200))
    progress = made.progress()
    assert [each.complete for each in progress[-3:]] == [False, False, True]
    assert [each.watermark for each in progress[-3:]] == [1_000, 1_000, 2_000]
    assert [each.epoch for each in progress[-3:]] == [2, 2, 2]
    last = progress[-1]
    assert (last.status, last.offsets, last.generation) == ("active", {"t": {"0": 2}}, 1)


def test_the_progress_has_for_each_epoch_when_it_was_appended_committed_and_published(
    made: Publishing,
) -> None:
    began = int(time.time() * 1_000)
    publisher = made.start()
    publish(publisher, *(made.table.commit(5) for _ in range(6)))  # several in one transaction
    found = [times for each in made.progress() for times in each.times]
    assert [times.epoch for times in found] == [1, 2, 3, 4, 5, 6]
    assert [times.appended_ms for times in found] == [4_000 * n for n in range(1, 7)]
    assert [times.committed_ms for times in found] == [5_000 * n for n in range(1, 7)]
    published = [times.published_ms for times in found]
    assert published == sorted(published)
    assert began <= published[0] <= published[-1] <= time.time() * 1_000
    latencies = {times.epoch: times.published_ms - 4_000 * times.epoch for times in found}
    assert publisher.take_latencies() == latencies
    assert publisher.take_latencies() == {}


def test_an_epoch_without_records_has_no_latency(made: Publishing) -> None:
    publisher = made.start()
    publish(publisher, msgspec.structs.replace(made.table.commit(5), appended_ms=None))
    (times,) = made.progress()[-1].times
    assert (times.appended_ms, times.latency_ms) == (None, None)
    assert publisher.take_latencies() == {}


def test_an_epoch_that_would_leave_a_gap_is_refused(made: Publishing) -> None:
    publisher = made.start()
    epochs = [made.table.commit(5) for _ in range(3)]
    publish(publisher, epochs[0])
    publisher.send(epochs[2])
    failed_with(publisher, "publisher-gap")


def test_epochs_that_wait_together_share_a_transaction(
    made: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1@1")
    publish(made.start(), *(made.table.commit(5) for _ in range(12)))
    made.must_be_exact()
    assert len(made.progress()) <= 1 + 4


def test_a_full_backlog_makes_the_driver_wait(
    made: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISH_BACKLOG_EPOCHS_MAX", 2)
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:0.5@1")
    publisher = made.start()
    epochs = [made.table.commit(5) for _ in range(3)]
    started = time.monotonic()
    for epoch in epochs[:2]:
        publisher.send(epoch)
    assert time.monotonic() - started < 0.3
    publisher.send(epochs[2])
    assert time.monotonic() - started > 0.3
    assert publisher.flush(WAIT_SECONDS)


# --- crashes ----------------------------------------------------------------------------------


def test_at_least_once_repeats_only_what_can_be_recognised(
    made: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery: Literal["at_least_once"] = "at_least_once"
    publish(made.start(delivery=delivery), made.table.commit(300))
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_flushed=kill@2")  # @1 is the claim's
    publisher = made.start(delivery=delivery)
    publisher.send(made.table.commit(300))
    failed_with(publisher, "publisher-died")
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    publish(made.start(delivery=delivery), made.table.epochs[1])
    found = made.records()
    assert len(found) > len(made.table.expected())
    once = {(record.epoch, record.seq): record.value for record in found}
    rows = [(*place, value["op"], value["row"]) for place, value in sorted(once.items())]
    assert rows == made.table.expected()


def test_the_publisher_ends_with_its_driver(made: Publishing) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, made.address, made.topic],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive(pid), GONE_SECONDS_MAX)


PARENT = """
import sys, time
from jobs.edge.publisher.handle import Publisher
from tests.support.publisher_configuration import configuration
publisher = Publisher(configuration(*sys.argv[1:]))
publisher.start()
print(publisher.pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.broker
@pytest.mark.slow
def test_the_publisher_survives_a_broker_that_is_killed(tmp_path: Path, topic: str) -> None:
    table = SmallTable(tmp_path)
    with Broker(tmp_path / "broker") as own:
        publisher = Publisher(configuration(own.address, topic))
        publisher.start(WAIT_SECONDS)
        try:
            publish(publisher, table.commit(100))
            own.kill()
            publisher.send(table.commit(100))
            own.start()
            assert publisher.flush(WAIT_SECONDS)
            publish(publisher, table.commit(100))
        finally:
            publisher.kill()
        Publishing(own.address, topic, table).must_be_exact()


# --- the sink's identity ----------------------------------------------------------------------


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=[broker.address])
    yield client
    client.close()


def recreate(client: KafkaAdminClient, topic: str) -> None:
    client.delete_topics([topic])
    wait_until(lambda: client.describe_topics([topic])[0]["error_code"])
    client.create_topics({topic: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)


def test_a_topic_that_is_made_again_stops_a_running_publisher(
    made: Publishing, client: KafkaAdminClient
) -> None:
    publisher = made.start()
    publish(publisher, made.table.commit(5))
    recreate(client, made.topic)
    publisher.send(made.table.commit(5))
    failed_with(publisher, "publisher-sink-changed")
    assert made.records() == []


def test_a_start_refuses_a_topic_that_is_not_the_one_it_knew(
    made: Publishing, client: KafkaAdminClient
) -> None:
    made.start().stop()
    known = client.describe_topics([made.topic])[0]["topic_id"]
    recreate(client, made.topic)
    with pytest.raises(PublisherFailed, match="deleted and created again"):
        made.start(sinks=[sink_topic(made.topic, topic_id=str(known))])


def test_a_start_does_not_create_a_topic_that_was_deleted(
    made: Publishing, client: KafkaAdminClient
) -> None:
    made.start().stop()
    known = client.describe_topics([made.topic])[0]["topic_id"]
    client.delete_topics([made.topic])
    with pytest.raises(PublisherFailed, match="deleted"):
        made.start(sinks=[sink_topic(made.topic, topic_id=str(known))])


def test_more_partitions_stop_the_publisher_before_a_key_moves(
    made: Publishing, client: KafkaAdminClient
) -> None:
    publisher = made.start()
    publish(publisher, made.table.commit(20))
    client.create_partitions({made.topic: PARTITIONS + 1})
    wait_until(lambda: len(client.describe_topics([made.topic])[0]["partitions"]) > PARTITIONS)
    publisher.send(made.table.commit(20))
    failed_with(publisher, "publisher-sink-changed")
    assert {record.epoch for record in made.records()} == {1}


def test_an_unreachable_broker_is_told_in_time() -> None:
    publisher = Publisher(configuration("127.0.0.1:1", "t"))
    with pytest.raises(PublisherFailed, match="publisher-unreachable"):
        publisher.start(2)


def test_it_starts_whatever_others_set_in_the_environment_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's session sets variables while the publisher is started by a thread beside it."""
    monkeypatch.setattr(kafka_publisher, "COMMAND", ["true"])
    ended = threading.Event()

    def set_variables() -> None:
        for number in itertools.count():
            if ended.is_set():
                return
            os.environ[f"RETALLY_TEST_{number % 300}"] = "x" * (number % 50)
            os.environ.pop(f"RETALLY_TEST_{number * 7 % 300}", None)

    before = dict(os.environ)
    thread = threading.Thread(target=set_variables)
    thread.start()
    try:
        for _ in range(60):
            with pytest.raises(PublisherFailed, match="ended with status 0"):
                Publisher(configuration("nowhere:1", "t")).start()
    finally:
        ended.set()
        thread.join()
        for name in set(os.environ) - set(before):
            del os.environ[name]
