"""The publisher: copies a job's committed epochs to its changelog topic, in order, exactly once.

    stdin: epochs ──► Inbox ──► files read ──► records ──► Session: one producer
                                                              │
                      changelog topic  ◄── records ───────────┤ the same
                      <topic>-progress ◄── epoch and seq ─────┤ transaction
    stdout: published ◄─────────────────── committed ─────────┘

The way of an epoch:
  1. Rows in seq order, those above the progress's seq only; a text for each (changelog_records).
  2. Begin a transaction; produce; never more records in one than `transaction_records`.
  3. See that the topic is still the one it was (id, partition count).
  4. Produce the progress record, commit, answer.
Small epochs that wait together share a transaction; a large one spans several, each with its own
progress record, so that a restart goes on inside the epoch.

A start is: `init_transactions` (fences a predecessor and ends its transaction), then read the
progress, then leave a claim: the progress again with our generation. Any error whose outcome is
not certain throws the producer away and starts over like this, because a late message of an
unsettled transaction may land in the next one. With `at_least_once` there are no transactions:
records are flushed before their progress, and what a crash repeats has the same epoch and seq.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from typing import IO, Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code
from kafka.errors import KafkaError

from jobs.core.publish_format import FORMATS, EpochFacts
from jobs.core.publisher_lines import (
    Answer,
    Configuration,
    EpochToPublish,
    Fatal,
    Progress,
    Ready,
)
from jobs.edge.changelog_records import (
    BrokenChangelog,
    Records,
    RecordWriter,
    chunks,
    read_epoch,
)
from jobs.edge.failpoints import failpoint
from jobs.edge.kafka_admin import KafkaAdmin, TopicMissing, kafka_python_options
from schemas import limits
from schemas.changelog import EPOCH_HEADER, SEQ_HEADER, progress_topic
from schemas.epoch import TopicIdentity
from schemas.types import SqlType

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
_PROGRESS_CONFIGURATION = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}


class Unsettled(Exception):
    """Nobody knows how the last call ended: start over with a new producer."""


class ParentGone(Exception):
    """The driver is no more; what is not committed stays uncommitted."""


class Hopeless(Exception):
    """Trying again would not help."""

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.fatal = Fatal(code, reason, hint)


# --- lines ------------------------------------------------------------------------------------


class Inbox:
    """Epochs as they come in. A thread reads, so that the driver never waits for a full pipe, and
    so that its end is noticed while the main thread is inside a library."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines
        self._changed = threading.Condition()
        self._waiting: deque[tuple[EpochToPublish, float]] = deque()
        self._stopped = False
        self._gone = False
        self.configuration = msgspec.json.decode(lines.readline(), type=Configuration)
        threading.Thread(target=self._read, name="inbox", daemon=True).start()
        threading.Thread(target=self._watch, args=[os.getppid()], daemon=True).start()

    def take(self, *, wait: bool) -> list[tuple[EpochToPublish, float]]:
        """All that waits, with the time it came; with `wait` at least one, unless all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopped or self._gone or not wait)
            self.require_parent()
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    @property
    def exhausted(self) -> bool:
        with self._changed:
            return self._stopped and not self._waiting

    def require_parent(self) -> None:
        if self._gone:
            raise ParentGone

    def pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._gone, seconds)
        self.require_parent()

    def _read(self) -> None:
        decoder = msgspec.json.Decoder(EpochToPublish)
        for line in self._lines:
            with self._changed:
                if b'"stop"' in line and "stop" in msgspec.json.decode(line):
                    self._stopped = True
                else:
                    self._waiting.append((decoder.decode(line), time.monotonic()))
                self._changed.notify_all()
        if not self._stopped:
            self._leave()

    def _watch(self, parent: int) -> None:
        """A second way to notice: someone else may hold the other end of the pipe open."""
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._gone = True
            self._changed.notify_all()
        time.sleep(limits.PUBLISHER_ORPHAN_SECONDS_MAX)
        os._exit(1)


class Outbox:
    """Answers to the driver; nothing else is ever written to standard output."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines

    def say(self, answer: Answer) -> None:
        try:
            self._lines.write(msgspec.json.encode(answer) + b"\n")
            self._lines.flush()
        except BrokenPipeError:
            raise ParentGone from None


def log(text: str) -> None:
    print(f"publisher: {text}", file=sys.stderr, flush=True)


# --- one producer -----------------------------------------------------------------------------


class Session:
    """One producer from its fencing to the first doubt."""

    def __init__(self, configuration: Configuration, inbox: Inbox) -> None:
        self._configuration = configuration
        self._inbox = inbox
        self._topic = configuration.topic
        self._progress_topic = progress_topic(configuration.topic)
        self._transactional = configuration.delivery == "exactly_once"
        self._failed: list[Code] = []
        self._begun_at: float | None = None
        options = {**configuration.connection, **_PRODUCER_OPTIONS}
        if self._transactional:
            options["transactional.id"] = configuration.transactional_id
            options["transaction.timeout.ms"] = limits.TRANSACTION_TIMEOUT_MS
        else:
            # A transaction's commit reports failed records; without one each has to.
            options["on_delivery"] = self._delivered
        try:
            self._producer = Producer(options)
            if self._transactional:
                self._producer.init_transactions(limits.PUBLISH_CALL_SECONDS_MAX)
        except KafkaException as error:
            raise self._consequence(error) from None

    def begin(self) -> None:
        if self._begun_at is None:
            if self._transactional:
                try:
                    self._producer.begin_transaction()
                except KafkaException as error:
                    raise self._consequence(error) from None
            self._begun_at = _now()

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
        open_ms = 0.0 if self._begun_at is None else (_now() - self._begun_at) * 1_000
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


