"""One producer of the publisher: its transactions, its errors, and the progress that it left.

fenced ─► begin ─► records ─► records and progress committed ─► begin ...
                                    └─ an outcome that nobody knows: Unsettled, a new producer
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code

from jobs.core.publish.protocol import Configuration, Fatal, Progress
from jobs.edge.process.failpoints import failpoint
from jobs.edge.publisher.pipes import Inbox
from jobs.edge.publisher.records import Records
from schemas import limits
from schemas.table.changelog import EPOCH_HEADER, SEQ_HEADER, progress_topic

Headers = list[tuple[str, str | bytes | None]]

_WATCH_SECONDS = 0.5
_ROOM_SECONDS = 0.01
_ABORT_SECONDS = 1
_NOW = 0  # a record's timestamp, to librdkafka
_FENCED = (Code._FENCED, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH)
# What no new producer would change.
_REFUSED = (
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.INVALID_CONFIG,
    Code.INVALID_REQUIRED_ACKS,
    Code.INVALID_TRANSACTION_TIMEOUT,
    Code.MSG_SIZE_TOO_LARGE,
    Code.POLICY_VIOLATION,
    Code.RECORD_LIST_TOO_LARGE,
    Code.SASL_AUTHENTICATION_FAILED,
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Code.UNSUPPORTED_SASL_MECHANISM,
    Code._AUTHENTICATION,
    Code._INVALID_ARG,
)
_PRODUCER_OPTIONS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    # 463-byte records become a tenth; it costs less than sending what it saves.
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": limits.PUBLISH_BUFFER_KIBIBYTES,
    "log_level": 0,  # what matters reaches us as an error of a call
}


class Unsettled(Exception):
    """Nobody knows how the last call ended: start over with a new producer."""


class Hopeless(Exception):
    """Trying again would not help."""

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.fatal = Fatal(code, reason, hint)


class Session:
    """From the fencing of a predecessor to the first doubt."""

    def __init__(
        self, configuration: Configuration, inbox: Inbox, *, succeeds_older_version: bool = False
    ) -> None:
        self._configuration = configuration
        self._inbox = inbox
        self._topic = configuration.topic
        self._progress_topic = progress_topic(configuration.topic)
        self._transactional = configuration.delivery == "exactly_once"
        self._failed: list[Code] = []
        self._begun_at: float | None = None
        options = {**configuration.connection, **_PRODUCER_OPTIONS}
        if self._transactional:
            if succeeds_older_version:
                _fence_older_version(configuration)
            options["transactional.id"] = configuration.transactional_id
            options["transaction.timeout.ms"] = limits.TRANSACTION_TIMEOUT_MS
        else:
            # A transaction's commit reports failed records; without one each has to.
            options["on_delivery"] = self._delivered
        try:
            self._producer = Producer(options)
            if self._transactional:
                self._producer.init_transactions(limits.PUBLISH_CALL_SECONDS_MAX)
                failpoint("publisher_fenced")
        except KafkaException as error:
            raise self._consequence(error) from None

    def begin(self) -> None:
        if self._begun_at is None:
            if self._transactional:
                try:
                    self._producer.begin_transaction()
                except KafkaException as error:
                    raise self._consequence(error) from None
            self._begun_at = awake_seconds()

    def produce(self, records: Records, epoch: int) -> None:
        """Hot path: about a microsecond and a half a record, two thirds of it in librdkafka."""
        produce, topic = self._producer.produce, self._topic
        of_epoch = (EPOCH_HEADER, str(epoch).encode())
        columns = zip(records.keys, records.values, records.seqs, records.partitions, strict=True)
        try:
            for key, value, seq, partition in columns:
                headers: Headers = [of_epoch, (SEQ_HEADER, seq)]
                try:  # by position: naming them costs a third of the call
                    produce(topic, value, key, partition, None, None, _NOW, headers)
                except BufferError:
                    self._produce_patiently(topic, value, key, partition, headers)
        except KafkaException as error:
            raise self._consequence(error) from None

    def commit(self, progress: Progress) -> None:
        """The records since `begin`, and `progress` with them."""
        self.begin()
        if not self._transactional:
            self._flush()
            failpoint("publish_flushed")
        key, value = self._configuration.job.encode(), msgspec.json.encode(progress)
        try:
            self._produce_patiently(self._progress_topic, value, key, 0, [])
        except KafkaException as error:
            raise self._consequence(error) from None
        if self._transactional:
            self._commit()
        else:
            self._flush()
        self._begun_at = None

    def abandon(self) -> None:
        """Throw the producer away; what it had not committed is aborted, by us or by the next."""
        try:
            self._producer.purge()
            if self._transactional and self._begun_at is not None:
                self._producer.abort_transaction(_ABORT_SECONDS)
        except KafkaException:
            pass  # it is why we are here; the next init_transactions aborts
        del self._producer  # and not close(), which waits for a broker without an end

    def _commit(self) -> None:
        while True:
            self._inbox.require_parent()
            try:
                self._producer.commit_transaction(limits.PUBLISH_CALL_SECONDS_MAX)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._overdue():
                    raise self._consequence(error) from None

    def _flush(self) -> None:
        try:
            while self._producer.flush(_WATCH_SECONDS):
                self._inbox.require_parent()
                if self._overdue():
                    raise Unsettled("the broker has not taken all records in time")
            if self._failed:
                raise KafkaException(self._failed[0])
        except KafkaException as error:
            raise self._consequence(error) from None

    def _produce_patiently(
        self, topic: str, value: bytes | None, key: bytes, partition: int, headers: Headers
    ) -> None:
        """Wait for room in the producer's buffer: the broker is slower than we are."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=headers)
                return
            except BufferError:
                self._inbox.require_parent()
                if self._overdue():
                    raise Unsettled("the broker has taken no records for too long") from None
                self._producer.poll(_ROOM_SECONDS)

    def _delivered(self, error: Code | None, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def _overdue(self) -> bool:
        open_ms = 0.0 if self._begun_at is None else (awake_seconds() - self._begun_at) * 1_000
        return open_ms >= limits.TRANSACTION_TIMEOUT_MS

    def _consequence(self, error: KafkaException) -> Exception:
        """What an error means. A producer is fenced by a successor; or by the broker, once its
        transaction had been open too long (a machine that slept), and then it may come back:
        the claims in the progress tell whether there is a successor."""
        cause = error.args[0]
        if cause.code() == Code._FATAL:  # it happened elsewhere; poll tells what it was
            cause = self._fatal_error() or cause
        code, text = cause.code(), cause.str()
        if code in _FENCED and not self._overdue():
            return Hopeless(
                "fenced",
                f"another publisher took over {self._configuration.transactional_id!r}: {text}",
                "one job is running twice; leave the newer one alone",
            )
        if code in _REFUSED:
            hint = "check the connection's rights and the limits of broker and topic"
            if code in (Code.MSG_SIZE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
                hint = f"raise max.message.bytes of topic {self._topic!r}"
            return Hopeless("refused", f"Kafka refuses to be written to: {text}", hint)
        return Unsettled(text)

    def _fatal_error(self) -> Code | None:
        try:
            self._producer.poll(_WATCH_SECONDS)
        except KafkaException as error:
            told: Code = error.args[0]
            return told
        return None


def _fence_older_version(configuration: Configuration) -> None:
    """End the transaction of a publisher from before transactional ids named the table. Its last
    progress names no table either; ours does, so this is done once."""
    producer = Producer(
        {
            **configuration.connection,
            "transactional.id": f"retally-{configuration.job}",
            "transaction.timeout.ms": limits.TRANSACTION_TIMEOUT_MS,
            "log_level": 0,
        }
    )
    producer.init_transactions(limits.PUBLISH_CALL_SECONDS_MAX)


def awake_seconds() -> float:
    """Seconds that go on while the machine sleeps, as the broker's do."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def read_progress(
    connection: dict[str, str], topic: str, job: str
) -> tuple[Progress | None, dict[str, Progress]]:
    """Return the newest committed progress of the job, and that of other jobs beside it, from the
    end of the topic; of a job that has none yet the whole topic is read."""
    options = {
        **connection,
        "group.id": f"{job}-progress",  # librdkafka wants one; nothing is committed under it
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # the end is reached at once; half a second is the default
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(options)
    try:
        place = TopicPartition(topic, 0)
        low, high = consumer.get_watermark_offsets(place, limits.PUBLISH_CALL_SECONDS_MAX)
        tail = limits.PROGRESS_TAIL_RECORDS
        while True:
            start = max(low, high - tail)
            values = _last_values(consumer, TopicPartition(topic, 0, start))
            found = {
                key.decode(errors="replace"): msgspec.json.decode(value, type=Progress)
                for key, value in values.items()
            }
            if job in found or start == low:
                return found.pop(job, None), found
            tail *= 10
    except KafkaException as error:
        raise Unsettled(f"the progress cannot be read: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _last_values(consumer: Consumer, start: TopicPartition) -> dict[bytes, bytes]:
    """Return the newest value of each key from there on."""
    consumer.assign([start])
    last: dict[bytes, bytes] = {}
    deadline = time.monotonic() + limits.PUBLISH_CALL_SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(_WATCH_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            key, value = message.key(), message.value()
            if key is not None and value is not None:
                last[key] = value
        elif error.code() == Code._PARTITION_EOF:
            return last
        elif not error.retriable():
            raise KafkaException(error)
    raise Unsettled("the progress cannot be read to its end in time")
