"""retally topics: lists the topics of a connection, shows one, or creates one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import print_json, print_note, print_table
from jobs.core.values.json_values import Json
from jobs.topics.consumer import Offsets, list_topics, read_topic
from schemas.limits import TOPIC_PARTITIONS_MAX
from schemas.spec.connections import Connection, load_connections

_TOPIC = [("topic", False), ("partitions", True), ("records", True)]
_PARTITION = [("partition", True), ("first", True), ("next", True)]


def run(options: argparse.Namespace) -> None:
    if (options.name is None) != (options.action == "list"):
        wrong = "needs a TOPIC" if options.name is None else "takes no TOPIC"
        raise UsageError(f"topics {options.action} {wrong}")
    connections = load_connections(options.connections, options.brokers)
    connection = connections.lookup(options.connection)
    if options.action == "create":
        _create(connection, options.name, options.partitions)
    if options.action == "list":
        _print_list(connection, json=options.json)
    else:
        _print_topic(options.name, read_topic(connection, options.name), json=options.json)


def _create(connection: Connection, name: str, partitions: int) -> None:
    # The import takes what listing does not need.
    from jobs.edge.kafka.admin import KafkaAdmin
    from schemas.spec.connections import kafka_python_options

    if not 1 <= partitions <= TOPIC_PARTITIONS_MAX:
        raise UsageError(f"--partitions must be 1 to {TOPIC_PARTITIONS_MAX}")
    with KafkaAdmin(kafka_python_options(connection)) as admin:
        if admin.topic(name) is not None:
            raise CommandFailed(f"topic {name!r} exists already")
        admin.ensure_topic(name, partitions, {})


def _print_list(connection: Connection, *, json: bool) -> None:
    found = list_topics(connection)
    if json:
        print_json(*(_describe(name, offsets) for name, offsets in found.topics.items()))
    else:
        rows: list[list[Json]] = [
            [name, len(each), _count(each)] for name, each in found.topics.items()
        ]
        print_table(_TOPIC, rows)
    if found.known > len(found.topics):
        print_note(f"The first {len(found.topics)} of {found.known} topics, by name.")


def _print_topic(name: str, offsets: Offsets, *, json: bool) -> None:
    if json:
        print_json(_describe(name, offsets))
        return
    rows: list[list[Json]] = [[number, first, end] for number, (first, end) in offsets.items()]
    print_table(_PARTITION, rows)


def _describe(name: str, offsets: Offsets) -> Mapping[str, object]:
    """Return a topic as GET /v1/topics does, without rates."""
    partitions = {str(each): {"first": at, "next": end} for each, (at, end) in offsets.items()}
    return {"name": name, "records": _count(offsets), "partitions": partitions}


def _count(offsets: Offsets) -> int:
    return sum(end - first for first, end in offsets.values())
