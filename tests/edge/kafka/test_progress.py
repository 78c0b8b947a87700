"""The progress topic of another job, read from a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from jobs.core.publish.protocol import Progress
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.progress import ProgressReader, ProgressUnreadable
from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import create_topic

pytestmark = pytest.mark.broker
WAIT_SECONDS = 60


@contextmanager
def reading(broker: Broker, topic: str) -> Iterator[ProgressReader]:
    reader = ProgressReader({"bootstrap.servers": broker.address}, topic)
    try:
        yield reader
    finally:
        reader.close()


def producer_of(broker: Broker, topic: str) -> Producer:
    options = {"bootstrap.servers": broker.address, "transactional.id": f"{topic}-writer"}
    producer = Producer(options)
    producer.init_transactions(WAIT_SECONDS)
    return producer


def write(producer: Producer, topic: str, watermark: int, records: int = 0) -> None:
    """Begin a transaction with some results and the progress after them."""
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, b"{}", partition=number % 2)
    progress = json.dumps({"epoch": 1, "watermark": watermark, "status": "active"})
    producer.produce(f"{topic}-progress", progress.encode(), key=b"items", partition=0)
    producer.flush(WAIT_SECONDS)


def await_progress(reader: ProgressReader) -> Progress:
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        found = reader.read()
        if found is not None:
            return found
        time.sleep(0.05)
    pytest.fail("no progress came")


def test_the_first_read_has_the_newest_committed_progress(broker: Broker, topic: str) -> None:
    create_topic(broker.address, topic, 2)
    create_topic(broker.address, f"{topic}-progress", 1)
    producer = producer_of(broker, topic)
    for watermark in (1, 2, 3):
        write(producer, topic, watermark, records=4)
        producer.commit_transaction(WAIT_SECONDS)
    with reading(broker, topic) as reader:
        found = reader.read()
        assert found is not None
        assert found.watermark == 3
        assert reader.read() is None
        write(producer, topic, 4)
        assert reader.read() is None, "its transaction is open"
        producer.abort_transaction(WAIT_SECONDS)
        write(producer, topic, 5)
        producer.commit_transaction(WAIT_SECONDS)
        assert await_progress(reader).watermark == 5


def test_an_empty_progress_topic_has_no_progress_yet(broker: Broker, topic: str) -> None:
    create_topic(broker.address, f"{topic}-progress", 1)
    with reading(broker, topic) as reader:
        assert reader.read() is None


def test_ends_with_open_transactions_cover_records_that_no_reader_sees_yet(
    broker: Broker, topic: str
) -> None:
    create_topic(broker.address, topic, 2)
    create_topic(broker.address, f"{topic}-progress", 1)
    producer = producer_of(broker, topic)
    write(producer, topic, 1, records=4)
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        assert admin.end_offsets(topic) == {0: 0, 1: 0}
        assert admin.end_offsets(topic, read_committed=False) == {0: 2, 1: 2}
    producer.abort_transaction(WAIT_SECONDS)


@pytest.mark.parametrize("value", [b"no json", b'{"watermark": "soon"}'])
def test_a_record_that_is_no_progress_is_named(broker: Broker, topic: str, value: bytes) -> None:
    create_topic(broker.address, f"{topic}-progress", 1)
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(f"{topic}-progress", value, partition=0)
    producer.flush(WAIT_SECONDS)
    with (
        reading(broker, topic) as reader,
        pytest.raises(ProgressUnreadable, match="no progress of a job"),
    ):
        reader.read()


def test_a_topic_of_no_job_has_no_progress_topic(broker: Broker, topic: str) -> None:
    create_topic(broker.address, topic, 1)
    with pytest.raises(ProgressUnreadable, match=f"{topic}-progress"):
        ProgressReader({"bootstrap.servers": broker.address}, topic)
