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
progress record, so that a restart continues inside the epoch. Each topic has its own progress: the
topic of a view that joined later starts with the history of this view.

The publisher starts in these steps: read the progress, and refuse a topic of another table before
fencing anyone; call `init_transactions`, which fences a predecessor and ends its transaction; read
the progress again; commit a claim, which is the progress with our generation and writer id. After
an error with an unknown outcome the publisher drops the producer and starts again like this,
because a late message of the old transaction may land in the next one. `at_least_once` uses no
transactions: it flushes records before their progress, and records repeated after a crash have the
same epoch and seq.

With several publishers this process has a share of the partitions, and starts helpers for the
others (see jobs.core.publish.shares). Before it reads their progress it fences them, too.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque

import msgspec
from kafka.errors import KafkaError

from jobs.core.publish.protocol import (
    Answer,
    EpochTimes,
    EpochToPublish,
    Fatal,
    Progress,
    Ready,
    TopicPosition,
)
from jobs.core.publish.shares import find_floors, hand_over, still_ahead
from jobs.edge.kafka.admin import KafkaAdmin, TopicMissing
from jobs.edge.process.failpoints import failpoint
from jobs.edge.publisher.claims import Claims
from jobs.edge.publisher.pipes import Inbox, Outbox, ParentGone, log
from jobs.edge.publisher.records import BrokenChangelog, ChangelogMissing, read_epoch, split_rows
from jobs.edge.publisher.session import OutcomeUnknown, PublishFailed, Session, awake_seconds
from jobs.edge.publisher.share_processes import Helpers
from jobs.edge.publisher.topic_writer import SinkTopicWriter
from schemas import limits
from schemas.spec.broker_address import AddressRefused
from schemas.spec.connections import kafka_python_options


