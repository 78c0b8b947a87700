"""The results that a consumer of the changelog has, and the epochs of the table.

items-changes (read_committed) ──► fold ──► results, latest rows
jobs/items/epochs (Delta)      ──► epoch, offsets, counters
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition

from jobs.table.epoch_rows import epoch_rows
from jobs.table.files import live_files, open_table
from schemas.table.changelog import ChangelogRecord
from schemas.table.epoch import EpochRow
from schemas.types.json_types import JsonObject

LATEST_ROWS = 40
RATE_EPOCHS = 10

Row = JsonObject


class BrokenChangelog(Exception):
    """A row of the topic does not fit the rows before it."""


@dataclass(slots=True)
class Fold:
    """Folds the changelog by key; raises if a row does not fit the rows before it."""

    results: dict[str, Row] = field(default_factory=dict)
    latest: deque[ChangelogRecord] = field(default_factory=lambda: deque(maxlen=LATEST_ROWS))
    epoch: int = 0  # of the newest row
    rows: int = 0

    def read(self, topic: Topic, seconds: float) -> None:
        """Apply the new records of a topic; wait at most so long for the first."""
        for key, record in topic.read_records(seconds):
            self.apply(key, record)

    def apply(self, key: str, record: ChangelogRecord) -> None:
        before = self.results.get(key)
        retracts = record.op in ("-U", "-D")
        if retracts and before != record.row:
            raise BrokenChangelog(f"{record.op} of {key} retracts {record.row}, not {before}")
        if record.op == "+I" and before is not None:
            raise BrokenChangelog(f"+I of {key}, which already has {before}")
        if retracts:
            del self.results[key]
        else:
            self.results[key] = dict(record.row)
        self.latest.append(record)
        self.epoch = record.epoch
        self.rows += 1


class Topic:
    """Reads all partitions of a topic from the beginning, committed records only."""

    def __init__(self, brokers: str, name: str, partitions: int) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=brokers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        self._partitions = [TopicPartition(name, number) for number in range(partitions)]
        self._consumer.assign(self._partitions)

    def read_records(self, seconds: float) -> Iterator[tuple[str, ChangelogRecord]]:
        """Yield new records; wait at most so long for the first."""
        for batch in self._consumer.poll(timeout_ms=int(seconds * 1_000)).values():
            for record in batch:
                yield record.key.decode(), ChangelogRecord.decode(record.value)

    def count_records(self) -> int:
        """Return the number of records that the partitions have, if none was removed."""
        return sum(self._consumer.end_offsets(self._partitions).values())

    def is_at_end(self) -> bool:
        ends = self._consumer.end_offsets(self._partitions)
        return all(
            self._consumer.position(partition) >= ends[partition] for partition in self._partitions
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


@dataclass(slots=True)
class Epochs:
    """The epochs of a job; `update` reads those that were committed since the last call."""

    table: Path
    newest: EpochRow | None = None
    quarantined: int = 0
    _handle: DeltaTable | None = None
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RATE_EPOCHS))

    def update(self) -> None:
        if self._handle is None:
            if not DeltaTable.is_deltatable(str(self.table)):
                return
            self._handle = open_table(self.table)
        self._handle.update_incremental()
        since = -1 if self.newest is None else self.newest.epoch
        for row in epoch_rows(self.table, live_files(self._handle), since):
            self.newest = row
            self.quarantined += row.counts.quarantined
            self._recent.append((row.committed_at / 1e6, row.counts.rows))

    @property
    def number(self) -> int:
        return 0 if self.newest is None else self.newest.epoch

    def describe(self, topic: str, sent: list[int]) -> str:
        """Return the figures of the newest epoch in one line."""
        groups = 0 if self.newest is None else self.newest.groups
        return (
            f"epoch {self.number} · {self._measure_rows_per_second():,.0f} rows/s · "
            f"lag {self.count_unread(topic, sent):,} · {groups} groups · "
            f"{self.quarantined} in quarantine"
        )

    def _measure_rows_per_second(self) -> float:
        """Return the rate of the newest epochs; an UPDATE is two rows."""
        if len(self._recent) < 2:
            return 0.0
        seconds = self._recent[-1][0] - self._recent[0][0]
        return sum(rows for _, rows in list(self._recent)[1:]) / max(seconds, 0.001)

    def count_unread(self, topic: str, sent: list[int]) -> int:
        """Return the number of sent messages that are in no epoch yet."""
        at = {} if self.newest is None else self.newest.offsets.get(topic, {})
        return sum(max(0, end - at.get(str(each), 0)) for each, end in enumerate(sent))
