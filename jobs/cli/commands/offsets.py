"""retally offsets: where a job goes on in its topics; sets a stopped one elsewhere."""

from __future__ import annotations

import argparse
import re

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import moved_note, note, print_json, print_table
from jobs.edge.process.job_directory import existing_job
from jobs.edge.table.reading import reading
from schemas.spec.connections import kafka_python_options, load_connections
from schemas.spec.file import load_spec
from schemas.table.epoch import EpochRow, Offsets
from schemas.table.places import JobDirectory

_SET = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,9})=([0-9]{1,18})", re.ASCII)


def run(options: argparse.Namespace) -> None:
    place = existing_job(options.data, options.job)
    if not options.set and not options.reset:
        _show(options, place.name, reading(place, lambda table: table.newest), changed=False)
        return
    before, row = _moved(options, place)
    _show(options, place.name, row or before, changed=row is not None)


def _moved(options: argparse.Namespace, place: JobDirectory) -> tuple[EpochRow, EpochRow | None]:
    connections = load_connections(options.connections, options.brokers)
    source = connections.named(load_spec(place.spec).source.connection)
    from jobs.changing.offsets import CannotMove, move
    from jobs.edge.kafka.admin import KafkaAdmin
    from jobs.edge.kafka.source import SourceChanged

    to = None if options.reset else _asked(options.set)
    with KafkaAdmin(kafka_python_options(source)) as admin:
        try:
            done = move(place, to, admin, at=options.at)
        except (CannotMove, SourceChanged) as error:
            raise CommandFailed(str(error)) from None
    return done.newest, done.row


def _asked(texts: list[str]) -> Offsets:
    found: Offsets = {}
    for text in texts:
        parts = _SET.fullmatch(text)
        if parts is None:
            raise UsageError(f"--set {text!r}: write TOPIC/PARTITION=OFFSET, as shop.product/0=12")
        topic, partition, offset = parts.groups()
        found.setdefault(topic, {})[str(int(partition))] = int(offset)
    return found


def _show(options: argparse.Namespace, name: str, row: EpochRow, *, changed: bool) -> None:
    if options.json:
        document = {"job": name, "epoch": row.epoch, "changed": changed, "moved": row.moved}
        print_json({**document, "offsets": row.offsets})
        return
    print_table(
        [("topic", False), ("partition", True), ("next offset", True)],
        (
            [topic, partition, offset]
            for topic, partitions in sorted(row.offsets.items())
            for partition, offset in sorted(partitions.items(), key=lambda each: int(each[0]))
        ),
    )
    if row.moved is not None:
        note(moved_note(row.moved))
    note(f"{name} is at epoch {row.epoch}")
