"""The judge: reads table and topic as anybody may, after every turn, and says what is broken.

table ──► epochs without a gap, each the same for ever ──► fold ─┐
topic ──► in order, once, retractions that fit ──────────► fold ─┼─► equal, and equal to
messages up to the table's offsets ──► live rows, grouped by hand┘   the query, at the end
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jobs.table.parts import CHANGELOG, QUARANTINE
from schemas.table.epoch import EpochRow
from tests.simulation.world import Violation, World
from tests.support.histories.products import CNT, NAME, NOTE, PRICE, WEIGHT, live_rows

Table = dict[Any, Any]


@dataclass(slots=True)
class Judge:
    """What has been seen so far."""

    epochs: dict[int, str] = field(default_factory=dict)  # number -> uuid
    at: list[int] = field(default_factory=lambda: [0, 0])  # in each partition of the topic
    last: list[tuple[int, int]] = field(default_factory=lambda: [(-1, -1), (-1, -1)])
    seen: set[tuple[int, int]] = field(default_factory=set)
    table: Table = field(default_factory=dict)  # the topic, folded
    outputs: int = 0

    def observe(self, world: World) -> None:
        self._epochs(world)
        if not world.must_stop:
            self._topic(world)

    def _epochs(self, world: World) -> None:
        rows = world.disk.rows()
        numbers = [row.epoch for row in rows]
        if numbers != list(range(len(rows))):
            raise Violation(f"duplicates or gaps: the table has epochs {numbers}")
        for row in rows:
            if self.epochs.setdefault(row.epoch, row.uuid) != row.uuid:
                raise Violation(f"lost: epoch {row.epoch} was committed, and is another one now")
        if len(rows) < len(self.epochs):
            raise Violation(f"lost: epoch {len(rows)} was committed, and is gone")

    def _topic(self, world: World) -> None:
        if "changes" not in world.broker.sinks:
            return
        for partition in range(2):
            for record in world.broker.committed("changes", partition, self.at[partition]):
                self.at[partition] += 1
                if record is None or record.value is None:
                    continue
                epoch, seq, op, key, row = msgspec.json.decode(record.value)
                self._record(partition, (epoch, seq), op, tuple(key), tuple(row))

    def _record(self, partition: int, place: tuple[int, int], op: str, key: Any, row: Any) -> None:
        self.outputs += 1
        if place in self.seen:
            raise Violation(f"duplicates: {place} is in the topic twice")
        self.seen.add(place)
        if place <= self.last[partition]:
            raise Violation(f"out_of_order: {place} comes after {self.last[partition]}")
        self.last[partition] = place
        if place[0] not in self.epochs:
            raise Violation(f"lost: the topic has epoch {place[0]}, the table has not")
        if op in ("+I", "+U"):
            self.table[key] = row
        elif self.table.get(key) != row:
            raise Violation(f"lost: {op} of {key} retracts {row}, not {self.table.get(key)}")
        elif op == "-D":
            del self.table[key]

    # --- at the end -----------------------------------------------------------------------------

    def decide(self, world: World) -> None:
        """Everything is compared with everything."""
        if world.refused is not None and not world.fatal:
            raise Violation(f"it stopped without a reason: {world.refused}")
        if world.refused is None and world.must_stop:
            raise Violation("lost: something is gone for good, and the job went on without a word")
        self.observe(world)
        rows = world.disk.rows()
        offsets = rows[-1].offsets["product"] if rows else {}
        stored, places = self._changelog(world, rows)
        wanted = truth(world, offsets)
        if stored != wanted:
            raise Violation(f"lost or repeated: the table says {stored}, the rows {wanted}")
        self._quarantine(world, offsets, rows)
        if world.refused is None and (places != self.seen or self.table != stored):
            raise Violation(f"lost: the topic has {len(self.seen)} of {len(places)} rows")
        if not self.seen <= places:
            raise Violation("lost: the topic has rows that the table has not")

    def _changelog(
        self, world: World, rows: Iterable[EpochRow]
    ) -> tuple[Table, set[tuple[int, int]]]:
        table: Table = {}
        places: set[tuple[int, int]] = set()
        for row in rows:
            for name in row.files.get(CHANGELOG, ()):
                for seq, op, key, result in world.disk.files[name]:
                    places.add((row.epoch, seq))
                    if op in ("+I", "+U"):
                        table[key] = result
                    elif op == "-D":
                        del table[key]
        return table, places

    def _quarantine(self, world: World, offsets: dict[str, int], rows: Iterable[EpochRow]) -> None:
        names = [name for row in rows for name in row.files.get(QUARANTINE, ())]
        found = Counter(place for name in names for place in world.disk.files[name])
        wanted = Counter(
            (partition, offset)
            for partition in range(len(world.broker.source.partitions))
            for offset, message in world.broker.source.read(
                partition, 0, offsets.get(str(partition), 0)
            )
            if message.outcome == "rejected"
        )
        if found != wanted:
            raise Violation(f"quarantine: {found - wanted} too much, {wanted - found} missing")


def truth(world: World, offsets: dict[str, int]) -> Table:
    """The query over the rows that are live, from nothing and without any of the product."""
    live: dict[int, Any] = {}
    for partition in range(len(world.broker.source.partitions)):
        found = world.broker.source.read(partition, 0, offsets.get(str(partition), 0))
        live_rows(live, (message for _, message in found))
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in live.values():
        groups[row[NAME],].append(row)
    return {key: _result(rows) for key, rows in groups.items()}


def _result(rows: list[Any]) -> tuple[Any, ...]:
    def there(column: int) -> list[Any]:
        return [row[column] for row in rows if row[column] is not None]

    prices, notes, weights = there(PRICE), there(NOTE), there(WEIGHT)
    return (
        len(rows),
        len(there(CNT)),
        sum(prices) if prices else None,
        max(notes, default=None),
        min(weights, default=None),
    )


def judged(seed: int, **options: Any) -> tuple[World, Judge]:
    """Run one seed; raises what it finds wrong."""
    world, judge = World(seed, **options), Judge()
    world.run(judge.observe)
    judge.decide(world)
    return world, judge
