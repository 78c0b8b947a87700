"""retally quarantine: the messages that a job did not take; one of them is sent again, fixed."""

from __future__ import annotations

import argparse
import base64
from typing import Any

import msgspec

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.message_file import message_of
from jobs.cli.output import note, print_json, print_messages
from jobs.core.job.refused_message import identity_of
from jobs.edge.process.job_directory import JobDirectory, existing_job
from jobs.edge.table.epoch_files import QUARANTINE
from jobs.edge.table.reading import reading
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.table.replayed import read_replay


def run(options: argparse.Namespace) -> None:
    place = existing_job(options.data, options.job)
    if options.replay is not None:
        _replay(place, options)
        return
    if options.message is not None or options.again:
        raise UsageError("--message and --again belong to --replay ID")
    rows = reading(place, lambda table: table.part(QUARANTINE))
    documents = [_document(place, row) for row in rows]
    if options.json:
        for document in documents:
            print_json(document)
        return
    print_messages(documents)


def _replay(place: JobDirectory, options: argparse.Namespace) -> None:
    fixed = None if options.message is None else message_of(options.message)
    connections = load_connections(options.connections, options.brokers)
    source = connections.named(load_spec(place.spec).source.connection)
    from jobs.changing.quarantine_replay import CannotReplay, replay
    from jobs.edge.kafka.admin import KafkaAdmin
    from schemas.spec.connections import kafka_python_options, librdkafka_options

    with KafkaAdmin(kafka_python_options(source)) as admin:
        try:
            done = replay(
                place, options.replay, fixed, librdkafka_options(source), admin, again=options.again
            )
        except CannotReplay as error:
            raise CommandFailed(str(error)) from None
    if options.json:
        print_json(msgspec.to_builtins(done))
    else:
        note(f"message {done.id} is offset {done.offset} of {done.topic}/{done.partition} now")


def _document(place: JobDirectory, row: dict[str, Any]) -> dict[str, Any]:
    identity = identity_of((row["epoch"], row["topic"], row["partition"], row["offset"]))
    replayed = read_replay(place.replayed, identity)
    document: dict[str, Any] = {
        "id": identity,
        "reason": row["reason"],
        "path": row["path"],
        "bytes": row["raw_bytes"],
        "replayed": None if replayed is None else msgspec.to_builtins(replayed),
    }
    raw: bytes | None = row["raw"]
    try:
        return document | {"raw": None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return document | {"raw_base64": base64.b64encode(raw or b"").decode()}
