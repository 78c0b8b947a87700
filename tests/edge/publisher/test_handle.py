"""The publisher against a real broker: nothing lost, nothing twice, whatever is killed when.

Every test makes epochs of a small table, publishes them, reads the topic as a read_committed
consumer does, and compares with the epochs' own rows. Faults are placed by failpoints, so that
each really happens; the mark that it leaves is looked at.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, TransactionState

from jobs.core.publish.kafka_partition import partition_of
from jobs.core.publish.protocol import EpochToPublish, Progress, SinkOfView
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.publisher import handle as kafka_publisher
from jobs.edge.publisher.handle import Publisher, PublisherFailed
from schemas import limits
from schemas.table.changelog import SinkFormat, progress_topic, record_key
from tests.support.publisher_configuration import PARTITIONS, configuration
from tests.support.sampling import quick

WAIT_SECONDS = 60
GONE_SECONDS_MAX = 10
CHECKOUT = Path(__file__).resolve().parents[3]
Row = dict[str, Any]
Start = Callable[..., Publisher]


# --- epochs of a small table ------------------------------------------------------------------


@dataclass
class SmallTable:
    """SELECT name, SUM(n) AS n FROM t GROUP BY name, changing; and the epochs that say how."""

    folder: Path
    random: random.Random = field(default_factory=lambda: random.Random(7))
    rows: dict[str, int] = field(default_factory=dict)
    epochs: list[EpochToPublish] = field(default_factory=list)
    changelog: list[tuple[int, int, str, Row]] = field(default_factory=list)  # epoch seq op row

    def commit(self, changes: int) -> EpochToPublish:
        """An epoch that touches about so many groups; its rows lie in two files by bucket."""
        epoch = len(self.epochs) + 1
        buckets: dict[int, list[tuple[str, str, int]]] = {bucket: [] for bucket in range(4)}
        for name in self.random.sample([f"größe-{n}" for n in range(2 * changes)], changes):
            rows = buckets[len(name) % 2 + 2 * (hash_of(name) % 2)]
            rows += self._change(name)
        files = []
        for owned in ((0, 3), (1, 2)):
            path = self.folder / f"{epoch}-{owned[0]}.parquet"
            self._write(path, epoch, {bucket: buckets[bucket] for bucket in owned})
            files.append(str(path))
        count = sum(map(len, buckets.values()))
        made = EpochToPublish(
            epoch=epoch,
            files=files,
            rows=count,
            watermark=1_000 * epoch,
            offsets={"t": {"0": epoch}},
            committed_ms=5_000 * epoch,
            appended_ms=4_000 * epoch,
        )
        self.epochs.append(made)
        return made

    def _change(self, name: str) -> list[tuple[str, str, int]]:
        value = self.random.randrange(1_000)
        if name not in self.rows:
            self.rows[name] = value
            return [("+I", name, value)]
        before = self.rows[name]
        if self.random.random() < 0.3:
            del self.rows[name]
            return [("-D", name, before)]
        self.rows[name] = value
        return [("-U", name, before), ("+U", name, value)]

    def _write(
        self, path: Path, epoch: int, buckets: dict[int, list[tuple[str, str, int]]]
    ) -> None:
        rows = [
            (op, epoch, bucket * 2**32 + n, name, value)
            for bucket, changes in sorted(buckets.items())
            for n, (op, name, value) in enumerate(changes)
        ]
        self.changelog += [
            (epoch, seq, op, {"name": name, "n": value}) for op, epoch, seq, name, value in rows
        ]
        types = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.int64())
        columns = [[row[at] for row in rows] for at in range(len(types))]
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        pq.write_table(pa.table(arrays, names=["op", "epoch", "seq", "name", "n"]), path)

    def expected(self) -> list[tuple[int, int, str, Row]]:
        return sorted(self.changelog, key=lambda row: row[:2])


def hash_of(name: str) -> int:
    return sum(name.encode())


# --- the topic, as a consumer sees it ---------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    partition: int
    offset: int
    key: bytes
    value: Any
    epoch: int
    seq: int


def settled(address: str, topic: str) -> bool:
    """Commits are answered a moment before the last partition knows of them."""
    with KafkaAdmin({"bootstrap_servers": [address]}) as admin:
        return admin.end_offsets(topic) == admin.end_offsets(topic, read_committed=False)


def records(address: str, topic: str, *, while_open: bool = False) -> list[Seen]:
    """All committed records, partition by partition in order of their offsets."""
    if not while_open:
        wait_until(lambda: settled(address, topic))
    consumer = KafkaConsumer(
        bootstrap_servers=[address],
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        places = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found = []
        deadline = time.monotonic() + WAIT_SECONDS
        while any(consumer.position(place) < ends[place] for place in places):
            assert time.monotonic() < deadline
            for batch in consumer.poll(timeout_ms=200).values():
                found += [seen(record) for record in batch]
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def seen(record: Any) -> Seen:
    headers = {name: int(text) for name, text in record.headers}
    value = None if record.value is None else json.loads(record.value)
    epoch, seq = headers.get("epoch", -1), headers.get("seq", -1)
    return Seen(record.partition, record.offset, record.key, value, epoch, seq)


def progress_of(address: str, topic: str) -> list[Progress]:
    return [
        msgspec.convert(record.value, Progress)
        for record in records(address, progress_topic(topic))
    ]


def assert_exactly_the_changelog(address: str, topic: str, table: SmallTable) -> None:
    """Every row once, in its key's partition, in order there, -U directly before its +U."""
    found = records(address, topic)
    in_order = sorted(found, key=lambda record: (record.epoch, record.seq))
    rows = [
        (record.epoch, record.seq, record.value["op"], record.value["row"]) for record in in_order
    ]
    assert rows == table.expected()
    for record in found:
        assert record.key == record_key({"name": record.value["row"]["name"]})
        assert record.partition == partition_of(record.key, PARTITIONS)
        assert (record.value["epoch"], record.value["seq"]) == (record.epoch, record.seq)
    for before, after in pairwise(found):
        if before.partition == after.partition:
            assert (before.epoch, before.seq) < (after.epoch, after.seq)
        if before.value["op"] == "-U":
            assert (after.partition, after.key, after.value["op"]) == (
                before.partition,
                before.key,
                "+U",
            )


