"""Fold a result topic into its table.

changelog-json   {"op","row"}: each row is checked against the previous one of its key
upsert-json      the row, or a tombstone: the last one of a key counts
canal-json       inserts, updates and deletes: their sum, because their order is not kept
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from bench.generator import Truth
from bench.outcome import BenchFailed
from bench.topic import read_committed

# The query of every workload, with the same names in all engines.
QUERY = "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name"


class ResultRow(msgspec.Struct, frozen=True, gc=False):
    name: str
    total: int
    n: int
    top: int = 0  # not of a join

    @property
    def values(self) -> tuple[int, int, int]:
        return self.total, self.top, self.n


class ChangelogRow(msgspec.Struct, frozen=True, gc=False):
    op: str
    row: ResultRow


class CanalRow(msgspec.Struct, frozen=True, gc=False):
    data: list[ResultRow]
    type: str


@dataclass(frozen=True, slots=True)
class Folded:
    """The table of a result topic, its number of records, and when the last one was written."""

    table: Truth
    records: int
    last_ms: int


def fold_upserts(brokers: str, topic: str) -> Folded:
    newest: dict[bytes, bytes | None] = {}
    records = last_ms = 0
    for batch in read_committed(brokers, topic):
        records += len(batch)
        for key, value, written_ms in batch:
            newest[key] = value
            last_ms = max(last_ms, written_ms)
    decode = msgspec.json.Decoder(ResultRow).decode
    rows = [decode(value) for value in newest.values() if value is not None]
    return Folded({row.name: row.values for row in rows}, records, last_ms)


def fold_changelog(brokers: str, topic: str) -> Folded:
    table: Truth = {}
    records = last_ms = 0
    decode = msgspec.json.Decoder(ChangelogRow).decode
    for batch in read_committed(brokers, topic):
        records += len(batch)
        for _, value, written_ms in batch:
            change = decode(value or b"null")
            row = change.row
            if change.op[0] == "-":
                if table.pop(row.name, None) != row.values:
                    raise BenchFailed(f"{topic}: {change} retracts a missing row")
            elif table.setdefault(row.name, row.values) != row.values:
                raise BenchFailed(f"{topic}: {change} adds a second row of its group")
            last_ms = max(last_ms, written_ms)
    return Folded(table, records, last_ms)


def fold_canal(brokers: str, topic: str) -> Folded:
    weights: Counter[ResultRow] = Counter()
    records = last_ms = 0
    decode = msgspec.json.Decoder(CanalRow).decode
    for batch in read_committed(brokers, topic):
        records += len(batch)
        for _, value, written_ms in batch:
            change = decode(value or b"null")
            for row in change.data:
                weights[row] += -1 if change.type == "DELETE" else 1
            last_ms = max(last_ms, written_ms)
    left = {row: weight for row, weight in weights.items() if weight}
    if any(weight != 1 for weight in left.values()) or len({row.name for row in left}) != len(left):
        raise BenchFailed(f"{topic}: a row was not retracted, or retracted but never added")
    return Folded({row.name: row.values for row in left}, records, last_ms)
