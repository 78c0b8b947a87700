"""Quarantine replay: a message that was refused is sent to its topic again, as it is or fixed.

    quarantine ─► message, fixed by somebody ─► would the job take it? ─► noted ─► source topic
                                                                             └──► noted with offset

It goes into the topic and not into the table, because the topic is what the results are of: the
job reads it in its turn, an audit recomputes it, a job that begins anew finds it. It takes the
refused message's partition and key, at the end: what has come after that message came before it.

A note is written before it is sent, and another with its offset after; where only the first is
there, the topic is searched for the header of that sending, so that nothing is sent twice.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow.compute as pc

from jobs.core.job.refused_message import Place, place_of, why_refused
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.record import found_again, record_at, send
from jobs.edge.kafka.source import same_topics
from jobs.edge.process.failpoints import failpoint
from jobs.edge.table.epoch_files import QUARANTINE, now_ms
from jobs.edge.table.reading import TableReader, reading
from schemas.table.parquet_file import rows_in
from schemas.table.places import JobDirectory
from schemas.table.replayed import Replay, read_replay, write_replay


class CannotReplay(Exception):
    """The message cannot be sent again; nothing was sent."""


def replay(
    place: JobDirectory,
    identity: str,
    fixed: bytes | None,
    connection: Mapping[str, str],
    admin: KafkaAdmin,
    *,
    again: bool = False,
) -> Replay:
    """Send a message of the quarantine once more; `fixed` instead of its own bytes.

    `connection` is that of the source, in librdkafka's words.
    """
    wanted = place_of(identity)
    found = None if wanted is None else reading(place, lambda table: _rejected(table, wanted))
    if wanted is None or found is None:
        raise CannotReplay(f"job {place.name!r} has no message {identity!r} in quarantine")
    table, row = found
    _, topic, partition, offset = wanted
    known = {topic: table.newest.topics[topic]} if topic in table.newest.topics else {}
    same_topics(admin, known)
    original = record_at(connection, topic, partition, offset)
    value = fixed if fixed is not None else _own_bytes(identity, row, original)
    refused = why_refused(table.spec, table.plan, value)
    if refused is not None:
        reason, path = refused
        raise CannotReplay(f"the job would refuse that message again: {reason} (at {path})")
    with _one_at_a_time(place.replayed):
        return _sent(
            place.replayed, connection, admin, again=again, value=value,
            key=None if original is None else original.key(),
            replay=Replay(
                id=identity, fixed=fixed is not None, topic=topic, partition=partition, since=0,
                token=uuid4().hex, sent_at=now_ms(),
            ),
        )  # fmt: skip


def _sent(
    directory: Path,
    connection: Mapping[str, str],
    admin: KafkaAdmin,
    *,
    replay: Replay,
    value: bytes,
    key: bytes | None,
    again: bool,
) -> Replay:
    topic, partition = replay.topic, replay.partition
    end = admin.end_offsets(topic).get(partition, 0)
    before = read_replay(directory, replay.id)
    if before is not None and before.offset is None:  # killed in between, or no answer came
        at = found_again(connection, before.token, topic, partition, before.since, end)
        before = None if at is None else msgspec.structs.replace(before, offset=at)
        if before is not None:
            write_replay(directory, before)
    if before is not None and not again:
        raise CannotReplay(
            f"message {replay.id} was sent again already, as offset {before.offset} of "
            f"{topic}/{partition}; to send it once more, say so with --again"
        )
    noted = msgspec.structs.replace(replay, since=end)
    write_replay(directory, noted)
    failpoint("replay_noted")
    offset = send(connection, topic, partition, value, key=key, token=noted.token)
    failpoint("replay_sent")
    done = msgspec.structs.replace(noted, offset=offset)
    write_replay(directory, done)
    return done


def _rejected(table: TableReader, wanted: Place) -> tuple[TableReader, dict[str, Any]] | None:
    """The row of a message in quarantine."""
    epoch, topic, partition, offset = wanted
    mine = (
        (pc.field("epoch") == epoch)
        & (pc.field("topic") == topic)
        & (pc.field("partition") == partition)
        & (pc.field("offset") == offset)
    )
    for file in table.files:
        if file.part == QUARANTINE and file.epoch_min <= epoch <= file.epoch_max:
            rows = rows_in(table.root / file.path, filters=mine)
            for row in rows.to_pylist():
                return table, row
    return None


def _own_bytes(identity: str, row: Mapping[str, Any], original: Any) -> bytes:
    """The message as it came: of a long one quarantine keeps only the beginning."""
    raw: bytes | None = row["raw"]
    if raw is not None and len(raw) == row["raw_bytes"]:
        return raw
    value: bytes | None = None if original is None else original.value()
    if value is None:
        raise CannotReplay(
            f"of message {identity} only the beginning is kept, and its topic no longer has it; "
            "give the whole message"
        )
    return value


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