# --- fixtures ---------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return SmallTable(tmp_path)


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where failpoints leave their marks: a fault that was planned and not met is a failure."""
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("RETALLY_FAILPOINT_MARKS", str(folder))
    return folder


@pytest.fixture
def start(broker: Broker, topic: str) -> Iterator[Start]:
    """Starts publishers, and lets none of them outlive the test."""
    started: list[Publisher] = []

    def run(**changed: Any) -> Publisher:
        publisher = Publisher(configuration(broker.address, topic, **changed))
        started.append(publisher)
        publisher.start(WAIT_SECONDS)
        return publisher

    yield run
    for publisher in started:
        publisher.kill()


def publish(publisher: Publisher, *epochs: EpochToPublish) -> None:
    for epoch in epochs:
        publisher.send(epoch)
    assert publisher.flush(WAIT_SECONDS)


def wait_until(true: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.02)


def failed_with(publisher: Publisher, code: str) -> None:
    wait_until(lambda: publisher.failure)
    assert publisher.failure is not None
    assert publisher.failure.code == code, publisher.failure


# --- the formats ------------------------------------------------------------------------------


def test_the_changelog_arrives_once_in_order_with_updates_together(
    broker: Broker, topic: str, start: Start, table: SmallTable
) -> None:
    publisher = start()
    publish(publisher, *(table.commit(size) for size in (300, 1, 0, 200)))
    assert publisher.published == 4
    publisher.stop()
    assert_exactly_the_changelog(broker.address, topic, table)


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


@pytest.mark.parametrize("name", ["changelog-json", "canal-json", "debezium-json", "upsert-json"])
def test_the_folded_topic_is_the_table(
    broker: Broker, topic: str, start: Start, table: SmallTable, name: SinkFormat
) -> None:
    publish(start(format=name), *(table.commit(100) for _ in range(4)))
    image: dict[bytes, Row] = {}
    for record in records(broker.address, topic):
        latest(image, record)
    assert sorted(row["name"] for row in image.values()) == sorted(table.rows)
    assert {row["name"]: row["n"] for row in image.values()} == table.rows


def test_topics_are_created_as_their_contents_need(
    broker: Broker, topic: str, start: Start
) -> None:
    start(format="upsert-json")
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        changelog, progress = admin.topic(topic), admin.topic(progress_topic(topic))
    assert changelog is not None
    assert progress is not None
    assert (changelog.partitions, progress.partitions) == (PARTITIONS, 1)
    assert policies(broker, topic, progress_topic(topic)) == ["compact", "compact"]


def policies(broker: Broker, *topics: str) -> list[str]:
    client = KafkaAdminClient(bootstrap_servers=[broker.address])
    try:
        found = client.describe_configs([ConfigResource("topic", name) for name in topics])
        return [found["topic"][name]["cleanup.policy"]["value"] for name in topics]
    finally:
        client.close()


# --- progress ---------------------------------------------------------------------------------


def test_the_watermark_of_an_epoch_follows_after_all_its_rows(
    broker: Broker, topic: str, start: Start, table: SmallTable
) -> None:
    publish(start(transaction_records=100), table.commit(20), table.commit(200))
    progress = progress_of(broker.address, topic)
    assert [each.complete for each in progress[-3:]] == [False, False, True]
    assert [each.watermark for each in progress[-3:]] == [1_000, 1_000, 2_000]
    assert [each.epoch for each in progress[-3:]] == [2, 2, 2]
    last = progress[-1]
    assert (last.status, last.offsets, last.generation) == ("active", {"t": {"0": 2}}, 1)


def test_the_progress_has_for_each_epoch_when_it_was_appended_committed_and_published(
    broker: Broker, topic: str, start: Start, table: SmallTable
) -> None:
    began = int(time.time() * 1_000)
    publisher = start()
    publish(publisher, *(table.commit(5) for _ in range(6)))  # several in one transaction
    found = [times for each in progress_of(broker.address, topic) for times in each.times]
    assert [times.epoch for times in found] == [1, 2, 3, 4, 5, 6]
    assert [times.appended_ms for times in found] == [4_000 * n for n in range(1, 7)]
    assert [times.committed_ms for times in found] == [5_000 * n for n in range(1, 7)]
    published = [times.published_ms for times in found]
    assert published == sorted(published)
    assert began <= published[0] <= published[-1] <= time.time() * 1_000
    latencies = {times.epoch: times.published_ms - 4_000 * times.epoch for times in found}
    assert publisher.take_latencies() == latencies
    assert publisher.take_latencies() == {}


def test_an_epoch_without_records_has_no_latency(
    broker: Broker, topic: str, start: Start, table: SmallTable
) -> None:
    publisher = start()
    publish(publisher, msgspec.structs.replace(table.commit(5), appended_ms=None))
    (times,) = progress_of(broker.address, topic)[-1].times
    assert (times.appended_ms, times.latency_ms) == (None, None)
    assert publisher.take_latencies() == {}


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


def test_an_epoch_that_would_leave_a_gap_is_refused(start: Start, table: SmallTable) -> None:
    publisher = start()
    epochs = [table.commit(5) for _ in range(3)]
    publish(publisher, epochs[0])
    publisher.send(epochs[2])
    failed_with(publisher, "gap")


def test_epochs_that_wait_together_share_a_transaction(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1@1")
    publish(start(), *(table.commit(5) for _ in range(12)))
    assert_exactly_the_changelog(broker.address, topic, table)
    assert len(progress_of(broker.address, topic)) <= 1 + 4


def test_a_full_backlog_makes_the_driver_wait(
    start: Start, table: SmallTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISH_BACKLOG_EPOCHS_MAX", 2)
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:0.5@1")
    publisher = start()
    epochs = [table.commit(5) for _ in range(3)]
    started = time.monotonic()
    for epoch in epochs[:2]:
        publisher.send(epoch)
    assert time.monotonic() - started < 0.3
    publisher.send(epochs[2])
    assert time.monotonic() - started > 0.3
    assert publisher.flush(WAIT_SECONDS)


# --- crashes ----------------------------------------------------------------------------------

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


def test_at_least_once_repeats_only_what_can_be_recognised(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivery: Literal["at_least_once"] = "at_least_once"
    publish(start(delivery=delivery), table.commit(300))
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_flushed=kill@2")  # @1 is the claim's
    publisher = start(delivery=delivery)
    publisher.send(table.commit(300))
    failed_with(publisher, "died")
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    publish(start(delivery=delivery), table.epochs[1])
    found = records(broker.address, topic)
    assert len(found) > len(table.expected())
    once = {(record.epoch, record.seq): record.value for record in found}
    rows = [(*place, value["op"], value["row"]) for place, value in sorted(once.items())]
    assert rows == table.expected()


def test_the_publisher_ends_with_its_driver(broker: Broker, topic: str, table: SmallTable) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, broker.address, topic],
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
        assert_exactly_the_changelog(own.address, topic, table)


# --- fencing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "place"),
    quick(
        product([1, 2], ["publish_begun", "publish_produced"]),
        [(1, "publish_produced"), (2, "publish_begun")],
    ),
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


@pytest.mark.parametrize("job", ["items", "other"])
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


def test_a_publisher_of_an_older_version_is_fenced_with_its_open_transaction(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    marks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1@2")
    job = configuration(broker.address, topic).job
    older = start(transactional_id=f"retally-{job}")  # and its progress names no table
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    publish(older, table.commit(50))
    older.send(table.commit(50))
    wait_until(lambda: list(marks.iterdir()))
    assert older.pid is not None
    os.kill(older.pid, signal.SIGSTOP)
    newer = start(table="ours", transactional_id=f"retally-{job}-ours-{topic}")
    assert newer.published is not None
    publish(newer, *table.epochs[newer.published :])
    os.kill(older.pid, signal.SIGCONT)
    failed_with(older, "fenced")
    assert_exactly_the_changelog(broker.address, topic, table)


def test_a_topic_that_becomes_the_first_goes_on_where_it_is_and_fences_the_publisher_before(
    broker: Broker,
    topic: str,
    start: Start,
    table: SmallTable,
    marks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The view of the first topic is dropped, so the transactional id is another one."""
    left = configuration(broker.address, f"{topic}-left", table="ours")
    sink = SinkOfView(
        topic=left.topic, format=left.format, partitions=left.partitions, columns=left.columns
    )

    def of_both(epoch: EpochToPublish) -> EpochToPublish:
        return msgspec.structs.replace(epoch, others=[epoch.files])

    monkeypatch.setenv("RETALLY_FAILPOINTS", "publish_produced=stall:1@2")
    both = start(table="ours", others=[sink])
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    publish(both, of_both(table.commit(50)))
    both.send(of_both(table.commit(50)))
    wait_until(lambda: list(marks.iterdir()))
    assert both.pid is not None
    os.kill(both.pid, signal.SIGSTOP)
    after = {"generation": 2, "predecessors": [f"retally-{topic}"]}
    successor = Publisher(msgspec.structs.replace(left, **after))
    new = configuration(broker.address, f"{topic}-new", table="ours", generation=3, others=[sink])
    joined = Publisher(new)
    try:
        (position,) = successor.start(WAIT_SECONDS).topics
        assert position.published == 1
        publish(successor, table.epochs[1], table.commit(50))
        os.kill(both.pid, signal.SIGCONT)
        failed_with(both, "fenced")
        assert_exactly_the_changelog(broker.address, left.topic, table)
        successor.stop()

        # A topic that joins as the first one has no progress, and the other one has.
        positions = joined.start(WAIT_SECONDS).topics
        assert [each.published for each in positions] == [-1, 3]
        publish(joined, *map(of_both, (*table.epochs, table.commit(50))))
        for name in (new.topic, left.topic):
            assert_exactly_the_changelog(broker.address, name, table)
    finally:
        successor.kill()
        joined.kill()


