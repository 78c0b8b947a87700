"""retally topics: lists the topics of a connection; shows, fills, creates or deletes some."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import Columns, print_answer, print_note
from jobs.topics.consumer import Offsets, list_topics, read_topic
from schemas.limits import TOPIC_PARTITIONS_MAX
from schemas.spec.connections import Connection, load_connections

if TYPE_CHECKING:
    from jobs.edge.kafka.admin import KafkaAdmin

_TOPIC: Columns = {
    "topic": "name",
    "partitions": lambda topic: len(topic["partitions"]),
    "records": "records",
}
_PARTITION: Columns = {name: name for name in ("partition", "first", "next")}


def run(options: argparse.Namespace) -> None:
    action, names = options.action, options.names
    if action != "delete" and len(names) != (action != "list"):
        raise UsageError(f"topics {action} takes {'no' if action == 'list' else 'one'} TOPIC")
    connections = load_connections(options.connections, options.brokers)
    connection = connections.lookup(options.connection)
    if action == "list":
        found = list_topics(connection)
        documents = [_describe(*topic) for topic in found.topics.items()]
        print_answer(options.output, documents, _TOPIC)
        if found.known > len(documents):
            print_note(f"The first {len(documents)} of {found.known} topics, by name.")
    elif action == "delete":
        with open_admin(connection) as admin:
            admin.delete_topics([require_topic(admin, name) for name in names])
    elif action == "produce":
        _produce(connection, names[0], options.key_separator)
    else:
        if action == "create":
            create_topic(connection, names[0], options.partitions)
        topic = _describe(names[0], read_topic(connection, names[0]))
        rows = [{"partition": int(p)} | at for p, at in topic["partitions"].items()]
        print_answer(options.output, [topic] if options.output == "json" else rows, _PARTITION)


def open_admin(connection: Connection) -> KafkaAdmin:
    # The import takes what listing does not need.
    from jobs.edge.kafka.admin import KafkaAdmin
    from schemas.spec.connections import kafka_python_options

    return KafkaAdmin(kafka_python_options(connection))


def require_topic(admin: KafkaAdmin, name: str) -> str:
    if admin.topic(name) is None:
        raise CommandFailed(f"there is no topic {name!r}; retally topics create {name} creates it")
    return name


def create_topic(connection: Connection, name: str, partitions: int) -> None:
    """Create a topic; raise CommandFailed if it is there."""
    if not 1 <= partitions <= TOPIC_PARTITIONS_MAX:
        raise UsageError(f"--partitions must be 1 to {TOPIC_PARTITIONS_MAX}")
    with open_admin(connection) as admin:
        if admin.topic(name) is not None:
            raise CommandFailed(f"topic {name!r} exists already")
        admin.ensure_topic(name, partitions, {})


def _produce(connection: Connection, name: str, separator: str | None) -> None:
    """Write each line of standard input as a message; with a separator its start is the key."""
    with open_admin(connection) as admin:  # a producer would wait for a minute
        require_topic(admin, name)
    from kafka import KafkaProducer

    from schemas.spec.connections import kafka_python_options

    count, failures = 0, list[Exception]()
    with closing(KafkaProducer(**kafka_python_options(connection), acks="all")) as producer:
        for line in filter(None, (each.rstrip(b"\r\n") for each in sys.stdin.buffer)):
            key, found, value = line.partition((separator or "\n").encode())
            sent = (value, key) if found else (line, None)
            producer.send(name, *sent).add_errback(failures.append)
            count += 1
    if failures:
        raise failures[0]
    print_note(f"wrote {count:,} {'message' if count == 1 else 'messages'} to {name}")


def _describe(name: str, offsets: Offsets) -> dict[str, Any]:
    """Return a topic as GET /v1/topics does, without rates."""
    partitions = {str(each): {"first": at, "next": end} for each, (at, end) in offsets.items()}
    records = sum(end - first for first, end in offsets.values())
    return {"name": name, "records": records, "partitions": partitions}
