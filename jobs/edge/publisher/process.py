"""Publish a job's committed epochs to its changelog topic, in order and exactly once.

    stdin: epochs ──► Inbox ──► read files ──► records ──► Session: one producer
                                                              │
                      changelog topic  ◄── records ───────────┤ the same
                      <topic>-progress ◄── epoch and seq ─────┤ transaction
    stdout: published ◄─────────────────── committed ─────────┘

The publisher publishes an epoch in these steps:
  1. Read the rows in seq order, only above the progress's seq, and build a record of each.
  2. Begin a transaction and produce at most `transaction_records` records in it.
  3. Require that the topic is the same as before (id, partition count).
  4. Produce the progress record, commit, answer.
Small epochs that wait together share a transaction. A large epoch spans several, each with its own
progress record, so that a restart continues inside the epoch.

The publisher starts in these steps: read the progress, and refuse a topic of another table before
fencing anyone; call `init_transactions`, which fences a predecessor and ends its transaction; read
the progress again; commit a claim, which is the progress with our generation and writer id. After
an error with an unknown outcome the publisher drops the producer and starts again like this,
because a late message of the old transaction may land in the next one. `at_least_once` uses no
transactions: it flushes records before their progress, and records repeated after a crash have the
same epoch and seq.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from uuid import uuid4

import msgspec
from kafka.errors import KafkaError

from jobs.core.publish.protocol import (
    Answer,
    EpochTimes,
    EpochToPublish,
    Fatal,
    Progress,
    Ready,
)
from jobs.edge.kafka.admin import KafkaAdmin, TopicMissing, kafka_python_options
from jobs.edge.process.failpoints import failpoint
from jobs.edge.publisher.pipes import Inbox, Outbox, ParentGone, log
from jobs.edge.publisher.records import BrokenChangelog, read_epoch, split_rows
from jobs.edge.publisher.session import (
    OutcomeUnknown,
    PublishFailed,
    Session,
    awake_seconds,
    read_progress,
)
from jobs.edge.publisher.sink_topics import open_topics
from schemas import limits
from schemas.spec.broker_address import AddressRefused
from schemas.table.changelog import progress_topic


class PublisherProcess:
    """Publishes the epochs of an Inbox and writes answers to an Outbox."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._configuration = configuration = inbox.configuration
        self._topics = open_topics(configuration)
        self._waiting: deque[tuple[EpochToPublish, float]] = deque()
        self._records: dict[int, int] = {}  # produced records of unanswered epochs
        self._admin: KafkaAdmin | None = None
        self._session: Session | None = None
        self._progress = Progress()
        self._first = True
        self._writer_id = uuid4().hex
        self._last_success = awake_seconds()

    def run(self) -> None:
        """Publish until the driver stops sending."""
        self.begin()
        while self._waiting or not self._inbox.exhausted:
            self.publish_next(wait=not self._waiting)

    def begin(self) -> None:
        """Take over the topic and answer with its progress."""
        self._start_over()
        at = self._progress
        known = [topic.identity for topic in self._topics if topic.identity is not None]
        (first_id, partitions), *others = [(each.id, each.partitions) for each in known]
        ready = Ready(at.epoch, at.seq, at.complete, first_id, partitions, at.uuid, others)
        self._outbox.write_answer(Answer(ready=ready))

    def publish_next(self, *, wait: bool) -> None:
        """Take the waiting epochs and publish one transaction."""
        self._waiting.extend(self._inbox.take(wait=wait))
        self._answer_for_published()
        if not self._waiting:
            return
        try:
            self._publish(self._next_epochs())
        except (OutcomeUnknown, KafkaError) as doubt:
            log(f"starts over with a new producer: {doubt}")
            self._start_over()
        except PublishFailed as failure:
            if failure.fatal.code == "fenced" and not self._has_successor():
                raise PublishFailed(
                    "displaced",
                    f"another producer took the transactional id of {self._configuration.topic!r} "
                    "but published nothing",
                    "start the job again to take it back",
                ) from None
            raise

    def close(self) -> None:
        """Drop the producer."""
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    # Starting and starting over.

    def _start_over(self) -> None:
        pause = 0.1
        while True:
            self._reset()
            try:
                self._take_over()
                self._last_success = awake_seconds()
                return
            except AddressRefused as refused:
                raise PublishFailed("address_refused", str(refused)) from None
            except (OutcomeUnknown, KafkaError, TopicMissing) as doubt:
                if awake_seconds() - self._last_success > limits.PUBLISH_GIVE_UP_SECONDS:
                    reason = (
                        f"cannot write to Kafka for {limits.PUBLISH_GIVE_UP_SECONDS:g} s: {doubt}"
                    )
                    raise PublishFailed(
                        "unreachable", reason, "check that the brokers run"
                    ) from None
                log(f"tries again in {pause:.1f} s: {doubt}")
            self._inbox.pause(pause)
            pause = min(2 * pause, limits.PUBLISH_PAUSE_SECONDS_MAX)

    def _reset(self) -> None:
        self.close()
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        self._records.clear()

    def _take_over(self) -> None:
        """Check the topic, fence the predecessor, read its progress, claim the topic."""
        configuration = self._configuration
        self._admin = KafkaAdmin(kafka_python_options(configuration.connection))
        for topic in self._topics:
            topic.require_topics(self._admin)
        before = self._read_own_progress()
        if self._first and before.epoch is not None and before.epoch > configuration.newest >= 0:
            self._progress = before  # the driver will stop, so fence nobody
            return
        of_older_version = before.generation > 0 and not before.table
        session = self._session = Session(
            configuration, self._inbox, succeeds_older_version=of_older_version
        )
        self._progress = self._read_own_progress()
        claim = msgspec.structs.replace(
            self._progress,
            generation=configuration.generation,
            table=configuration.table,
            writer=self._writer_id,
        )
        session.commit(claim)
        self._first = False

    def _read_own_progress(self) -> Progress:
        """Return our progress; raise PublishFailed if another table or generation publishes."""
        configuration = self._configuration
        for topic in self._topics[1:]:  # they have a copy of our progress
            self._require_own(topic.topic, *self._read_progress(topic.topic))
        own, others = self._read_progress()
        own = self._require_own(configuration.topic, own, others)
        if own.generation > configuration.generation:
            raise PublishFailed(
                "fenced",
                f"generation {own.generation} of the job publishes to "
                f"{configuration.topic!r}; this is generation {configuration.generation}",
                "one job is running twice; leave the newer one alone",
            )
        return own

    def _require_own(
        self, topic: str, own: Progress | None, others: dict[str, Progress]
    ) -> Progress:
        """Return our progress in a topic; raise PublishFailed if another table writes it."""
        configuration = self._configuration
        strangers = [
            name
            for name, each in others.items()
            if own is None or (each.table and each.table != configuration.table)
        ]
        if own is not None and own.table and own.table != configuration.table:
            strangers.insert(0, configuration.job)
        if strangers:
            raise PublishFailed(
                "sink_taken",
                f"topic {topic!r} has the changelog of job {strangers[0]!r}, which has another "
                "table",
                "give sink.topic another name, because a topic has one writer",
            )
        return own or Progress()

    def _has_successor(self) -> bool:
        """Return whether another publisher has claimed the topic since; True if unknown."""
        try:
            own, _ = self._read_progress()
        except (OutcomeUnknown, KafkaError):
            return True
        return own is None or own.writer != self._writer_id

    def _read_progress(
        self, topic: str | None = None
    ) -> tuple[Progress | None, dict[str, Progress]]:
        configuration = self._configuration
        topic = progress_topic(topic or configuration.topic)
        return read_progress(configuration.connection, topic, configuration.job)

    # Publishing.

    def _answer_for_published(self) -> None:
        """Answer each waiting epoch that the progress covers."""
        latencies = {times.epoch: times.latency_ms for times in self._progress.times}
        while self._waiting and self._progress.covers(self._waiting[0][0].epoch):
            order, came_at = self._waiting.popleft()
            records = self._records.pop(order.epoch, 0)
            seconds = round(time.monotonic() - came_at, 6)
            latency_ms = latencies.get(order.epoch)
            self._outbox.write_answer(
                Answer(
                    published=order.epoch, records=records, seconds=seconds, latency_ms=latency_ms
                )
            )

    def _next_epochs(self) -> list[EpochToPublish]:
        """Return the epochs of the next transaction: small ones together, a large one alone."""
        epochs: list[EpochToPublish] = []
        rows = 0
        expected = self._progress.next_epoch
        for order, _ in self._waiting:
            rows += order.rows
            if epochs and rows > self._configuration.transaction_records:
                break
            if expected is not None and order.epoch != expected:
                reason = (
                    f"the driver sent epoch {order.epoch}, but the topic needs epoch {expected}"
                )
                raise PublishFailed("gap", reason, "start the job again to publish from the table")
            epochs.append(order)
            expected = order.epoch + 1
        return epochs

    def _publish(self, epochs: list[EpochToPublish]) -> None:
        session = self._session
        assert session is not None
        in_transaction, reached = 0, -1
        for order in epochs:
            self._records[order.epoch] = 0
            for index, topic in enumerate(self._topics):
                after = self._progress.seq_reached(order.epoch, index)
                if after is None:
                    continue
                reached = after
                files = order.others[index - 1] if index else order.files
                table = read_epoch(files, order.epoch, topic.writer.columns, reached)
                facts = topic.facts(order)
                for batch in split_rows(table, self._configuration.transaction_records):
                    self._inbox.require_parent()
                    records = topic.writer.write(batch, facts)
                    count = len(records.keys)
                    if in_transaction and (
                        in_transaction + count > self._configuration.transaction_records
                    ):
                        self._commit(self._progress_inside(order.epoch, reached, index))
                        in_transaction = 0
                    session.begin()
                    failpoint("publish_begun")
                    session.produce(records, order.epoch, topic.topic)
                    in_transaction += count
                    self._records[order.epoch] += count
                    reached = records.last_seq
        self._commit(self._progress_after(epochs, reached))
        self._answer_for_published()

    def _commit(self, progress: Progress) -> None:
        assert self._session is not None
        assert self._admin is not None
        for topic in self._topics:
            topic.require_same_topic(self._admin)
        failpoint("publish_produced")
        self._session.commit(progress)
        failpoint("publish_committed")
        self._progress = progress
        self._last_success = awake_seconds()

    def _progress_inside(self, epoch: int, seq: int, index: int) -> Progress:
        sink = index if len(self._topics) > 1 else msgspec.UNSET
        return msgspec.structs.replace(
            self._progress, epoch=epoch, seq=seq, complete=False, sink=sink
        )

    def _progress_after(self, epochs: list[EpochToPublish], seq: int) -> Progress:
        order, now_ms = epochs[-1], int(time.time() * 1_000)
        return Progress(
            epoch=order.epoch,
            seq=max(seq, 0),
            complete=True,
            watermark=order.watermark,
            status=order.status,
            offsets=order.offsets,
            generation=self._configuration.generation,
            table=self._configuration.table,
            uuid=order.uuid,
            writer=self._writer_id,
            times=[
                EpochTimes(each.epoch, each.appended_ms, each.committed_ms, now_ms)
                for each in epochs
            ],
        )


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver gets Ctrl-C, and stops the publisher
    outbox = Outbox(sys.stdout.buffer)
    process: PublisherProcess | None = None
    status = 1
    try:
        process = PublisherProcess(Inbox(sys.stdin.buffer).start(), outbox)
        process.run()
        status = 0
    except ParentGone:
        log("stops without a commit, because the driver has ended")
    except PublishFailed as failure:
        outbox.write_answer(Answer(fatal=failure.fatal))
    except BrokenChangelog as error:
        outbox.write_answer(
            Answer(fatal=Fatal("broken_changelog", str(error), "audit the job's table"))
        )
    except Exception as error:
        outbox.write_answer(
            Answer(fatal=Fatal("crashed", f"{type(error).__name__}: {error}", "a bug"))
        )
        sys.excepthook(type(error), error, error.__traceback__)
    if process is not None:
        process.close()
    return status


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # librdkafka's threads may still run, but all answers are written