def test_a_view_does_not_continue_in_the_topic_of_another_one(
    start: Start, table: SmallTable
) -> None:
    """The other view was dropped, or the two have swapped their topics."""
    publish(start(table="ours", views=["low"]), table.commit(20))
    for views in (["top"], None):
        with pytest.raises(PublisherFailed, match=r"has the changelog of view 'low' of this job"):
            start(table="ours", views=views, generation=2)
    publish(start(table="ours", views=["low"], generation=2), table.commit(20))


def test_the_query_of_a_job_may_get_views_beside_it(start: Start, table: SmallTable) -> None:
    for number, views in enumerate((None, [""], None, [""])):
        publish(start(table="ours", views=views, generation=1 + number), table.commit(20))


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
    broker: Broker, topic: str, start: Start, table: SmallTable, client: KafkaAdminClient
) -> None:
    publisher = start()
    publish(publisher, table.commit(5))
    recreate(client, topic)
    publisher.send(table.commit(5))
    failed_with(publisher, "sink_changed")
    assert records(broker.address, topic) == []


def test_a_start_refuses_a_topic_that_is_not_the_one_it_knew(
    topic: str, start: Start, client: KafkaAdminClient
) -> None:
    start().stop()
    known = client.describe_topics([topic])[0]["topic_id"]
    recreate(client, topic)
    with pytest.raises(PublisherFailed, match="deleted and created again"):
        start(topic_id=str(known))


def test_a_start_does_not_create_a_topic_that_was_deleted(
    topic: str, start: Start, client: KafkaAdminClient
) -> None:
    start().stop()
    known = client.describe_topics([topic])[0]["topic_id"]
    client.delete_topics([topic])
    with pytest.raises(PublisherFailed, match="deleted"):
        start(topic_id=str(known))


def test_more_partitions_stop_the_publisher_before_a_key_moves(
    broker: Broker, topic: str, start: Start, table: SmallTable, client: KafkaAdminClient
) -> None:
    publisher = start()
    publish(publisher, table.commit(20))
    client.create_partitions({topic: PARTITIONS + 1})
    wait_until(lambda: len(client.describe_topics([topic])[0]["partitions"]) > PARTITIONS)
    publisher.send(table.commit(20))
    failed_with(publisher, "sink_changed")
    assert {record.epoch for record in records(broker.address, topic)} == {1}


def test_an_unreachable_broker_is_told_in_time() -> None:
    publisher = Publisher(configuration("127.0.0.1:1", "t"))
    with pytest.raises(PublisherFailed, match="unreachable"):
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
