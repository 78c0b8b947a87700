"""Replay a quarantined message: send it to its topic again, unchanged or corrected.

    quarantine ─► message, corrected ─► would the job accept it? ─► record ─► source topic
                                                                       └────► record with offset

The message goes to the topic, not to the table, because results are computed from the topic: the
job reads it in order, an audit recomputes it, and a new job finds it. It keeps its partition and
its key, but it is now at the end, after messages that were once sent after it.

The command writes a record before it sends the message, and the record with the offset after. If it
was killed in between, the next command searches the topic for the token of the first record, so
that no message is sent twice.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec

from jobs.core.job.refused_message import find_taker, job_decoders, why_refused
from jobs.core.values.change import RejectCode
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.records import Record
from jobs.edge.kafka.single_records import find_replayed, read_record, send_record
from jobs.edge.kafka.source import require_same_topics
from jobs.edge.process.failpoints import failpoint
from jobs.edge.table.reading import read_with_retries
from jobs.reading.quarantine import find_row
from jobs.topics.schema_registry import find_by
from schemas.directory.paths import JobDirectory
from schemas.directory.quarantine import (
    QuarantineRow,
    Replay,
    UnknownMessage,
    parse_message_id,
    read_replay,
    write_replay,
)
from schemas.spec.connections import Connections, librdkafka_options
from schemas.spec.file import load_spec
from schemas.types.moments import now_ms


class CannotReplay(Exception):
    """The message cannot be sent again; nothing was sent."""


def replay(
    paths: JobDirectory,
    identity: str,
    fixed: bytes | None,
    connections: Connections,
    admin: KafkaAdmin,
    *,
    again: bool = False,
) -> Replay:
    """Send a message of the quarantine again, with the bytes of `fixed` if given."""
    try:
        wanted = parse_message_id(identity)
        table, row, file = read_with_retries(paths, lambda table: (table, *find_row(table, wanted)))
    except UnknownMessage:
        raise CannotReplay(
            f"job {paths.name!r} has no message {identity!r} in quarantine; retally quarantine "
            f"{paths.name} lists the ids"
        ) from None
    whole = load_spec(paths.at_view("").spec)
    expression = row.quarantine_code == RejectCode.EXPRESSION
    own = paths.view and not file.is_shared
    if own or (expression and (paths.view or whole.views)):
        raise CannotReplay(
            "only one view refused this message; sent again, it would count twice in the others"
        )
    _, topic, partition, offset = wanted
    if "/" in topic:
        raise CannotReplay(
            f"{topic} is a directory of files; write the corrected lines to a new file in it"
        )
    known = {topic: table.newest.topics[topic]} if topic in table.newest.topics else {}
    require_same_topics(admin, known)
    name = whole.topic_connections.get(topic, whole.source.connection)
    connection = librdkafka_options(connections.lookup(name))
    original = read_record(connection, topic, partition, offset)
    kept = row.raw if original is None else original.value
    find = partial(find_by, connections)
    if taker := find_taker(whole, topic, row.quarantine_source, kept or b"", find):
        raise CannotReplay(
            f"source {row.quarantine_source!r} refused this message, and {taker!r} has counted it; "
            "sent again, it would count there twice"
        )
    value = fixed if fixed is not None else _read_bytes(identity, row, original)
    refused = why_refused(job_decoders(whole, topic, find), value)
    if refused is not None:
        reason, path = refused
        raise CannotReplay(f"the job would refuse that message again: {reason} (at {path})")
    with _lock_replays(paths.replayed):
        return _send(
            paths.replayed,
            connection,
            admin,
            again=again,
            value=value,
            key=None if original is None else original.key,
            replay=Replay(
                id=identity,
                fixed=fixed is not None,
                topic=topic,
                partition=partition,
                since=0,
                token=uuid4().hex,
                sent_at=now_ms(),
            ),
        )


class Replays(msgspec.Struct, frozen=True):
    """What became of several messages: those that were sent, and the reasons of the others."""

    sent: list[Replay]
    refused: dict[str, str]  # the reason by id


def replay_all(
    paths: JobDirectory,
    identities: Sequence[str],
    connections: Connections,
    admin: KafkaAdmin,
    *,
    again: bool = False,
) -> Replays:
    """Send messages of the quarantine again, unchanged and in this order; skip refused ones."""
    done = Replays([], {})
    for identity in dict.fromkeys(identities):
        try:
            done.sent.append(replay(paths, identity, None, connections, admin, again=again))
        except CannotReplay as reason:
            done.refused[identity] = str(reason)
    return done


def _send(
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
    if before is not None and before.offset is None:  # killed in between, or no acknowledgement
        at = find_replayed(connection, before.token, topic, partition, before.since, end)
        before = None if at is None else msgspec.structs.replace(before, offset=at)
        if before is not None:
            write_replay(directory, before)
    if before is not None and not again:
        raise CannotReplay(
            f"message {replay.id} was sent again already, as offset {before.offset} of "
            f"{topic}/{partition}; use --again to send it once more"
        )
    noted = msgspec.structs.replace(replay, since=end)
    write_replay(directory, noted)
    failpoint("replay_noted")
    offset = send_record(connection, topic, partition, value, key=key, token=noted.token)
    failpoint("replay_sent")
    done = msgspec.structs.replace(noted, offset=offset)
    write_replay(directory, done)
    return done


def _read_bytes(identity: str, row: QuarantineRow, original: Record | None) -> bytes:
    """Return the whole message; of a long one quarantine has only the first bytes."""
    if row.raw is not None and len(row.raw) == row.raw_bytes:
        return row.raw
    value = None if original is None else original.value
    if value is None:
        raise CannotReplay(
            f"quarantine has only the first bytes of message {identity}, and its topic no longer "
            "has it; send the whole message"
        )
    return value


@contextmanager
def _lock_replays(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
