"""The neighbours of a job, in memory: a Delta log, a broker, hot states; each may fail on purpose.

    EpochTable ──► Place, Handle ─────► Disk      log entries and files of one table
    Session    ──► Producer, Consumer ► Broker    source topic; sink topics with transactions
    BucketStates ► HotBucket ─────────► Host      stamps, groups, what was remembered

They answer as the real ones do where a protocol depends on it: a version of the log is put once, a
producer is fenced by its successor, an open transaction is not read, a hot state advances from the
stamp that it is told and from no other. Whatever they are asked passes `point` first, where the
scheduler may kill who asks, stall it, or say that it failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from jobs.core.fold.state import MemoryState, Stamp, Upserts
from jobs.edge.kafka.admin import TopicMissing
from jobs.edge.state.errors import StampMoved
from jobs.edge.table.delta_epochs import APPLICATION
from jobs.edge.table.file_writer import AddedFile
from jobs.reading.files import LiveFile
from jobs.reading.parts import EPOCHS
from schemas.table.epoch import EpochRow, TopicIdentity
from schemas.table.view_path import place_part
from tests.support.histories.products import Message

Point = Callable[[str], object]

# --- the Delta log --------------------------------------------------------------------------------


@dataclass(slots=True)
class Entry:
    """One version: the text of its log entry, and what it adds and removes."""

    text: str
    added: list[str]
    removed: list[str]
    transaction: int | None


@dataclass(slots=True)
class Disk:
    """One table. `sound` is what the file system gives: a name that exists is never taken again."""

    point: Point
    sound: bool = True
    full: int = 0  # so many writes fail
    log: list[Entry] = field(default_factory=list)
    files: dict[str, Any] = field(default_factory=dict)
    epochs: dict[str, tuple[int, int]] = field(default_factory=dict)  # file -> first, last epoch
    tried: str | None = None  # the uuid that a commit was last tried with

    def write(self, name: str, content: Any, epochs: tuple[int, int], rows: int) -> AddedFile:
        if self.full:
            self.full -= 1
            raise OSError(28, "No space left on device")
        self.files[name], self.epochs[name] = content, epochs
        return AddedFile(name, part_of(name), rows, 1, "{}")

    def live(self, version: int) -> list[LiveFile]:
        names: dict[str, None] = {}
        for entry in self.log[: version + 1]:
            for name in entry.removed:
                names.pop(name, None)
            names.update(dict.fromkeys(entry.added))
        found = [LiveFile(name, part_of(name), 1, 1, *self.epochs[name]) for name in names]
        return sorted(found, key=lambda file: (file.epoch_min, file.epoch_max, file.path))

    def rows(self, version: int | None = None) -> list[EpochRow]:
        """The rows of committed epochs, as whoever reads the table sees them."""
        version = len(self.log) - 1 if version is None else version
        return [self.files[f.path] for f in self.live(version) if f.part == EPOCHS]


def part_of(name: str) -> str:
    """The part of a file in the log: `part=p/x` is in p, `view=v/part=p/x` in v:p."""
    view, _, own = name.rpartition("/part=")
    if not view:
        own = name.removeprefix("part=")
    return place_part(own.partition("/")[0], view.removeprefix("view="))


class Place:
    """A path of the table, as far as anybody asks one."""

    def __init__(self, disk: Disk, name: str = "") -> None:
        self.disk, self.name = disk, name

    @property
    def parent(self) -> Place:
        return Place(self.disk, self.name.rpartition("/")[0])

    def __truediv__(self, name: str) -> Place:
        if name.startswith("../"):
            return self.parent / name[3:]
        return Place(self.disk, f"{self.name}/{name}" if self.name else name)

    def __str__(self) -> str:
        return self.name or "table"

    def mkdir(self, **_: bool) -> None: ...

    def exists(self) -> bool:
        version = self._version()
        return self.name in self.disk.files if version is None else version < len(self.disk.log)

    def read_text(self) -> str:
        version = self._version()
        if version is None or version >= len(self.disk.log):
            raise FileNotFoundError(self.name)
        return self.disk.log[version].text

    def _version(self) -> int | None:
        folder, _, name = self.name.partition("/")
        return int(name.removesuffix(".json")) if folder == "_delta_log" else None


class Metadata(NamedTuple):
    """Of the one table that there is."""

    id: str = "table"


class Handle:
    """A DeltaTable at a version."""

    retries = False  # what the library does when it is left to itself

    def __init__(self, disk: Disk, version: int | None = None, view: str = "") -> None:
        self.disk = disk
        self.view = view  # whose files are seen
        self.at = len(disk.log) - 1 if version is None else version

    def version(self) -> int:
        return self.at

    def update_incremental(self) -> None:
        self.at = len(self.disk.log) - 1

    def schema(self) -> None:
        return None

    def metadata(self) -> Metadata:
        return Metadata()

    def transaction_version(self, application: str) -> int | None:
        assert application == APPLICATION
        found = [e.transaction for e in self.disk.log[: self.at + 1] if e.transaction is not None]
        return found[-1] if found else None

    def create_write_transaction(
        self, actions: Iterable[Any], *_: Any, commit_properties: Any, **__: Any
    ) -> None:
        disk, version = self.disk, self.at + 1
        added = [each.path for each in actions if isinstance(each, AddAction)]
        removed = [each.path for each in actions if not isinstance(each, AddAction)]
        metadata = commit_properties.custom_metadata
        disk.tried = metadata["retally"]["uuid"]
        disk.point("commit")
        if disk.full:
            disk.full -= 1
            raise OSError(28, "No space left on device")
        text = json.dumps({"commitInfo": metadata})
        transactions = [each.version for each in commit_properties.app_transactions]
        entry = Entry(text, added, removed, transactions[0] if transactions else None)
        free = version >= len(disk.log)
        if not disk.sound:
            disk.point("rename")  # between its look and its rename another may have been there
        elif not free and (self.retries or commit_properties.max_commit_retries):
            version, free = len(disk.log), True
        elif not free:
            raise CommitFailedError(f"version {version} is there already")
        if free and version < len(disk.log):
            disk.log[version] = entry
        elif free:
            disk.log.append(entry)
        else:
            raise CommitFailedError(f"version {version} is there already")


# --- the broker -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Source:
    """A topic with canal's messages; some offsets hold marks of transactions instead of any."""

    id: str
    partitions: list[list[Message | None]]
    first: list[int]  # what retention has left
    checkpoint: dict[str, dict[str, int]] | None = None  # for the start that trusts one

    def readable(self, partition: int, start: int, end: int) -> list[tuple[int, Message]]:
        return self.read(partition, max(start, self.first[partition]), end)

    def read(self, partition: int, start: int, end: int) -> list[tuple[int, Message]]:
        """Everything that ever was there, for a judge."""
        found = enumerate(self.partitions[partition][start:end], start)
        return [(offset, message) for offset, message in found if message is not None]


