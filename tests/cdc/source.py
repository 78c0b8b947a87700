"""What canal and Debezium have in common for a job: a topic for each table, read to its end.

database ──► canal or Debezium ──► topics ──► a job
    └──────────── the same queries ──────────► compared
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from jobs.edge.kafka.admin import KafkaAdmin
from tests.cdc.child import Child
from tests.cdc.database import Database
from tests.support.jobs.running_job import create_topic
from tests.support.topics import committed_records

PARTITIONS = 4
MARK = "mark"
SMALL_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Source(abc.ABC):
    """A process that copies the binlog of a database to topics, at least once."""

    format: str  # of its messages, as a job calls it

    def __init__(self, database: Database, brokers: str, home: Path) -> None:
        self.database = database
        self.brokers = brokers
        self.home = home
        self.home.mkdir(parents=True)
        self.tables: list[str] = []  # that were created for it
        self._child: Child | None = None

    @abc.abstractmethod
    def topic(self, table: str) -> str: ...

    @abc.abstractmethod
    def start(self) -> None: ...

    @abc.abstractmethod
    def _ids(self, text: str) -> list[str]:
        """Return the values of `id` in a message, of its new rows."""

    def kill(self) -> None:
        """Kill the process with SIGKILL: the position that it has written may be old."""
        assert self._child is not None
        self._child.kill()

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()

    def create_table(self, statement: str) -> None:
        """Create a table, and before it its topic, which the broker would not create."""
        self.tables.append(statement.split()[2])
        create_topic(self.brokers, self.topic(self.tables[-1]), PARTITIONS)
        self.database.run(statement)

    def create_marks(self) -> None:
        self.create_table(f"CREATE TABLE {MARK} (id BIGINT PRIMARY KEY)")

    def catch_up(self) -> None:
        """Wait until all that the database has committed is in the topics.

        Batches come one after the other, but the topics of a batch at once. So the second mark,
        made when the first has come, comes after all that was before the first.
        """
        assert self._child is not None
        for _ in range(2):
            mark = str(time.time_ns())
            self.database.run(f"INSERT INTO {MARK} VALUES ({mark})")
            self._child.await_that(f"at mark {mark}", partial(self._has_mark, mark))

    def _has_mark(self, mark: str) -> bool:
        return any(mark in self._ids(text) for _, text in self.texts(MARK))

    def texts(self, table: str) -> Iterator[tuple[int, str]]:
        """Yield the messages of a table's topic with their partitions."""
        for record in committed_records(self.brokers, self.topic(table)):
            if record.value is not None:
                yield record.partition, record.value.decode()

    def count(self, table: str) -> int:
        with KafkaAdmin({"bootstrap_servers": [self.brokers]}) as admin:
            return sum(admin.end_offsets(self.topic(table)).values())
