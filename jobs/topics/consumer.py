"""A consumer without a group, which lists and reads topics; and why brokers cannot be read."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, UnsupportedCodecError

from schemas.limits import (
    SAMPLE_FETCH_BYTES,
    SAMPLE_MESSAGES_MAX,
    SAMPLE_SECONDS_MAX,
    TOPICS_SHOWN_MAX,
)
from schemas.spec.broker_address import AddressRefused, require_allowed_brokers
from schemas.spec.connections import Connection, kafka_python_options

_NAMED = 5  # similar topics in the error for an unknown topic


class TopicsUnreadable(Exception):
    """The brokers of a connection cannot be read; the message says what to do.

    `cause` is for logs: it may have addresses of the operator.
    """

    def __init__(self, text: str, cause: str = "") -> None:
        super().__init__(text, cause)  # both, because it comes from a child process
        self.cause = cause

    def __str__(self) -> str:
        return str(self.args[0])


class BrokersSilent(TopicsUnreadable):
    """The brokers do not answer."""


class BrokersRefused(TopicsUnreadable):
    """The brokers advertise an address that is not allowed."""


class TopicUnknown(TopicsUnreadable):
    """The brokers have no such topic."""


class CodecMissing(TopicsUnreadable):
    """Messages are compressed with a codec that has no library here."""


def find_listener(addresses: Sequence[str]) -> str:
    """Return why no address accepts a connection; "" if one does."""
    why = "no address"
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with closing(socket.create_connection((host.strip("[]"), int(port)), 1)):
                return ""
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
    return why


@contextmanager
def open_consumer(connection: Connection) -> Iterator[Any]:
    """Open a consumer of a connection; raise TopicsUnreadable if its brokers cannot be read."""
    if why := find_listener(connection.bootstrap):  # a client would try for seconds
        raise _make_silent(connection, why)
    try:
        with closing(_make_consumer(connection)) as consumer:
            require_allowed_brokers(consumer._client.cluster)
            yield consumer
    except AddressRefused as refused:
        raise BrokersRefused(
            f"the brokers of connection {connection.name!r} advertise an address that is not "
            "allowed; the service's log names it",
            str(refused),
        ) from None
    except UnsupportedCodecError as error:
        codec = next((each for each in ("zstd", "snappy", "lz4") if each in str(error)), "another")
        raise CodecMissing(
            f"the newest messages are compressed with {codec}, and no library for this codec is "
            "installed; jobs read them without it"
        ) from None
    except (KafkaError, OSError, ValueError) as error:
        raise _make_silent(connection, f"{type(error).__name__}: {error}") from None


def _make_silent(connection: Connection, cause: str) -> BrokersSilent:
    text = (
        f"the brokers of connection {connection.name!r} did not answer: check that they run, and "
        "that they can be reached (retally doctor)"
    )
    return BrokersSilent(text, cause)


def _make_consumer(connection: Connection) -> Any:
    return KafkaConsumer(
        **kafka_python_options(connection),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="latest",
        fetch_max_bytes=SAMPLE_FETCH_BYTES,
        max_partition_fetch_bytes=SAMPLE_FETCH_BYTES,
        max_poll_records=SAMPLE_MESSAGES_MAX,
        request_timeout_ms=int(SAMPLE_SECONDS_MAX * 1_000),
        bootstrap_timeout_ms=int(SAMPLE_SECONDS_MAX * 1_000),
    )


def make_unknown(topics: Sequence[str], known: Iterable[str]) -> TopicUnknown:
    """Return the error for an unknown topic, with similar names or the first ones."""
    existing = sorted(name for name in known if not name.startswith("__"))
    near = [each for topic in topics for each in get_close_matches(topic[:100], existing, _NAMED)]
    named = ", ".join(near or existing[:_NAMED])
    missing = " or ".join(repr(topic[:100]) for topic in topics)
    text = f"the brokers have no topic {missing}"
    return TopicUnknown(f"{text}; known topics: {named}" if named else text)


Offsets = dict[int, tuple[int, int]]  # by partition: the first offset, and the next


@dataclass(frozen=True, slots=True)
class TopicList:
    """The first topics by name, and the number of all; Kafka's own are left out."""

    topics: Mapping[str, Offsets]
    known: int


def list_topics(connection: Connection, part: str = "") -> TopicList:
    """Return the topics of a connection with `part` in their name; raise TopicsUnreadable."""
    with open_consumer(connection) as consumer:
        own = (name for name in consumer.topics() if not name.startswith("__"))
        names = sorted(name for name in own if part.lower() in name.lower())
        return TopicList(_read_offsets(consumer, names[:TOPICS_SHOWN_MAX]), len(names))


def read_topic(connection: Connection, name: str) -> Offsets:
    """Return the offsets of one topic; raise TopicsUnreadable, also if there is none."""
    with open_consumer(connection) as consumer:
        found = _read_offsets(consumer, [name])
        if not found[name]:
            raise make_unknown([name], consumer.topics())
        return found[name]


def _read_offsets(consumer: Any, names: Sequence[str]) -> dict[str, Offsets]:
    partitions = {name: sorted(consumer.partitions_for_topic(name) or ()) for name in names}
    wanted = [TopicPartition(name, number) for name, ps in partitions.items() for number in ps]
    if not wanted:
        return {name: {} for name in names}
    starts, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    found: dict[str, Offsets] = {name: {} for name in names}
    for each in wanted:
        found[each.topic][each.partition] = (starts[each], ends[each])
    return found