@dataclass(slots=True)
class SinkRecord:
    key: bytes
    value: bytes | None
    writer: tuple[str, int, int]  # transactional id, producer epoch, number of the transaction


@dataclass(slots=True)
class Sink:
    id: str
    partitions: list[list[SinkRecord]]


@dataclass(slots=True)
class Broker:
    """Topics, and the coordinator of transactions."""

    point: Point
    sources: dict[str, Source]  # by topic
    sinks: dict[str, Sink] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)  # of producers, by transactional id
    settled: dict[tuple[str, int, int], bool] = field(default_factory=dict)  # committed?
    made: int = 0

    @property
    def source(self) -> Source:
        """The only one, or the first of several."""
        return next(iter(self.sources.values()))

    def make(self, name: str, partitions: int) -> Sink:
        self.made += 1
        self.sinks[name] = Sink(f"sink-{self.made}", [[] for _ in range(partitions)])
        return self.sinks[name]

    def committed(self, name: str, partition: int, start: int = 0) -> Iterator[SinkRecord | None]:
        """What a read_committed reader sees from an offset on; None where nothing is for it."""
        for record in self.sinks[name].partitions[partition][start:]:
            outcome = self.settled.get(record.writer)
            if outcome is None:
                return
            yield record if outcome else None


class Producer:
    """librdkafka's, with transactions."""

    def __init__(self, broker: Broker, options: Mapping[str, Any]) -> None:
        self.broker, self.name = broker, str(options["transactional.id"])
        self.epoch, self.number, self.open = -1, 0, False

    def init_transactions(self, _seconds: float) -> None:
        self.broker.point("init_transactions")
        broker = self.broker
        self.epoch = broker.epochs.get(self.name, -1) + 1
        broker.epochs[self.name] = self.epoch
        for sink in broker.sinks.values():
            for record in (record for records in sink.partitions for record in records):
                if record.writer[0] == self.name:
                    broker.settled.setdefault(record.writer, False)

    def begin_transaction(self) -> None:
        self.number, self.open = self.number + 1, True

    def produce(
        self, topic: str, value: bytes | None, key: bytes, partition: int, *_: Any, **__: Any
    ) -> None:
        if self.broker.epochs[self.name] == self.epoch:  # else the commit will say so
            writer = (self.name, self.epoch, self.number)
            record = SinkRecord(key, value, writer)
            self.broker.sinks[topic].partitions[partition].append(record)

    def commit_transaction(self, _seconds: float) -> None:
        self.broker.point("commit_transaction")
        if self.broker.epochs[self.name] != self.epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced"))
        self.broker.settled[self.name, self.epoch, self.number] = True
        self.open = False
        self.broker.point("transaction_committed")

    def abort_transaction(self, _seconds: float) -> None:
        if self.open and self.broker.epochs[self.name] == self.epoch:
            self.broker.settled[self.name, self.epoch, self.number] = False
        self.open = False

    def purge(self) -> None: ...

    def poll(self, _seconds: float) -> int:
        return 0