class PublisherProcess:
    """Publishes the epochs of an Inbox and writes answers to an Outbox."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._configuration = configuration = inbox.configuration
        self._topics = [SinkTopicWriter(configuration.job, sink) for sink in configuration.sinks]
        self._waiting: deque[tuple[EpochToPublish, float]] = deque()
        self._records: dict[int, int] = {}  # produced records of unanswered epochs
        self._admin: KafkaAdmin | None = None
        self._session: Session | None = None
        self._progress = [Progress() for _ in self._topics]  # of each topic
        self._sent = self._progress  # what the open transaction makes of it, inside an epoch
        self._positions: list[TopicPosition] = []  # of the topics, as the predecessor left them
        self._helpers = Helpers(configuration)
        self._first = True
        self._claims = Claims(configuration, self._topics, inbox)
        self._last_success = awake_seconds()

    def run(self) -> None:
        """Publish until the driver stops sending."""
        self.begin()
        while self._waiting or not self._inbox.exhausted:
            self.publish_next(wait=not self._waiting)

    def begin(self) -> None:
        """Take over the topic and answer with its progress."""
        self._start_over()
        if self._session is not None:
            self._helpers.start(self._claims.writer_id)
        self._outbox.write_answer(Answer(ready=Ready(self._positions)))

    def publish_next(self, *, wait: bool) -> None:
        """Take the waiting epochs and publish one transaction."""
        taken = self._inbox.take(wait=wait)
        self._waiting.extend(taken)
        try:
            for order, _ in taken:
                self._helpers.send(order)
            self._answer_for_published()
            if self._waiting:
                self._publish(self._next_epochs())
        except (OutcomeUnknown, KafkaError) as doubt:
            log(f"starts over with a new producer: {doubt}")
            self._start_over()
        except PublishFailed as failure:
            if failure.fatal.code == "fenced" and not self._claims.has_successor():
                raise PublishFailed(
                    "publisher-displaced",
                    f"another producer took the transactional id of {self._topics[0].topic!r} "
                    "but published nothing",
                    "start the job again to take it back",
                ) from None
            raise

    def close(self) -> None:
        """Drop the producer, and end the helpers."""
        self._helpers.kill()
        self._drop_session()

    def _drop_session(self) -> None:
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
                raise PublishFailed("publisher-address-refused", str(refused)) from None
            except (OutcomeUnknown, KafkaError, TopicMissing) as doubt:
                if awake_seconds() - self._last_success > limits.PUBLISH_GIVE_UP_SECONDS:
                    reason = (
                        f"cannot write to Kafka for {limits.PUBLISH_GIVE_UP_SECONDS:g} s: {doubt}"
                    )
                    raise PublishFailed(
                        "publisher-unreachable", reason, "check that the brokers run"
                    ) from None
                log(f"tries again in {pause:.1f} s: {doubt}")
            self._inbox.pause(pause)
            pause = min(2 * pause, limits.PUBLISH_PAUSE_SECONDS_MAX)

    def _reset(self) -> None:
        self._drop_session()
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
        if configuration.share:
            self._take_over_share()
            return
        claims = self._claims
        self._progress = claims.read_own_progress()
        self._positions = self._find_positions([[own] for own in self._progress])
        if self._first and any(each.newest > configuration.newest >= 0 for each in self._positions):
            return  # the driver will stop, so fence nobody
        session = self._session = Session(configuration, self._inbox)
        shares = claims.read_shares(self._admin)
        known = not self._first and all(own.writer == claims.writer_id for own, *_ in shares)
        if not (self._first or known or configuration.publishers == 1):
            raise claims.lost()
        if not known and any(helpers for _, *helpers in shares):
            session.commit([claims.as_ours(own) for own, *_ in shares])
            claims.wait_until_visible()  # so that no helper goes on after it is fenced
            for share in range(1, max(map(len, shares))):
                Session(configuration.of_share(share), self._inbox).abandon()
            shares = claims.read_shares(self._admin)
        self._positions = self._find_positions(shares)
        handed = [
            [claims.as_ours(own)]
            if known
            else hand_over(
                [claims.as_ours(own), *helpers], configuration.publishers, topic.partitions
            )
            for topic, (own, *helpers) in zip(self._topics, shares, strict=True)
        ]
        self._progress, *others = map(list, zip(*handed, strict=True))
        self._sent = list(self._progress)
        session.commit(self._progress, *others)  # claims the topics
        if others:
            claims.wait_until_visible()
        self._first = False

    def _find_positions(self, shares: list[list[Progress]]) -> list[TopicPosition]:
        return [topic.position(of) for topic, of in zip(self._topics, shares, strict=True)]

    def _take_over_share(self) -> None:
        """Fence the predecessor of a helper, and read its progress, which share 0 handed over."""
        configuration, claims = self._configuration, self._claims
        if not claims.are_ours():
            raise claims.lost()
        self._session = Session(configuration, self._inbox)
        if not claims.are_ours():
            raise claims.lost()
        self._progress = [claims.read_share(topic, configuration.share) for topic in self._topics]
        self._sent = list(self._progress)
        self._positions = self._find_positions([[own] for own in self._progress])
        if any(each.writer != claims.writer_id for each in self._progress):
            raise OutcomeUnknown("the progress of this share is not visible yet")

    # Publishing.

    def _answer_for_published(self) -> None:
        """Answer each waiting epoch that the progress covers."""
        latencies = {times.epoch: times.latency_ms for at in self._progress for times in at.times}
        while self._waiting and self._is_published(self._waiting[0][0].epoch):
            order, came_at = self._waiting.popleft()
            records = self._records.pop(order.epoch, 0)
            seconds = round(time.monotonic() - came_at, 6)
            latency_ms = latencies.get(order.epoch)
            self._outbox.write_answer(
                Answer(
                    published=order.epoch, records=records, seconds=seconds, latency_ms=latency_ms
                )
            )

    def _is_published(self, epoch: int) -> bool:
        return all(each.covers(epoch) for each in self._progress)

    def _expect_next(self) -> int | None:
        """Return the next epoch that some topic needs; None if a topic has nothing yet."""
        needed = [each.next_epoch for each in self._progress]
        known = [epoch for epoch in needed if epoch is not None]
        return min(known) if len(known) == len(needed) else None

    def _next_epochs(self) -> list[EpochToPublish]:
        """Return the epochs of the next transaction: small ones together, a large one alone."""
        epochs: list[EpochToPublish] = []
        rows = 0
        expected = self._expect_next()
        for order, _ in self._waiting:
            rows += order.rows  # a share may have them all
            if epochs and rows > self._configuration.transaction_records:
                break
            if expected is not None and order.epoch != expected:
                reason = (
                    f"the driver sent epoch {order.epoch}, but the topic needs epoch {expected}"
                )
                raise PublishFailed(
                    "publisher-gap", reason, "start the job again to publish from the table"
                )
            epochs.append(order)
            expected = order.epoch + 1
        return epochs

    def _publish(self, epochs: list[EpochToPublish]) -> None:
        session = self._session
        assert session is not None
        in_transaction = 0
        for order in epochs:
            self._records[order.epoch] = 0
            for index, topic in enumerate(self._topics):
                if self._progress[index].covers(order.epoch):
                    continue
                reached = self._progress[index].seq_reached(order.epoch)
                rows = order.counts[index] if order.counts else 0
                columns = topic.writer.columns
                table = read_epoch(order.files[index], order.epoch, columns, reached, rows)
                facts = topic.facts(order)
                floors = find_floors(
                    self._progress[index],
                    order.epoch,
                    self._configuration.share,
                    self._configuration.publishers,
                    topic.partitions,
                )
                for batch in split_rows(table, self._configuration.transaction_records):
                    self._inbox.require_parent()
                    records = topic.writer.write(batch, facts, floors)
                    count = len(records.keys)
                    if in_transaction and (
                        in_transaction + count > self._configuration.transaction_records
                    ):
                        self._commit(self._sent)
                        in_transaction = 0
                    session.begin()
                    failpoint("publish_begun")
                    session.produce(records, order.epoch, topic.topic)
                    in_transaction += count
                    self._records[order.epoch] += count
                    self._sent[index] = self._progress_inside(index, order.epoch, records.last_seq)
        self._commit([self._progress_after(epochs, index) for index in range(len(self._topics))])
        self._answer_for_published()

    def _commit(self, progress: list[Progress]) -> None:
        assert self._session is not None
        assert self._admin is not None
        covered = max(each.next_epoch or 0 for each in progress) - 1
        self._helpers.wait_until_published(covered, self._inbox.require_parent)
        for topic in self._topics:
            topic.require_same_topic(self._admin)
        failpoint("publish_produced")
        self._session.commit(progress)
        failpoint("publish_committed")
        self._progress, self._sent = list(progress), list(progress)
        self._last_success = awake_seconds()

    def _progress_inside(self, index: int, epoch: int, seq: int) -> Progress:
        return msgspec.structs.replace(self._progress[index], epoch=epoch, seq=seq, complete=False)

    def _progress_after(self, epochs: list[EpochToPublish], index: int) -> Progress:
        order, now_ms = epochs[-1], int(time.time() * 1_000)
        if self._progress[index].covers(order.epoch):  # another topic joined later
            return self._progress[index]
        sent, own = self._sent[index], self._progress[index]
        return Progress(
            epoch=order.epoch,
            seq=max(sent.seq_reached(order.epoch), 0),
            complete=True,
            watermark=order.watermark,
            status=order.status,
            offsets=order.offsets,
            generation=self._configuration.generation,
            table=self._configuration.table,
            uuid=order.uuid,
            writer=self._claims.writer_id,
            view=self._topics[index].view,
            times=[
                EpochTimes(each.epoch, each.appended_ms, each.committed_ms, now_ms)
                for each in epochs
                if not own.covers(each.epoch)
            ],
            publishers=own.publishers,
            key_schema=own.key_schema,
            ahead=still_ahead(own, order.epoch),
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
    except ChangelogMissing as error:
        hint = "clone the job: the changelog of the clone starts with every result"
        outbox.write_answer(Answer(fatal=Fatal("history-missing", str(error), hint)))
    except BrokenChangelog as error:
        outbox.write_answer(
            Answer(fatal=Fatal("publisher-broken-changelog", str(error), "audit the job's table"))
        )
    except Exception as error:
        outbox.write_answer(
            Answer(fatal=Fatal("publisher-crashed", f"{type(error).__name__}: {error}", "a bug"))
        )
        sys.excepthook(type(error), error, error.__traceback__)
    if process is not None:
        process.close()
    return status


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # librdkafka's threads may still run, but all answers are written
