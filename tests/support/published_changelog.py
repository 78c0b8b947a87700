"""A small table whose epochs are published, and its topic as a read_committed consumer sees it."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.core.publish.protocol import EpochToPublish, Progress, Ready
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.publisher import handle as kafka_publisher
from jobs.edge.publisher.handle import Publisher
from schemas.table.changelog import progress_topic
from tests.support.publisher_configuration import PARTITIONS, configuration
from tests.support.tables.kafka_partition import partition_of
from tests.support.topics import committed_records

WAIT_SECONDS = 60
SHARE_0, HELPER = "share 0", "helper"
Row = dict[str, Any]


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
            files=[files],
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


def records(address: str, topic: str, *, while_open: bool = False) -> list[Seen]:
    """All committed records, partition by partition in order of their offsets."""
    if not while_open:
        with KafkaAdmin({"bootstrap_servers": [address]}) as admin:
            # Commits are answered a moment before the last partition knows of them.
            wait_until(
                lambda: admin.end_offsets(topic) == admin.end_offsets(topic, read_committed=False)
            )
    found = map(seen, committed_records(address, topic))
    return sorted(found, key=lambda record: (record.partition, record.offset))


def seen(record: Any) -> Seen:
    headers = {name: int(text) for name, text in record.headers}
    value = None if record.value is None else json.loads(record.value)
    epoch, seq = headers.get("epoch", -1), headers.get("seq", -1)
    return Seen(record.partition, record.offset, record.key, value, epoch, seq)


@dataclass
class Publishing:
    """Publishers of a small table, and the topic to which they publish."""

    address: str
    topic: str
    table: SmallTable
    started: list[Publisher] = field(default_factory=list)

    def start(self, **changed: Any) -> Publisher:
        """Start a publisher, which the fixture ends if the test does not."""
        self.start_with(**changed)
        return self.started[-1]

    def start_with(self, **changed: Any) -> Ready:
        """Start a publisher; return how far it found the topics."""
        self.started.append(Publisher(configuration(self.address, self.topic, **changed)))
        return self.started[-1].start(WAIT_SECONDS)

    def records(self, topic: str | None = None) -> list[Seen]:
        return records(self.address, topic or self.topic)

    def progress(self) -> list[Progress]:
        found = self.records(progress_topic(self.topic))
        return [msgspec.convert(record.value, Progress, str_keys=True) for record in found]

    def must_be_exact(self, topic: str | None = None) -> None:
        """Every row once, in its key's partition, in order there, -U directly before its +U."""
        found = self.records(topic)
        in_order = sorted(found, key=lambda record: (record.epoch, record.seq))
        rows = [
            (record.epoch, record.seq, record.value["op"], record.value["row"])
            for record in in_order
        ]
        assert rows == self.table.expected()
        for record in found:
            assert record.key == msgspec.json.encode({"name": record.value["row"]["name"]})
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


def place_fault(monkeypatch: pytest.MonkeyPatch, where: str, fault: str) -> None:
    """Let the failpoint fire in share 0, or in its helpers."""
    own, of_helper = (fault if where == each else "" for each in (SHARE_0, HELPER))
    helper = with_failpoints(of_helper, "-m", "jobs.edge.publisher.process")
    program = (  # it exits as the product does, not while a thread reads its stdin
        "import os; from jobs.edge.publisher import handle, process;"
        f"handle.COMMAND = {helper!r}; os._exit(process.main())"
    )
    command = with_failpoints(own, "-c", program)
    monkeypatch.setattr(kafka_publisher, "COMMAND", command)


def with_failpoints(fault: str, *arguments: str) -> tuple[str, ...]:
    return ("env", f"RETALLY_FAILPOINTS={fault}", sys.executable, *arguments)
