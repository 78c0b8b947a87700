"""Offsets: a stopped job is told to go on from other offsets of its topics.

    epoch E ──► epoch E+1, kind "offsets"
                  offsets     those that were asked for, or those of source.start
                  the rest    state, results, watermark: as they were

What is passed over is never counted, and what is read twice is counted twice. So from then on the
results are not the query over the topic any more, and the epoch rows say since when (`moved`):
until the job goes back to before it (rewind), or its topic is read again (evolve --replay).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import first_offsets, same_topics
from jobs.edge.process.fence import WriterLock
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import now_ms
from jobs.edge.table.reading import TableReader
from schemas.table.epoch import EpochRow, Offsets
from schemas.table.places import JobDirectory


class CannotMove(Exception):
    """The job cannot go on from there; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What was done; without a row the job stood there already."""

    newest: EpochRow  # before
    row: EpochRow | None


def move(
    place: JobDirectory, to: Offsets | None, admin: KafkaAdmin, *, at: int | None = None
) -> Moved:
    """Set the partitions in `to`, and leave the others; None sets all to the spec's source.start.
    With `at` only a job that stands at that epoch is moved."""
    lock = WriterLock(place.lock, place.name)
    try:
        reader = TableReader.open(place)
        newest = reader.newest
        if at is not None and newest.epoch != at:
            raise CannotMove(f"job {place.name!r} is at epoch {newest.epoch}, not {at}; look again")
        if newest.watermarks.get("agenda", {}).get("withheld"):
            raise CannotMove("results are withheld until the watermark ends their bundle")
        wanted = _wanted(reader, to, admin)
        if wanted == newest.offsets:
            return Moved(newest, None)
        return Moved(newest, _commit(reader, wanted))
    finally:
        lock.release()


def _wanted(reader: TableReader, to: Offsets | None, admin: KafkaAdmin) -> Offsets:
    """All offsets of the job as they are to be, each of them one that its topic has."""
    source, newest = reader.spec.source, reader.newest
    known = {name: newest.topics[name] for name in source.topics if name in newest.topics}
    same_topics(admin, known)
    asked = first_offsets(admin, source.topics, source.start) if to is None else to
    wanted = {topic: dict(partitions) for topic, partitions in newest.offsets.items()}
    for topic, partitions in asked.items():
        if topic not in source.topics:
            named = ", ".join(source.topics)
            raise CannotMove(f"job {reader.place.name!r} does not read {topic!r}, but {named}")
        for partition, offset in _within(admin, topic, partitions).items():
            wanted.setdefault(topic, {})[partition] = offset
    return wanted


def _within(admin: KafkaAdmin, topic: str, partitions: Mapping[str, int]) -> Mapping[str, int]:
    first, end = admin.beginning_offsets(topic), admin.end_offsets(topic)
    for partition, offset in partitions.items():
        number = int(partition)
        if number not in first:
            raise CannotMove(f"{topic} has no partition {partition}, but 0 to {len(first) - 1}")
        if not first[number] <= offset <= end[number]:
            has = f"{first[number]} to {end[number]}"
            raise CannotMove(f"{topic}/{partition} has the offsets {has}, not {offset}")
    return partitions


def _commit(reader: TableReader, wanted: Offsets) -> EpochRow:
    newest = reader.newest
    epoch = newest.epoch + 1
    row = EpochRow(
        epoch=epoch,
        uuid=uuid4().hex,
        generation=newest.generation,
        kind="offsets",
        committed_at=now_ms() * 1_000,
        plan=newest.plan,
        offsets=wanted,
        topics=newest.topics,
        watermarks=newest.watermarks,
        counters={
            "groups": newest.counters.get("groups", 0), "changelog_rows": 0,
            **newest.standing, "moved": newest.moved or epoch,
        },
        files={},
    )  # fmt: skip
    table = EpochTable.open(reader.root, reader.layout)
    table.commit_epoch(row, (), durable=reader.spec.durable)
    return row
