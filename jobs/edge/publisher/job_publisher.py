"""Send a job's committed epochs to its publisher, and missed epochs from the table.

start ─► publisher fences its predecessor, reads the progress ─► send later epochs of the table
commit ─► send ─► publish, while the driver computes the next epoch
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import msgspec

from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.publish.avro import schemas_of
from jobs.core.publish.protocol import (
    Configuration,
    EpochToPublish,
    Ready,
    ResultColumns,
    SinkTopic,
    TopicPosition,
)
from jobs.edge.process.failpoints import failpoint
from jobs.edge.publisher.handle import Publisher
from jobs.edge.table.delta_epochs import EpochTable, Fenced
from jobs.edge.table.file_writer import AddedFile
from jobs.reading.epoch_rows import epoch_rows, newest_of_job
from jobs.reading.files import LiveFile, live_files, open_table
from jobs.reading.parts import CHANGELOG
from jobs.topics.schema_registry import register
from schemas.failures.catalogue import CodedError
from schemas.spec.connections import Connection, Registry, librdkafka_options
from schemas.spec.job import JobSpec
from schemas.spec.sink import Sink
from schemas.table.epoch import EpochRow, TopicIdentity
from schemas.table.view_path import place_part


class HistoryMissing(CodedError, code="history-missing"):
    """The table no longer has epochs that the topic lacks; going on would leave a gap."""


class SinkAhead(CodedError, code="sink-ahead"):
    """The topic has epochs that the table lacks; new epochs would contradict them."""


@dataclass(frozen=True, slots=True)
class Published:
    """How far a topic is, for the next epoch row."""

    epoch: int | None  # the newest that is completely published
    seconds: float | None  # from `send` to its commit
    latencies_ms: dict[int, int]  # by epoch: from the append of its oldest record to its commit


class JobPublisher:
    """The publisher of one job.

    It starts in parallel with Spark, which takes longer. Epochs that the driver commits meanwhile
    wait until the publisher is ready.
    """

    def __init__(
        self,
        spec: JobSpec,
        plans: Mapping[str, Plan],  # of the views; "" is the job's own query
        table: EpochTable,
        newest: EpochRow,
        connection: Connection,
        registries: Mapping[str, Registry] = MappingProxyType({}),  # by name
    ) -> None:
        specs = spec.view_specs
        sinks = {name: each.sink for name, each in specs.items() if each.sink is not None}
        self._views = list(sinks)
        self.topics = [sink.topic for sink in sinks.values()]
        known = {topic: newest.topics[topic].id for topic in self.topics if topic in newest.topics}
        topics = [
            SinkTopic(
                topic=sink.topic,
                format=sink.format,
                partitions=sink.partitions,
                columns=result_columns(plans[name]),
                topic_id=known.get(sink.topic),
                schemas=_register(sink, plans[name], registries),
                view=msgspec.UNSET if spec.views is None else name,
            )
            for name, sink in sinks.items()
        ]
        table_id = str(table.handle.metadata().id)
        self._table = table
        self._publisher = Publisher(
            Configuration(
                job=spec.name,
                table=table_id,
                newest=newest.epoch,
                # Grows with every commit, and no clock can set it back.
                generation=table.version,
                connection=librdkafka_options(connection),
                sinks=topics,
                delivery=sinks[self._views[0]].delivery,
                transactional_id=f"retally-{spec.name}-{table_id}",
                publishers=sinks[self._views[0]].publishers,
            )
        )
        self._ready: Ready | None = None
        self._failure: BaseException | None = None
        self._starting = threading.Thread(target=self._start, args=[newest.epoch], daemon=True)

    def start(self) -> Self:
        """Start the process in a thread, which then sends the epochs that the topic lacks."""
        self._starting.start()
        return self

    def identities(self) -> dict[str, TopicIdentity]:
        """Return the identities of the sink topics, which the publisher found or created."""
        self._wait_until_ready()
        ready = self._ready
        assert ready is not None
        found = zip(self.topics, ready.topics, strict=True)
        return {topic: TopicIdentity(each.topic_id, each.partitions) for topic, each in found}

    def send(self, row: EpochRow, files: Sequence[AddedFile]) -> None:
        """Hand over a committed epoch."""
        self._wait_until_ready()
        self._publisher.send(self._build_message(row, files))
        failpoint("epoch_sent")

    def check(self) -> None:
        """Raise if the publisher has failed."""
        if self._failure is not None:
            raise self._failure
        if self._publisher.failure is not None:
            self._publisher.flush(0)

    def drain(self) -> None:
        """Wait until the publisher has published all sent epochs."""
        self._wait_until_ready()
        self._publisher.flush()

    @property
    def published(self) -> int | None:
        """The newest epoch that is completely published."""
        return self._publisher.published

    def take_published(self) -> Published:
        """Return how far the topic is, and the latencies since the last call."""
        answer = self._publisher.last_answer
        return Published(
            epoch=self._publisher.published,
            seconds=None if answer is None else answer.seconds,
            latencies_ms=self._publisher.take_latencies(),
        )

    def close(self) -> None:
        """Stop the process after it has published all sent epochs."""
        self._starting.join()
        self._publisher.stop()

    def _start(self, newest: int) -> None:
        try:
            ready = self._publisher.start()
            self._send_missed(ready.topics, newest)
            self._ready = ready
        except BaseException as failure:
            self._failure = failure

    def _send_missed(self, topics: Sequence[TopicPosition], newest: int) -> None:
        """Send the epochs that some topic lacks."""
        for topic, position in zip(self.topics, topics, strict=True):
            if position.newest > newest:
                self._refuse_topic_ahead(topic, position.newest, newest)
        handle, first = self._table.reader(), min(position.published for position in topics)
        rows = epoch_rows(self._table.root, live_files(handle), since=first - 1, whole=True)
        lacking = [
            find_last_published(topic, position, [row.of_view(view) for row in rows])
            for view, topic, position in zip(self._views, self.topics, topics, strict=True)
        ]
        files = live_files(handle)
        for row in rows:
            if row.epoch > min(lacking):
                of_row = [file for file in files if file.epoch_min <= row.epoch <= file.epoch_max]
                self._publisher.send(self._build_message(row, of_row, lacking))

    def _refuse_topic_ahead(self, topic: str, epoch: int, newest: int) -> None:
        """Raise Fenced or SinkAhead: a topic has an epoch that the table lacks."""
        current = newest_of_job(self._table.root, live_files(open_table(self._table.root)))
        if current is not None and current.epoch > newest:
            raise Fenced(
                f"the table {self._table.root} is now at epoch {current.epoch}, but this job "
                f"started at epoch {newest}; another writer has committed, so this job stops"
            )
        raise SinkAhead(
            f"topic {topic!r} has epoch {epoch}, but the table is at epoch {newest}: it "
            "was restored, or the topic belongs to a job in another directory; give sink.topic "
            "another name"
        )

    def _build_message(
        self,
        row: EpochRow,
        files: Sequence[AddedFile] | Sequence[LiveFile],
        published: Sequence[int] | None = None,
    ) -> EpochToPublish:
        """Return the message of an epoch; a topic needs nothing of the epochs up to `published`."""
        reached = published or [-1] * len(self._views)
        parts = [place_part(CHANGELOG, view) for view in self._views]
        return EpochToPublish(
            epoch=row.epoch,
            uuid=row.uuid,
            files=[
                [str(self._table.root / file.path) for file in files if file.part == part]
                for part in parts
            ],
            rows=row.counts.changelog_rows,
            counts=[
                row.of_view(view).counts.changelog_rows if row.epoch > last else 0
                for view, last in zip(self._views, reached, strict=True)
            ],
            watermark=_published_watermark(row, self._views),
            status=row.time.status,
            offsets=row.offsets,
            committed_ms=row.committed_at // 1_000,
            appended_ms=row.counts.appended_ms,
        )

    def _wait_until_ready(self) -> None:
        self._starting.join()
        if self._failure is not None:
            raise self._failure


def find_last_published(topic: str, position: TopicPosition, rows: Sequence[EpochRow]) -> int:
    """Return the epoch after which a topic needs all epochs; raise if one of them is gone.

    The rows are those of the topic's view.
    """
    after, known = position.published, {row.epoch: row.uuid for row in rows}
    ahead = [(epoch - 1, uuid) for epoch, _, uuid in position.ahead]
    for epoch, uuid in [(after, position.uuid), *ahead]:
        if uuid and known.get(epoch, uuid) != uuid:
            raise SinkAhead(
                f"epoch {epoch} of topic {topic!r} differs from the table's epoch {epoch}: "
                "one of them was restored and went on; give sink.topic another name"
            )
    rows = [row for row in rows if row.epoch > after]
    if not rows:
        return after
    starts = [row.epoch for row in rows if row.begins]
    first = max(starts, default=-1)
    inside = not position.complete and position.epoch == first
    # A helper may have published of a new topic what share 0 has not.
    new = after == -1 and all(at - (seq < 0) >= first for at, seq, _ in position.ahead)
    if starts and (new or inside):  # the topic starts with the history of these columns
        return first - 1
    if starts:
        raise HistoryMissing(
            f"the history of these results starts with epoch {first}, and topic "
            f"{topic!r} has an older changelog; give sink.topic another name"
        )
    if rows[0].epoch > after + 1:
        raise HistoryMissing(
            f"topic {topic!r} needs the epochs from {after + 1} on, but retention has "
            f"removed the table's epochs before {rows[0].epoch}; give the job a new name to "
            "recompute it from its source"
        )
    return after


def _published_watermark(row: EpochRow, views: Sequence[str]) -> int | None:
    """Return the watermark up to which every topic has every result."""
    if not row.views:
        return row.time.published_watermark
    bounds = [row.of_view(view).time.published_watermark for view in views]
    known = [bound for bound in bounds if bound is not None]
    return min(known) if len(known) == len(bounds) else None


def _register(sink: Sink, plan: Plan, registries: Mapping[str, Registry]) -> tuple[int, int] | None:
    """Return the ids of a topic's schemas of key and value, which its registry then has."""
    if sink.schema_registry is None:
        return None
    group = [(named.name, named.type) for named in plan.group]
    output = [(name, plan.types[name]) for name in plan.output]
    subjects = schemas_of(sink.format, sink.topic, group, output)
    key, value = (
        register(registries[sink.schema_registry], subject, schema)
        for subject, schema in subjects.items()
    )
    return key, value


def result_columns(plan: Plan) -> ResultColumns:
    """Return the columns of the key, and of the row in SELECT order."""
    return ResultColumns(
        group=[(named.name, str(named.type)) for named in plan.group],
        output=[(name, str(plan.types[name])) for name in plan.output],
        window_end=next(
            (
                (named.name, str(named.type))
                for named in plan.group
                if isinstance(named.expression, WindowBound) and named.expression.end
            ),
            None,
        ),
    )
