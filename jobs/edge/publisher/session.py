"""Publish with one producer: transactions, errors, and the stored progress.

fence ─► begin ─► records ─► commit records and progress ─► begin ...
                                    └─ outcome unknown: OutcomeUnknown, a new producer
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code

from jobs.core.publish.protocol import Configuration, Fatal, Progress
from jobs.core.publish.shares import place_progress
from jobs.edge.process.failpoints import failpoint
from jobs.edge.publisher.pipes import Inbox
from jobs.edge.publisher.records import SinkRecords
from schemas import limits
from schemas.table.changelog import EPOCH_HEADER, SEQ_HEADER

Headers = list[tuple[str, str | bytes | None]]

_WATCH_SECONDS = 0.5
_ROOM_SECONDS = 0.01
_ABORT_SECONDS = 1
_NOW = 0  # a record's timestamp, to librdkafka
_FENCED = (Code._FENCED, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH)
# Errors that a new producer would get again.
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
_PRODUCER_OPTIONS: dict[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    # 463-byte records become a tenth; compressing costs less than sending the rest.
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": limits.PUBLISH_BUFFER_KIBIBYTES,
    "log_level": 0,  # calls report the errors that matter
}


class OutcomeUnknown(Exception):
    """The outcome of the last call is unknown; start over with a new producer."""


class PublishFailed(Exception):
    """A retry would not help; `fatal` has the reason."""

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.fatal = Fatal(code, reason, hint)


class Session:
    """One producer, from fencing its predecessor to the first unknown outcome."""

    def __init__(self, configuration: Configuration, inbox: Inbox) -> None:
        self._configuration = configuration
        self._inbox = inbox
        self._transactional = configuration.delivery == "exactly_once"
        self._failed: list[Code] = []
        self._started_at: float | None = None
        options = {**configuration.connection, **_PRODUCER_OPTIONS}
        if self._transactional:
            options["transactional.id"] = configuration.transactional_id
            options["transaction.timeout.ms"] = limits.TRANSACTION_TIMEOUT_MS
        else:
            # A transaction's commit reports failed records; otherwise each record must report.
            options["on_delivery"] = self._on_delivery
        try:
            self._producer = Producer(options)
            if self._transactional:
                self._producer.init_transactions(limits.PUBLISH_CALL_SECONDS_MAX)
                failpoint("publisher_fenced")
        except KafkaException as error:
            raise self._classify_error(error) from None

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""
        if self._started_at is None:
            if self._transactional:
                try:
                    self._producer.begin_transaction()
                except KafkaException as error:
                    raise self._classify_error(error) from None
            self._started_at = awake_seconds()

    def produce(self, records: SinkRecords, epoch: int, topic: str) -> None:
        """Produce records of an epoch to a topic.

        Hot path: about 1.5 microseconds per record, two thirds of it in librdkafka.
        """
        produce = self._producer.produce
        of_epoch = (EPOCH_HEADER, str(epoch).encode())
        columns = zip(records.keys, records.values, records.seqs, records.partitions, strict=True)
        try:
            for key, value, seq, partition in columns:
                headers: Headers = [of_epoch, (SEQ_HEADER, seq)]
                try:  # positional: keyword arguments cost a third of the call
                    produce(topic, value, key, partition, None, None, _NOW, headers)
                except BufferError:
                    self._produce_when_room(topic, value, key, partition, headers)
        except KafkaException as error:
            raise self._classify_error(error) from None

    def commit(self, progress: Sequence[Progress], *helpers: Sequence[Progress]) -> None:
        """Commit the records since `begin` together with the progress of each topic.

        Share 0 may hand over the progress of its helpers, too."""
        self.begin()
        if not self._transactional:
            self._flush()
            failpoint("publish_flushed")
        of = self._configuration
        try:
            for share, positions in enumerate((progress, *helpers), of.share):
                for sink, position in zip(of.sinks, positions, strict=True):
                    topic, key = place_progress(of.job, sink.topic, share)
                    value = msgspec.json.encode(position)
                    self._produce_when_room(topic, value, key.encode(), share, [])
        except KafkaException as error:
            raise self._classify_error(error) from None
        if self._transactional:
            self._commit()
        else:
            self._flush()
        self._started_at = None

    def abandon(self) -> None:
        """Drop the producer; its open transaction is aborted now or by the next producer."""
        try:
            self._producer.purge()
            if self._transactional and self._started_at is not None:
                self._producer.abort_transaction(_ABORT_SECONDS)
        except KafkaException:
            pass  # the producer is broken; the next init_transactions aborts
        del self._producer  # not close(), which may wait for a broker forever

    def _commit(self) -> None:
        while True:
            self._inbox.require_parent()
            try:
                self._producer.commit_transaction(limits.PUBLISH_CALL_SECONDS_MAX)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._overdue():
                    raise self._classify_error(error) from None

    def _flush(self) -> None:
        try:
            while self._producer.flush(_WATCH_SECONDS):
                self._inbox.require_parent()
                if self._overdue():
                    raise OutcomeUnknown("the broker did not acknowledge all records in time")
            if self._failed:
                raise KafkaException(self._failed[0])
        except KafkaException as error:
            raise self._classify_error(error) from None

    def _produce_when_room(
        self, topic: str, value: bytes | None, key: bytes, partition: int, headers: Headers
    ) -> None:
        """Wait for room in the producer's buffer, because the broker is slower."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=headers)
                return
            except BufferError:
                self._inbox.require_parent()
                if self._overdue():
                    raise OutcomeUnknown("the broker acknowledged no records in time") from None
                self._producer.poll(_ROOM_SECONDS)

    def _on_delivery(self, error: Code | None, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def _overdue(self) -> bool:
        open_ms = 0.0 if self._started_at is None else (awake_seconds() - self._started_at) * 1_000
        return open_ms >= limits.TRANSACTION_TIMEOUT_MS

    def _classify_error(self, error: KafkaException) -> Exception:
        """Return PublishFailed or OutcomeUnknown for an error.

        A successor fences a producer. The broker fences it, too, after its transaction was open for
        too long (the machine slept), and then it may come back. The writer id in the progress shows
        whether there is a successor.
        """
        cause = error.args[0]
        if cause.code() == Code._FATAL:  # an earlier error; poll returns it
            cause = self._fatal_error() or cause
        code, text = cause.code(), cause.str()
        if code in _FENCED and not self._overdue():
            return PublishFailed(
                "fenced",
                f"another publisher took over {self._configuration.transactional_id!r}: {text}",
                "one job is running twice; leave the newer one alone",
            )
        if code in _REFUSED:
            hint = "check the connection's rights and the limits of broker and topic"
            if code in (Code.MSG_SIZE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
                named = ", ".join(repr(each.topic) for each in self._configuration.sinks)
                hint = f"raise max.message.bytes of topic {named}"
            return PublishFailed("publisher-refused", f"Kafka refuses the records: {text}", hint)
        return OutcomeUnknown(text)

    def _fatal_error(self) -> Code | None:
        try:
            self._producer.poll(_WATCH_SECONDS)
        except KafkaException as error:
            code: Code = error.args[0]
            return code
        return None


def awake_seconds() -> float:
    """Return a monotonic time in seconds that includes the sleep of the machine."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def read_progress(
    connection: dict[str, str], topic: str, job: str, share: int = 0
) -> tuple[Progress | None, dict[str, Progress]]:
    """Return the newest committed progress of the job, and that of other jobs by name.

    It reads the end of the share's partition, and more until it finds the job. Raises
    OutcomeUnknown.
    """
    options = {
        **connection,
        "group.id": f"{job}-progress",  # librdkafka requires a group; nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # the end is reached at once; half a second is the default
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(options)
    try:
        partition = TopicPartition(topic, share)
        low, high = consumer.get_watermark_offsets(partition, limits.PUBLISH_CALL_SECONDS_MAX)
        tail = limits.PROGRESS_TAIL_RECORDS
        while True:
            start = max(low, high - tail)
            values = _last_values(consumer, TopicPartition(topic, share, start))
            progresses = {
                key.decode(errors="replace"): msgspec.json.decode(value, type=Progress)
                for key, value in values.items()
            }
            if job in progresses or start == low:
                return progresses.pop(job, None), progresses
            tail *= 10
    except KafkaException as error:
        raise OutcomeUnknown(f"cannot read the progress: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _last_values(consumer: Consumer, start: TopicPartition) -> dict[bytes, bytes]:
    """Return the newest value of each key from `start` to the end of the partition."""
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
    raise OutcomeUnknown("cannot read the progress topic to its end in time")
