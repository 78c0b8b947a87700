"""Read the progress topic of the job that writes a source topic.

The driver asks between epochs, so a read waits only once: the first goes to the end that the topic
had when the reader was opened.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from jobs.core.publish.protocol import Progress
from jobs.edge.kafka.range_consumer import TEMPORARY
from schemas.limits import KAFKA_ADMIN_SECONDS_MAX, PROGRESS_TAIL_RECORDS
from schemas.spec.job import JobSpec
from schemas.table.changelog import progress_topic

_FIRST_POLL_SECONDS = 0.2
_OPTIONS = {
    "group.id": "retally-followed-progress",  # librdkafka requires a group; nothing is committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 100,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "log_level": 0,
}


class ProgressUnreadable(Exception):
    """The progress topic cannot be read, or has a record that is no progress."""


class ProgressReader:
    """Reads the newest progress record; one thread at a time may use it."""

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        self._topic = progress_topic(topic)
        self._consumer = Consumer({**connection, **_OPTIONS}, error_cb=lambda _: None)
        self._is_at_end = False
        try:
            partition = TopicPartition(self._topic, 0)
            low, high = self._consumer.get_watermark_offsets(partition, KAFKA_ADMIN_SECONDS_MAX)
        except KafkaException as error:
            self._consumer.close()
            raise ProgressUnreadable(
                f"{self._topic}: {error.args[0].str()}; from: progress needs the topic of a "
                "retally job that has started: start that job, or remove the key"
            ) from None
        start = max(low, high - PROGRESS_TAIL_RECORDS)
        self._consumer.assign([TopicPartition(self._topic, 0, start)])

    def read(self) -> Progress | None:
        """Return the newest progress since the last call; None if there is no newer one."""
        newest: bytes | None = None
        deadline = time.monotonic() + KAFKA_ADMIN_SECONDS_MAX
        while True:
            patience = 0 if self._is_at_end else _FIRST_POLL_SECONDS
            messages = self._consumer.consume(PROGRESS_TAIL_RECORDS, patience)
            for message in messages:
                newest = self._take(message) or newest
            if not messages and self._is_at_end:
                break
            if not self._is_at_end and time.monotonic() > deadline:
                raise ProgressUnreadable(
                    f"{self._topic}: its end was not reached within {KAFKA_ADMIN_SECONDS_MAX} s; "
                    "check that the broker runs: retally doctor"
                )
        return None if newest is None else self._decode(newest)

    def _take(self, message: Message) -> bytes | None:
        """Return the value of a record; remember the end of the topic."""
        error = message.error()
        if error is None:
            return message.value()
        if error.code() == KafkaError._PARTITION_EOF:
            self._is_at_end = True
        elif error.code() not in TEMPORARY:
            raise ProgressUnreadable(f"{self._topic}: {error.str()}")
        return None

    def _decode(self, value: bytes) -> Progress:
        try:
            return msgspec.json.decode(value, type=Progress)
        except msgspec.DecodeError as error:
            raise ProgressUnreadable(
                f"{self._topic} has a record that is no progress of a job: {error}"
            ) from None

    def close(self) -> None:
        self._consumer.close()


def open_followed(connection: Mapping[str, str], spec: JobSpec) -> dict[str, ProgressReader]:
    """Open a reader for each topic whose watermark is that of the job which writes it."""
    followed = (topic for topic, each in spec.strategies.items() if each.follows)
    return {topic: ProgressReader(connection, topic) for topic in followed}
