"""Move the offsets of a stopped job, so that it continues from other offsets of its topics.

    epoch E ──► epoch E+1, kind "offsets"
                  offsets     the requested ones, or those of each source's start
                  the rest    state, results, watermark: unchanged

Skipped records are never counted, and records that are read again count twice. So from then on the
results are not the query over the topic. The epoch rows have this epoch as `moved`, until a rewind
to an earlier epoch or a replay of the topic (evolve --replay).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from jobs.changing.stopped_job import StoppedJob, unite_counters
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import first_offsets, require_same_topics
from jobs.edge.process.fence import WriterLock
from jobs.edge.table.reading import TableReader
from schemas.directory.paths import JobDirectory
from schemas.table.epoch import EpochRow, Offsets
from schemas.types.moments import now_ms


class CannotMove(Exception):
    """The job cannot continue from these offsets; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move; without a row the job already had these offsets."""

    newest: EpochRow  # before
    row: EpochRow | None


def move_offsets(
    paths: JobDirectory, to: Offsets | None, admin: KafkaAdmin, *, at: int | None = None
) -> Moved:
    """Set the offsets of the partitions in `to`; None sets all to the start of their source.

    With `at`, raise CannotMove if the job is at another epoch.
    """
    with WriterLock(paths.lock, paths.name):
        job = StoppedJob.open(paths)
        newest = job.newest
        if at is not None and newest.epoch != at:
            raise CannotMove(
                f"job {paths.name!r} is at epoch {newest.epoch}, not {at}; read it again"
            )
        if any(reader.newest.withholds for reader in job.views.values()):
            raise CannotMove(
                f"job {paths.name!r} withholds results at epoch {newest.epoch}, so its offsets "
                "cannot move; let it run until the watermark ends the bundle, and stop it then"
            )
        wanted = _resolve_offsets(job.reader, to, admin)
        if wanted == newest.offsets:
            return Moved(newest, None)
        return Moved(newest, _commit(job, wanted))


def _resolve_offsets(reader: TableReader, to: Offsets | None, admin: KafkaAdmin) -> Offsets:
    """Return all new offsets of the job; raise CannotMove if a topic does not have one."""
    topics, newest = reader.spec.topics, reader.newest
    known = {name: newest.topics[name] for name in topics if name in newest.topics}
    require_same_topics(admin, known)
    requested = first_offsets(admin, reader.spec) if to is None else to
    wanted = {topic: dict(partitions) for topic, partitions in newest.offsets.items()}
    for topic, partitions in requested.items():
        if topic not in topics:
            named = ", ".join(topics)
            raise CannotMove(f"job {reader.paths.name!r} does not read {topic!r}, but {named}")
        _require_existing(admin, topic, partitions)
        wanted.setdefault(topic, {}).update(partitions)
    return wanted


def _require_existing(admin: KafkaAdmin, topic: str, partitions: Mapping[str, int]) -> None:
    """Raise CannotMove if the topic lacks a partition or an offset."""
    first, end = admin.beginning_offsets(topic), admin.end_offsets(topic)
    for partition, offset in partitions.items():
        number = int(partition)
        if number not in first:
            raise CannotMove(f"{topic} has no partition {partition}, but 0 to {len(first) - 1}")
        if not first[number] <= offset <= end[number]:
            has = f"{first[number]} to {end[number]}"
            raise CannotMove(f"{topic}/{partition} has the offsets {has}, not {offset}")


def _commit(job: StoppedJob, wanted: Offsets) -> EpochRow:
    newest = job.newest
    unchanged = {
        name: {"groups": reader.newest.groups, "changelog_rows": 0, **newest.view_counters(name)}
        for name, reader in job.views.items()
    }
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
            **unite_counters(newest, unchanged),
            **newest.state_counters,
            "moved": newest.moved or epoch,
        },
        files={},
    )
    job.table.commit_epoch(row, (), durable=job.reader.spec.durable)
    return row
