"""Random histories that Flink can read too, many of them in one topic.

    histories.products ──► without refused messages ──► ids reused ──► sometimes the table is
        emptied and filled again ──► `old` names the same columns in every row of a message
            └─► 200 of them, each row with the number of its history, interleaved
                    ├─► canal-json in four partitions
                    └─► the live rows at the end

A refused message would end Flink's job, and Flink misreads an UPDATE whose rows changed different
columns (docs/flink.md, "Where we differ from Flink").
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence

from jobs.core.values.change import Row
from tests.support.histories.products import (
    COLUMNS,
    DATABASE,
    ID,
    NOTE,
    PARTITIONS,
    TABLE,
    Message,
    history,
    text,
)

MESSAGES = 50
PEER_COLUMNS = {"history": "INT", **COLUMNS, "sold_on": "DATE"}

_SOLD_ON = {"x": "2026-01-31", "y": "1969-12-31", "é": "2026-02-01", "zz": "2024-02-29"}
_ROWS_A_MESSAGE_MAX = 3
_RUN_MAX = 4  # consecutive messages of one history
_USED_AGAIN = 0.5  # of new rows, if an id is free
_EMPTIED_SHARE = 0.04  # of messages after which the table is emptied and filled again
_LEFT_EMPTY_SHARE = 0.15  # of histories
_NAMED_UNCHANGED_SHARE = 0.1

CanalRow = dict[str, str | None]  # a row as canal writes it
Record = tuple[int, bytes | None]  # partition and value


class PeerHistory:
    """One history, written again for both engines."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.records: list[Record] = []
        self.live: dict[int, Row] = {}  # by id
        self._ids: dict[int, int] = {}  # id in the history -> id in the messages
        self._free: list[int] = []
        self._rng = random.Random(f"peer {number}")
        for message in history(number, MESSAGES).messages:
            if message.outcome == "rejected":
                continue
            if message.changes:
                self._tell(self._renamed(message))
            else:
                self.records.append((message.partition, message.value))
            if self._rng.random() < _EMPTIED_SHARE:
                self._empty(fill_again=True)
        if self._rng.random() < _LEFT_EMPTY_SHARE:
            self._empty(fill_again=False)

    def rows(self) -> list[CanalRow]:
        """Return the live rows at the end."""
        return [self._row(row) for row in self.live.values()]

    def _renamed(self, message: Message) -> list[tuple[int, Row]]:
        """Return the changes of a message; a new row may reuse the id of a deleted one."""
        kind = _kind(message.changes)
        changes = []
        for weight, row in message.changes:
            key = _id(row)
            if kind == "INSERT":
                self._ids[key] = self._id_for(key)
            changes.append((weight, (self._ids[key], *row[1:])))
            if kind == "DELETE":
                self._free.append(self._ids.pop(key))
        return changes

    def _id_for(self, key: int) -> int:
        free = [each for each in self._free if each % PARTITIONS == key % PARTITIONS]
        if not free or self._rng.random() > _USED_AGAIN:
            return key
        chosen = self._rng.choice(free)
        self._free.remove(chosen)
        return chosen

    def _empty(self, *, fill_again: bool) -> None:
        """Delete all rows, and perhaps insert them again, so that groups end and return."""
        rows = list(self.live.values())
        for weight in (-1, 1) if fill_again else (-1,):
            self._rng.shuffle(rows)
            for partition in range(PARTITIONS):
                own = [row for row in rows if _id(row) % PARTITIONS == partition]
                for several in _parts(self._rng, own):
                    self._tell([(weight, row) for row in several])

    def _tell(self, changes: list[tuple[int, Row]]) -> None:
        """Write one message from signed rows of one kind in one partition."""
        kind = _kind(changes)
        for weight, row in changes:
            if weight > 0:
                assert _id(row) not in self.live
                self.live[_id(row)] = row
            else:
                assert self.live.pop(_id(row)) == row
        rows = [self._row(row) for _, row in changes]
        message: dict[str, object] = {
            "data": rows[1::2] if kind == "UPDATE" else rows,
            "database": DATABASE,
            "es": 1_700_000_000_000 + len(self.records),
            "isDdl": False,
            "old": self._old(rows[::2], rows[1::2]) if kind == "UPDATE" else None,
            "pkNames": ["history", "id"],
            "table": TABLE,
            "ts": 1_700_000_000_007 + len(self.records),
            "type": kind,
        }
        partition = _id(changes[0][1]) % PARTITIONS
        self.records.append((partition, json.dumps(message).encode()))

    def _row(self, row: Row) -> CanalRow:
        values = {name: text(place, row[place]) for place, name in enumerate(COLUMNS)}
        sold_on = _SOLD_ON.get(str(row[NOTE]))
        return {"history": str(self.number), **values, "sold_on": sold_on}

    def _old(self, before: Sequence[CanalRow], after: Sequence[CanalRow]) -> list[CanalRow]:
        """Return the old values; a column that one row changed is named for all rows."""
        named = [
            name
            for name in PEER_COLUMNS
            if any(was[name] != now[name] for was, now in zip(before, after, strict=True))
            or self._rng.random() < _NAMED_UNCHANGED_SHARE
        ]
        return [{name: was[name] for name in named} for was in before]


def shuffled(histories: Iterable[PeerHistory]) -> Iterator[Record]:
    """Yield the records of all histories, interleaved; each history stays in order."""
    rng = random.Random("shuffled")
    left = [iter(each.records) for each in histories]
    while left:
        records = rng.choice(left)
        for _ in range(rng.randint(1, _RUN_MAX)):
            record = next(records, None)
            if record is None:
                left.remove(records)
                break
            yield record


def _kind(changes: Sequence[tuple[int, Row]]) -> str:
    weights = {weight for weight, _ in changes}
    if len(weights) == 2:
        return "UPDATE"
    return "INSERT" if 1 in weights else "DELETE"


def _parts(rng: random.Random, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start = 0
    while start < len(rows):
        count = rng.randint(1, _ROWS_A_MESSAGE_MAX)
        yield rows[start : start + count]
        start += count


def _id(row: Row) -> int:
    key = row[ID]
    assert isinstance(key, int)
    return key
