"""Reading a range: exactly the planned records, or the reason why not."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaAdminClient, TopicPartition

from jobs.core.formats.message_scanner import MessageScanner, ScanRules, load_scanner
from jobs.core.formats.table_filter import TableFilter
from jobs.core.kernels import codes, messages
from jobs.core.plan.tree import Column
from jobs.edge.kafka import range_consumer
from jobs.edge.kafka.array_client import can_read_arrays
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeTimedOut, RangeUnreadable, read_ranges, read_records
from jobs.edge.kafka.records import VALUE_BYTES_READ
from jobs.edge.process.broker import Broker
from schemas.types.sql_types import SqlType
from tests.support.jobs.running_job import create_topic, produce

pytestmark = pytest.mark.broker

COLUMN = Column("n", SqlType.parse("INT"))
TABLES = TableFilter(None, None)
RULES = ScanRules(codes.CANAL, TABLES, TABLES.read_header)


@pytest.fixture(params=["arrays", "messages"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test reads into arrays, and as on a host without kernels."""
    if request.param == "messages":
        monkeypatch.setattr(range_consumer, "can_read_arrays", lambda: False)
    elif not can_read_arrays():
        pytest.skip("this host has no kernels, or runs them uncompiled")
    return str(request.param)


def connection(broker: Broker) -> Mapping[str, str]:
    return {"bootstrap.servers": broker.address}


def read(broker: Broker, topic: str, start: int, end: int, partition: int = 0) -> list[bytes]:
    planned = OffsetRange(topic, partition, start, end)
    found = list(read_ranges(connection(broker), (planned,), seconds_max=20))
    assert all(each == planned for each, _ in found)
    records = [record for _, records in found for record in records]
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    return [record.value or b"" for record in records]


def written(broker: Broker, topic: str, count: int) -> list[bytes]:
    """Numbers as values in partition 0, and others in partition 1."""
    create_topic(broker.address, topic, 2)
    values = [b"%d" % number for number in range(count)]
    produce(broker.address, topic, [(0, value) for value in values])
    produce(broker.address, topic, [(1, b"other " + value) for value in values])
    return values


def test_a_range_is_its_records_and_no_others_however_often_it_is_read(
    broker: Broker, topic: str
) -> None:
    values = written(broker, topic, 10_000)
    for start, end in ((0, 10_000), (17, 18), (3, 9_999), (9_999, 10_000), (0, 5), (4_000, 8_001)):
        assert read(broker, topic, start, end) == values[start:end]
        assert read(broker, topic, start, end, 1) == [b"other " + v for v in values[start:end]]


def test_of_a_value_that_is_too_long_to_be_parsed_the_rest_is_not_copied(
    broker: Broker, topic: str
) -> None:
    create_topic(broker.address, topic, 1)
    client = Producer(
        {
            "bootstrap.servers": broker.address,
            "compression.type": "gzip",
            "message.max.bytes": 10**9,
        }
    )
    for value in (b"before", b"a" * (5 * VALUE_BYTES_READ), b"after"):
        client.produce(topic, value, partition=0)
    assert client.flush(60) == 0
    values = read(broker, topic, 0, 3)
    assert values == [b"before", b"a" * VALUE_BYTES_READ, b"after"]


def test_ranges_of_several_partitions_are_read_together(broker: Broker, topic: str) -> None:
    values = written(broker, topic, 10_000)
    for first, second in ((17, 9_990), (9_000, 3), (0, 9_000), (9_999, 0)):
        planned = (
            OffsetRange(topic, 0, first, min(first + 5_000, 10_000)),
            OffsetRange(topic, 1, second, second + 5),
        )
        found: dict[OffsetRange, list[bytes]] = {each: [] for each in planned}
        for each, records in read_ranges(connection(broker), planned, seconds_max=5):
            found[each] += [record.value or b"" for record in records]
        assert found[planned[0]] == values[first : planned[0].end]
        assert found[planned[1]] == [b"other " + v for v in values[second : second + 5]]