def _now() -> float:
    """Seconds that go on while the machine sleeps, as the broker's do."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def read_progress(connection: dict[str, str], topic: str, job: str) -> Progress | None:
    """The newest committed progress of the job, read from the end of the topic."""
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
            found = _last_value(consumer, TopicPartition(topic, 0, start), job.encode())
            if found is not None:
                return msgspec.json.decode(found, type=Progress)
            if start == low:
                return None
            tail *= 10
    except KafkaException as error:
        raise Unsettled(f"the progress cannot be read: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _last_value(consumer: Consumer, start: TopicPartition, key: bytes) -> bytes | None:
    consumer.assign([start])
    last: bytes | None = None
    deadline = time.monotonic() + limits.PUBLISH_CALL_SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(_WATCH_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            last = message.value() if message.key() == key else last
        elif error.code() == Code._PARTITION_EOF:
            return last
        elif not error.retriable():
            raise KafkaException(error)
    raise Unsettled("the progress cannot be read to its end in time")


# --- the process ------------------------------------------------------------------------------


class PublisherProcess:
    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._configuration = configuration = inbox.configuration
        self._format = FORMATS[configuration.format]
        group, output = (
            [(name, SqlType.read(kind)) for name, kind in columns]
            for columns in (configuration.columns.group, configuration.columns.output)
        )
        self._key_columns = tuple(name for name, _ in group)
        end = configuration.columns.window_end
        self._writer = RecordWriter(
            self._format, group, output, configuration.partitions,
            None if end is None else (end[0], SqlType.parse(end[1])),
        )  # fmt: skip
        self._waiting: deque[tuple[EpochToPublish, float]] = deque()
        self._records: dict[int, int] = {}  # of epochs not yet answered for
        self._admin: KafkaAdmin | None = None
        self._session: Session | None = None
        self._identity: TopicIdentity | None = None
        self._progress = Progress()
        self._last_success = _now()

    def run(self) -> None:
        self.begin()
        while self._waiting or not self._inbox.exhausted:
            self.turn(wait=not self._waiting)

    def begin(self) -> None:
        """Take the topic over, and say how far it goes."""
        self._start_over()
        assert self._identity is not None
        at = self._progress
        ready = Ready(at.epoch, at.seq, at.complete, self._identity.id, self._identity.partitions)
        self._outbox.say(Answer(ready=ready))

    def turn(self, *, wait: bool) -> None:
        """What has come in, and one transaction."""
        self._waiting.extend(self._inbox.take(wait=wait))
        self._answer_for_published()
        if not self._waiting:
            return
        try:
            self._publish(self._next_epochs())
        except (Unsettled, KafkaError) as doubt:
            log(f"starting over: {doubt}")
            self._start_over()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    # Starting, and starting over.

    def _start_over(self) -> None:
        pause = 0.1
        while True:
            self._forget()
            try:
                self._take_over()
                self._last_success = _now()
                return
            except (Unsettled, KafkaError, TopicMissing) as doubt:
                if _now() - self._last_success > limits.PUBLISH_GIVE_UP_SECONDS:
                    reason = f"Kafka could not be written to for too long: {doubt}"
                    raise Hopeless("unreachable", reason, "see that the brokers run") from None
                log(f"trying again in {pause:.1f} s: {doubt}")
            self._inbox.pause(pause)
            pause = min(2 * pause, limits.PUBLISH_PAUSE_SECONDS_MAX)

    def _forget(self) -> None:
        self.close()
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        self._records.clear()

    def _take_over(self) -> None:
        """Fence first, then read how far the predecessor got, then say whose turn it is."""
        configuration = self._configuration
        self._admin = KafkaAdmin(kafka_python_options(configuration.connection))
        self._require_topics(self._admin)
        session = self._session = Session(configuration, self._inbox)
        progress = progress_topic(configuration.topic)
        found = read_progress(configuration.connection, progress, configuration.job)
        self._progress = found or Progress()
        if self._progress.generation > configuration.generation:
            raise Hopeless(
                "fenced",
                f"generation {self._progress.generation} of the job publishes to "
                f"{configuration.topic!r}; this is generation {configuration.generation}",
                "one job is running twice; leave the newer one alone",
            )
        session.commit(msgspec.structs.replace(self._progress, generation=configuration.generation))

    def _require_topics(self, admin: KafkaAdmin) -> None:
        configuration = self._configuration
        if self._identity is None and configuration.topic_id is None:
            policy = {"cleanup.policy": self._format.cleanup_policy}
            admin.ensure_topic(configuration.topic, configuration.partitions, policy)
        self._require_same_topic(admin)
        admin.ensure_topic(progress_topic(configuration.topic), 1, _PROGRESS_CONFIGURATION)

    def _require_same_topic(self, admin: KafkaAdmin) -> None:
        """A topic that was deleted and made again, or has other partitions, is another topic."""
        configuration = self._configuration
        found = admin.topic(configuration.topic)
        expected = configuration.topic_id if self._identity is None else self._identity.id
        hint = "publish to a new topic, or clone the job and let it publish from the start"
        if found is None:
            reason = f"topic {configuration.topic!r} has been deleted"
            raise Hopeless("sink_changed", reason, hint)
        if expected is not None and found.id != expected:
            reason = f"topic {configuration.topic!r} is not the one it was: it has been made again"
            raise Hopeless("sink_changed", reason, hint)
        if found.partitions != configuration.partitions:
            reason = (
                f"topic {configuration.topic!r} has {found.partitions} partitions; the job "
                f"publishes to {configuration.partitions}, and keys would change their partition"
            )
            raise Hopeless("sink_changed", reason, hint)
        self._identity = found

    # Publishing.

    def _answer_for_published(self) -> None:
        """Say so for each waiting epoch that the progress covers."""
        while self._waiting and self._progress.covers(self._waiting[0][0].epoch):
            order, came_at = self._waiting.popleft()
            records = self._records.pop(order.epoch, 0)
            seconds = round(time.monotonic() - came_at, 6)
            self._outbox.say(Answer(published=order.epoch, records=records, seconds=seconds))

    def _next_epochs(self) -> list[EpochToPublish]:
        """The epochs of the next transaction: small ones together, a large one alone."""
        epochs: list[EpochToPublish] = []
        rows = 0
        expected = self._progress.next_epoch
        for order, _ in self._waiting:
            rows += order.rows
            if epochs and rows > self._configuration.transaction_records:
                break
            if expected is not None and order.epoch != expected:
                reason = f"epoch {order.epoch} was sent; the topic needs epoch {expected} next"
                raise Hopeless("gap", reason, "publish from the table, starting there")
            epochs.append(order)
            expected = order.epoch + 1
        return epochs

    def _publish(self, epochs: list[EpochToPublish]) -> None:
        session = self._session
        assert session is not None
        in_transaction = 0
        for order in epochs:
            reached = self._progress.seq_reached(order.epoch)
            self._records[order.epoch] = 0
            table = read_epoch(order.files, order.epoch, self._writer.columns, reached)
            facts = self._facts(order)
            for batch in chunks(table, self._configuration.transaction_records):
                self._inbox.require_parent()
                records = self._writer.write(batch, facts)
                count = len(records.keys)
                if in_transaction and (
                    in_transaction + count > self._configuration.transaction_records
                ):
                    self._commit(self._inside(order.epoch, reached))
                    in_transaction = 0
                session.begin()
                failpoint("publish_begun")
                session.produce(records, order.epoch)
                in_transaction += count
                self._records[order.epoch] += count
                reached = records.last_seq
        self._commit(self._end_of(epochs[-1], reached))
        self._answer_for_published()

    def _commit(self, progress: Progress) -> None:
        assert self._session is not None
        assert self._admin is not None
        self._require_same_topic(self._admin)
        failpoint("publish_produced")
        self._session.commit(progress)
        failpoint("publish_committed")
        self._progress = progress
        self._last_success = _now()

    def _facts(self, order: EpochToPublish) -> EpochFacts:
        committed = order.committed_ms
        return EpochFacts(
            job=self._configuration.job,
            topic=self._configuration.topic,
            epoch=order.epoch,
            event_ms=0 if order.watermark is None else order.watermark,
            commit_ms=int(time.time() * 1_000) if committed is None else committed,
            key_columns=self._key_columns,
        )

    def _inside(self, epoch: int, seq: int) -> Progress:
        return msgspec.structs.replace(self._progress, epoch=epoch, seq=seq, complete=False)

    def _end_of(self, order: EpochToPublish, seq: int) -> Progress:
        return Progress(
            epoch=order.epoch,
            seq=max(seq, 0),
            complete=True,
            watermark=order.watermark,
            status=order.status,
            offsets=order.offsets,
            generation=self._configuration.generation,
        )


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which then stops us
    outbox = Outbox(sys.stdout.buffer)
    process: PublisherProcess | None = None
    status = 1
    try:
        process = PublisherProcess(Inbox(sys.stdin.buffer), outbox)
        process.run()
        status = 0
    except ParentGone:
        log("the driver is gone; nothing more is committed")
    except Hopeless as hopeless:
        outbox.say(Answer(fatal=hopeless.fatal))
    except BrokenChangelog as error:
        outbox.say(Answer(fatal=Fatal("broken_changelog", str(error), "audit the job's table")))
    except Exception as error:
        outbox.say(Answer(fatal=Fatal("crashed", f"{type(error).__name__}: {error}", "a bug")))
        sys.excepthook(type(error), error, error.__traceback__)
    if process is not None:
        process.close()
    return status


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # librdkafka's threads may outlive their use; nothing is left to be said
