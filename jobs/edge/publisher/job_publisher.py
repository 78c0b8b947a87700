"""Send a job's committed epochs to its publisher, and missed epochs from the table.

start ─► publisher fences its predecessor, reads the progress ─► send later epochs of the table
commit ─► send ─► publish, while the driver computes the next epoch
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.publish.protocol import Configuration, EpochToPublish, Ready, ResultColumns
from jobs.edge.process.failpoints import failpoint
from jobs.edge.publisher.handle import Publisher
from jobs.edge.table.delta_epochs import EpochTable, Fenced
from jobs.table.epoch_rows import epoch_rows, newest_epoch
from jobs.table.files import live_files, open_table
from jobs.table.parts import CHANGELOG
from schemas.spec.connections import Connection, librdkafka_options
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, TopicIdentity


class HistoryMissing(Exception):
    """The table no longer has epochs that the topic lacks; going on would leave a gap."""


class SinkAhead(Exception):
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
        plan: Plan,
        table: EpochTable,
        newest: EpochRow,
        connection: Connection,
    ) -> None:
        assert spec.sink is not None
        self.topic = spec.sink.topic
        known = newest.topics.get(self.topic)
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
                topic=spec.sink.topic,
                format=spec.sink.format,
                partitions=spec.sink.partitions,
                delivery=spec.sink.delivery,
                columns=result_columns(plan),
                transactional_id=f"retally-{spec.name}-{table_id}-{spec.sink.topic}",
                topic_id=None if known is None else known.id,
            )
        )
        self._ready: Ready | None = None
        self._failure: BaseException | None = None
        self._starting = threading.Thread(target=self._start, args=[newest.epoch], daemon=True)

    def start(self) -> Self:
        """Start the process in a thread, which then sends the epochs that the topic lacks."""
        self._starting.start()
        return self

    def identity(self) -> TopicIdentity:
        """Return the identity of the sink topic, which the publisher found or created."""
        self._wait_until_ready()
        assert self._ready is not None
        return TopicIdentity(self._ready.topic_id, self._ready.partitions)

    def send(self, row: EpochRow, names: Sequence[str]) -> None:
        """Hand over a committed epoch."""
        self._wait_until_ready()
        self._publisher.send(self._build_message(row, names))
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
            after = -1
            if ready.epoch is not None:
                after = ready.epoch if ready.complete else ready.epoch - 1
            self._send_missed(after, newest, ready.uuid)
            self._ready = ready
        except BaseException as failure:
            self._failure = failure

    def _send_missed(self, after: int, newest: int, uuid: str) -> None:
        """Send the epochs after `after`, the newest epoch of the topic, which has this uuid."""
        if after > newest:
            current = newest_epoch(self._table.root, live_files(open_table(self._table.root)))
            if current is not None and current.epoch > newest:
                raise Fenced(
                    f"the table {self._table.root} is now at epoch {current.epoch}, but this job "
                    f"started at epoch {newest}; another writer has committed, so this job stops"
                )
            raise SinkAhead(
                f"topic {self.topic!r} has epoch {after}, but the table is at epoch {newest}: it "
                "was restored, or the topic belongs to a job in another directory; give sink.topic "
                "another name"
            )
        handle = self._table.reader()
        rows = epoch_rows(self._table.root, live_files(handle), since=after - 1)
        same = [row for row in rows if row.epoch == after]
        if same and uuid and same[0].uuid != uuid:
            raise SinkAhead(
                f"epoch {after} of topic {self.topic!r} differs from the table's epoch {after}: "
                "one of them was restored and went on; give sink.topic another name"
            )
        rows = [row for row in rows if row.epoch > after]
        if not rows:
            return
        starts = [row.epoch for row in rows if row.begins]
        if starts and after == -1:  # an empty topic starts with the history of these columns
            after = starts[-1] - 1
            rows = [row for row in rows if row.epoch > after]
        elif starts:
            raise HistoryMissing(
                f"the columns of groups changed in epoch {starts[-1]}, and topic {self.topic!r} "
                "has an older changelog; give sink.topic another name"
            )
        oldest = rows[0].epoch if rows else newest
        if oldest > after + 1:
            raise HistoryMissing(
                f"topic {self.topic!r} needs the epochs from {after + 1} on, but retention has "
                f"removed the table's epochs before {oldest}; give the job a new name to recompute "
                "it from its source"
            )
        changelog = [file for file in live_files(handle) if file.part == CHANGELOG]
        for row in rows:
            names = [f.path for f in changelog if f.epoch_min <= row.epoch <= f.epoch_max]
            self._publisher.send(self._build_message(row, names))

    def _build_message(self, row: EpochRow, names: Sequence[str]) -> EpochToPublish:
        return EpochToPublish(
            epoch=row.epoch,
            uuid=row.uuid,
            files=[str(self._table.root / name) for name in names],
            rows=row.counts.changelog_rows,
            watermark=row.time.published_watermark,
            status=row.time.status,
            offsets=row.offsets,
            committed_ms=row.committed_at // 1_000,
            appended_ms=row.counts.appended_ms,
        )

    def _wait_until_ready(self) -> None:
        self._starting.join()
        if self._failure is not None:
            raise self._failure


def result_columns(plan: Plan) -> ResultColumns:
    """Return the columns of the key, and of the row in SELECT order."""
    types = {named.name: str(named.type) for named in plan.group}
    types.update({name: str(kind) for name, kind in plan.results})
    return ResultColumns(
        group=[(named.name, str(named.type)) for named in plan.group],
        output=[(name, types[name]) for name in plan.output],
        window_end=next(
            (
                (named.name, str(named.type))
                for named in plan.group
                if isinstance(named.expression, WindowBound) and named.expression.end
            ),
            None,
        ),
    )