@dataclass(slots=True)
class Polled:
    """A message of a consumer, or the end of its partition."""

    record: SinkRecord | None

    def error(self) -> KafkaError | None:
        return None if self.record else KafkaError(KafkaError._PARTITION_EOF)

    def key(self) -> bytes | None:
        return self.record.key if self.record else None

    def value(self) -> bytes | None:
        return self.record.value if self.record else None


class Consumer:
    """librdkafka's, as one reads the progress with it."""

    def __init__(self, broker: Broker, options: Mapping[str, Any]) -> None:
        assert options["isolation.level"] == "read_committed"
        self.broker = broker
        self.polled: Iterator[Polled] = iter(())

    def get_watermark_offsets(self, place: Any, _seconds: float) -> tuple[int, int]:
        self.broker.point("read_progress")
        return 0, len(self.broker.sinks[place.topic].partitions[place.partition])

    def assign(self, places: list[Any]) -> None:
        (place,) = places
        seen = self.broker.committed(place.topic, place.partition, place.offset)
        self.polled = iter([*(Polled(record) for record in seen if record), Polled(None)])

    def poll(self, _seconds: float) -> Polled:
        return next(self.polled)

    def close(self) -> None: ...


class Admin:
    """KafkaAdmin, of the topics that there are."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def close(self) -> None: ...

    def topic(self, name: str) -> TopicIdentity | None:
        if (source := self.broker.sources.get(name)) is not None:
            return TopicIdentity(source.id, len(source.partitions))
        sink = self.broker.sinks.get(name)
        return None if sink is None else TopicIdentity(sink.id, len(sink.partitions))

    def ensure_topic(self, name: str, partitions: int, _: Any) -> TopicIdentity:
        found = self.topic(name)
        if found is None:
            self.broker.make(name, partitions)
            found = self.topic(name)
        if found is None:
            raise TopicMissing(name)
        return found

    def beginning_offsets(self, name: str) -> dict[int, int]:
        return dict(enumerate(self.broker.sources[name].first))

    def end_offsets(self, name: str) -> dict[int, int]:
        return {n: len(found) for n, found in enumerate(self.broker.sources[name].partitions)}


# --- hot states -----------------------------------------------------------------------------------


class HotBucket:
    """One bucket's hot state: it advances in one transaction, from the stamp it is told."""

    def __init__(self, name: str, point: Point) -> None:
        self.directory = name
        self.stamp: Stamp | None = None
        self.state = MemoryState()
        self.remembered: tuple[int, str, Upserts] | None = None
        self._point = point

    def advance(
        self, steps: Iterable[tuple[Stamp, Upserts | None]], *, since: Stamp | None
    ) -> None:
        taken = list(steps)
        self._point("advance")
        if self.stamp != since:
            raise StampMoved(f"{self.directory} is at {self.stamp}, not at {since}")
        for stamp, upserts in taken:
            if upserts is not None:
                self.state.apply(upserts)
            self.stamp = stamp

    def rebuild(
        self, steps: Iterable[tuple[Stamp, Upserts | None]], *, since: Stamp | None
    ) -> None:
        taken = list(steps)
        self._point("rebuild")
        if self.stamp != since:
            raise StampMoved(f"{self.directory} is at {self.stamp}, not at {since}")
        self.state, self.stamp, self.remembered = MemoryState(), None, None
        for stamp, upserts in taken:
            if upserts is not None:
                self.state.apply(upserts)
            self.stamp = stamp

    @contextmanager
    def view(self, base: Stamp) -> Iterator[MemoryState]:
        if self.stamp != base:
            raise StampMoved(f"{self.directory} is at {self.stamp}, not at {base}")
        yield self.state

    def remember(self, epoch: int, uuid: str, upserts: Upserts) -> None:
        self.remembered = (epoch, uuid, upserts)

    def read_stamp(self) -> Stamp | None:
        return self.stamp

    def recall(self, stamp: Stamp) -> Upserts | None:
        known = self.remembered
        return known[2] if known and known[:2] == (stamp.epoch, stamp.uuid) else None


@dataclass(slots=True)
class Host:
    """The machine whose disk has the hot states."""

    point: Point
    buckets: dict[str, HotBucket] = field(default_factory=dict)

    def open_shared(self, directory: Any, _layout: Any) -> HotBucket:
        name = str(directory)  # the views of a job have buckets of the same numbers
        return self.buckets.setdefault(name, HotBucket(name, self.point))