def test_what_the_caller_takes_for_records_is_no_silence(broker: Broker, topic: str) -> None:
    written(broker, topic, 3)
    planned = OffsetRange(topic, 0, 0, 3)
    for _, records in read_ranges(connection(broker), (planned,), seconds_max=1):
        assert len(records) == 3
        time.sleep(1.5)  # as the first task does, which compiles kernels on a busy machine


def test_a_range_that_cannot_be_read_is_named_among_others(broker: Broker, topic: str) -> None:
    written(broker, topic, 3)
    planned = OffsetRange(topic, 0, 0, 3), OffsetRange(topic, 1, 0, 5)
    with pytest.raises(RangeTimedOut, match=r"/1 \[0, 5\): nothing came for 1 s after offset 3"):
        list(read_ranges(connection(broker), planned, seconds_max=1))


def test_offsets_without_records_are_passed_over_at_the_end_too(broker: Broker, topic: str) -> None:
    create_topic(broker.address, topic, 1)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions()
    for value, end in ((b"a", "commit"), (b"lost", "abort"), (b"b", "commit")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        producer.commit_transaction() if end == "commit" else producer.abort_transaction()
    began = time.monotonic()
    assert read(broker, topic, 0, 6) == [b"a", b"b"]
    assert read(broker, topic, 1, 4) == []
    assert read(broker, topic, 5, 6) == []
    assert time.monotonic() - began < 10


def test_records_that_retention_took_are_named_and_not_skipped(broker: Broker, topic: str) -> None:
    written(broker, topic, 10)
    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    admin.delete_records({TopicPartition(topic, 0): 4})
    admin.close()
    with pytest.raises(RangeUnreadable, match=r"/0 \[0, 10\): the topic no longer has"):
        read(broker, topic, 0, 10)
    assert len(read(broker, topic, 4, 10)) == 6


def test_a_broker_that_is_not_there_is_the_reason() -> None:
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(RangeTimedOut, match="nothing came for 1 s"):
        list(read_ranges(nobody, (OffsetRange("t", 0, 0, 1),), seconds_max=1))


def test_keys_values_times_and_what_is_missing_are_read(
    broker: Broker, topic: str, way: str
) -> None:
    create_topic(broker.address, topic, 1)
    sent = [(b"k", b"v" * 70_000), (None, b"v"), (b"k", None), (b"", b""), (None, None)]
    producer = Producer({"bootstrap.servers": broker.address, "compression.type": "zstd"})
    for number, (key, value) in enumerate(sent):
        producer.produce(topic, value, key, 0, timestamp=1_700_000_000_000 + number)
    producer.flush()
    planned = OffsetRange(topic, 0, 0, len(sent))
    records = [
        record
        for _, records in read_ranges(connection(broker), (planned,), seconds_max=5)
        for record in records
    ]
    assert [(record.key, record.value) for record in records] == sent
    assert [record.timestamp_ms for record in records] == [
        1_700_000_000_000 + number for number in range(len(sent))
    ]


def test_records_by_hand_have_their_headers(broker: Broker, topic: str) -> None:
    create_topic(broker.address, topic, 1)
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"v", partition=0, headers=[("a", b"1"), ("b", None)])
    producer.flush()
    (records,) = read_records(connection(broker), OffsetRange(topic, 0, 0, 1), seconds_max=5)
    assert list(records[0].headers) == [("a", b"1"), ("b", None)]


def test_an_option_that_the_client_does_not_know_is_named(broker: Broker) -> None:
    unknown = {**connection(broker), "no.such.option": "1"}
    with pytest.raises(KafkaException, match=r"no\.such\.option"):
        list(read_ranges(unknown, (OffsetRange("t", 0, 0, 1),), seconds_max=1))


def test_no_kernel_is_compiled_for_what_was_read(broker: Broker, topic: str) -> None:
    written(broker, topic, 10)
    assert load_scanner()
    before = list(messages.scan.signatures)  # type: ignore[attr-defined]
    scanner = MessageScanner((COLUMN,), (0,), RULES)
    for _, records in read_ranges(connection(broker), (OffsetRange(topic, 0, 0, 10),)):
        scanner.scan_buffer(records.buffer, records.starts)
    assert messages.scan.signatures == before  # type: ignore[attr-defined]
