"""The judge: reads table and topics as anybody may, after every turn, and says what is broken.

table ──► epochs without a gap, each the same for ever ──► fold ─┐
topic ──► in order, once, retractions that fit ──────────► fold ─┼─► equal, and equal to the
messages up to the table's offsets ──► live rows, grouped by hand┘   query, for each view
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jobs.core.publish.protocol import Progress
from jobs.reading.parts import CHANGELOG, QUARANTINE
from schemas.table.changelog import progress_topic
from schemas.table.epoch import EpochRow, Offsets
from schemas.table.view_path import place_part
from tests.simulation.jobs import Live, Results, SimulatedView
from tests.simulation.world import Violation, World
from tests.support.histories.products import live_rows


@dataclass(slots=True)
class TopicJudge:
    """What has been seen of one topic so far."""

    topic: str
    at: dict[int, int] = field(default_factory=dict)  # in each partition
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    seen: set[tuple[int, int]] = field(default_factory=set)
    table: Results = field(default_factory=dict)  # the topic, folded

    def observe(self, world: World, epochs: dict[int, str]) -> None:
        if self.topic not in world.broker.sinks:
            return
        for partition in range(len(world.broker.sinks[self.topic].partitions)):
            at = self.at.setdefault(partition, 0)
            for record in world.broker.committed(self.topic, partition, at):
                self.at[partition] += 1
                if record is None or record.value is None:
                    continue
                epoch, seq, op, key, row = msgspec.json.decode(record.value)
                if epoch not in epochs:
                    raise Violation(f"lost: the topic has epoch {epoch}, the table has not")
                self._record(partition, (epoch, seq), op, tuple(key), tuple(row))

    def _record(self, partition: int, place: tuple[int, int], op: str, key: Any, row: Any) -> None:
        if place in self.seen:
            raise Violation(f"duplicates: {place} is in {self.topic} twice")
        self.seen.add(place)
        if place <= self.last.get(partition, (-1, -1)):
            raise Violation(f"out_of_order: {place} comes after {self.last[partition]}")
        self.last[partition] = place
        if op in ("+I", "+U"):
            self.table[key] = row
        elif self.table.get(key) != row:
            raise Violation(f"lost: {op} of {key} retracts {row}, not {self.table.get(key)}")
        elif op == "-D":
            del self.table[key]


@dataclass(slots=True)
class Judge:
    """What has been seen so far."""

    epochs: dict[int, str] = field(default_factory=dict)  # number -> uuid
    topics: dict[str, TopicJudge] = field(default_factory=dict)  # by view

    @property
    def outputs(self) -> int:
        return sum(len(each.seen) for each in self.topics.values())

    @property
    def table(self) -> dict[str, Results]:
        """What each topic folds to."""
        return {view: each.table for view, each in self.topics.items()}

    def observe(self, world: World) -> None:
        self._epochs(world)
        for view in world.job.views:
            topic = self.topics.setdefault(view.name, TopicJudge(view.topic))
            if not world.must_stop:
                topic.observe(world, self.epochs)
                if len(world.job.publishers) > 1:
                    self._whole(world, view)

    def _whole(self, world: World, view: SimulatedView) -> None:
        """The progress covers an epoch only if the topic has all of its rows."""
        if (name := progress_topic(view.topic)) not in world.broker.sinks:
            return
        found = [record for record in world.broker.committed(name, 0) if record is not None]
        if not found or found[-1].value is None:
            return
        next_epoch = msgspec.json.decode(found[-1].value, type=Progress).next_epoch or 0
        for row in world.disk.rows():
            for file in row.files.get(place_part(CHANGELOG, view.name), ()):
                places = {(row.epoch, seq) for seq, *_ in world.disk.files[file]}
                if row.epoch < next_epoch and not places <= self.topics[view.name].seen:
                    raise Violation(f"lost: the progress covers {row.epoch}, the topic lacks rows")

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

    # --- at the end -----------------------------------------------------------------------------

    def decide(self, world: World) -> None:
        """Everything is compared with everything."""
        if world.refused is not None and not world.fatal:
            raise Violation(f"it stopped without a reason: {world.refused}")
        if world.refused is None and world.must_stop:
            raise Violation("lost: something is gone for good, and the job went on without a word")
        self.observe(world)
        rows = world.disk.rows()
        self._quarantine(world, rows)
        for view in world.job.views:
            self._view(world, view, rows)

    def _view(self, world: World, view: SimulatedView, rows: list[EpochRow]) -> None:
        """The table of a view is right at every epoch, and its topic has the same."""
        table: Results = {}
        places: set[tuple[int, int]] = set()
        for row in rows:
            self._apply(world, view, row, table, places)
            # One query is compared at the end only, as its seeds are many.
            if row is rows[-1] or world.job.spec.views is not None:
                wanted = view.truth(live_at(world, row.offsets))
                if table != wanted:
                    at = f"epoch {row.epoch} of {view.name or 'the query'}"
                    raise Violation(f"lost or repeated: {at} says {table}, the rows {wanted}")
        topic = self.topics[view.name]
        if world.refused is None and (places != topic.seen or topic.table != table):
            raise Violation(f"lost: {view.topic} has {len(topic.seen)} of {len(places)} rows")
        if not topic.seen <= places:
            raise Violation(f"lost: {view.topic} has rows that the table has not")

    def _apply(
        self,
        world: World,
        view: SimulatedView,
        row: EpochRow,
        table: Results,
        places: set[tuple[int, int]],
    ) -> None:
        """Apply the changelog of one epoch to `table`."""
        for name in row.files.get(place_part(CHANGELOG, view.name), ()):
            for seq, op, key, result in world.disk.files[name]:
                places.add((row.epoch, seq))
                if op in ("+I", "+U"):
                    table[key] = result
                elif op == "-D":
                    del table[key]

    def _quarantine(self, world: World, rows: list[EpochRow]) -> None:
        offsets = rows[-1].offsets if rows else {}
        names = [name for row in rows for name in row.files.get(QUARANTINE, ())]
        found = Counter(place for name in names for place in world.disk.files[name])
        wanted = Counter(
            (topic, partition, offset)
            for topic, source in world.broker.sources.items()
            for partition in range(len(source.partitions))
            for offset, message in source.read(
                partition, 0, offsets.get(topic, {}).get(str(partition), 0)
            )
            if message.outcome == "rejected"
        )
        if found != wanted:
            raise Violation(f"quarantine: {found - wanted} too much, {wanted - found} missing")


def live_at(world: World, offsets: Offsets) -> Live:
    """The rows of each topic that are live, from nothing and without any of the product."""
    live: dict[str, dict[int, Any]] = {topic: {} for topic in world.broker.sources}
    for topic, source in world.broker.sources.items():
        for partition in range(len(source.partitions)):
            found = source.read(partition, 0, offsets[topic].get(str(partition), 0))
            live_rows(live[topic], (message for _, message in found))
    return {topic: list(rows.values()) for topic, rows in live.items()}


def judged(seed: int, **options: Any) -> tuple[World, Judge]:
    """Run one seed; raises what it finds wrong."""
    world, judge = World(seed, **options), Judge()
    world.run(judge.observe)
    judge.decide(world)
    return world, judge
