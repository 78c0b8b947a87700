"""Read the progress topic of the job that writes a source topic.

The driver asks between epochs, so a read waits only once: the first goes to the end that the topic
had when the reader was opened.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from jobs.core.publish.protocol import Progress
from schemas.limits import KAFKA_ADMIN_SECONDS_MAX, PROGRESS_TAIL_RECORDS
from schemas.spec.connections import Connections, kafka_python_options, librdkafka_options
from schemas.spec.job import JobSpec
from schemas.table.changelog import progress_topic

_FIRST_POLL_MS = 200
_TIMEOUT_MS = int(KAFKA_ADMIN_SECONDS_MAX * 1_000)
_OPTIONS = {
    "group_id": None,
    "enable_auto_commit": False,
    "fetch_max_wait_ms": 100,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "bootstrap_timeout_ms": _TIMEOUT_MS,
    "request_timeout_ms": _TIMEOUT_MS,
}


class ProgressUnreadable(Exception):
    """The progress topic cannot be read, or has a record that is no progress."""


class ProgressReader:
    """Reads the newest progress record; one thread at a time may use it."""

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        self._topic = progress_topic(topic)
        self._partition = TopicPartition(self._topic, 0)
        try:
            self._consumer = KafkaConsumer(**kafka_python_options(connection), **_OPTIONS)
        except KafkaError as error:
            raise ProgressUnreadable(f"{self._topic}: {error}") from None
        try:
            if not self._consumer.partitions_for_topic(self._topic):
                raise ProgressUnreadable(
                    f"{self._topic}: there is no such topic; from: progress needs the topic of a "
                    "retally job that has started: start that job, or remove the key"
                )
            (low,) = self._consumer.beginning_offsets([self._partition]).values()
            (self._first_end,) = self._consumer.end_offsets([self._partition]).values()
            self._consumer.assign([self._partition])
            self._consumer.seek(self._partition, max(low, self._first_end - PROGRESS_TAIL_RECORDS))
        except BaseException as error:
            self._consumer.close()
            if isinstance(error, KafkaError):
                raise ProgressUnreadable(f"{self._topic}: {error}") from None
            raise

    def read(self) -> Progress | None:
        """Return the newest progress since the last call; None if there is no newer one."""
        newest: bytes | None = None
        deadline = time.monotonic() + KAFKA_ADMIN_SECONDS_MAX
        try:
            while True:
                waits = self._consumer.position(self._partition) < self._first_end
                found = self._consumer.poll(_FIRST_POLL_MS if waits else 0)
                for record in found.get(self._partition, ()):
                    newest = record.value
                if not found and not waits:
                    break
                if waits and time.monotonic() > deadline:
                    raise ProgressUnreadable(
                        f"{self._topic}: its end was not reached within "
                        f"{KAFKA_ADMIN_SECONDS_MAX} s; check that the broker runs: retally doctor"
                    )
        except KafkaError as error:
            raise ProgressUnreadable(f"{self._topic}: {error}") from None
        return None if newest is None else self._decode(newest)

    def _decode(self, value: bytes) -> Progress:
        try:
            return msgspec.json.decode(value, type=Progress)
        except msgspec.DecodeError as error:
            raise ProgressUnreadable(
                f"{self._topic} has a record that is no progress of a job: {error}"
            ) from None

    def close(self) -> None:
        self._consumer.close()


def open_followed(connections: Connections, spec: JobSpec) -> dict[str, ProgressReader]:
    """Open a reader for each topic whose watermark is that of the job which writes it."""
    names = spec.topic_connections
    return {
        topic: ProgressReader(librdkafka_options(connections.lookup(names[topic])), topic)
        for topic, each in spec.strategies.items()
        if each.follows
    }
