"""Publishing: the job's side of its publisher; what the publisher missed is read from the table.

start ─► publisher fences its predecessor, reads the progress ─► epochs after it, from the table
commit ─► send ─► published, while the next epoch is computed
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.publish.protocol import Configuration, EpochToPublish, Ready, ResultColumns
from jobs.edge.process.failpoints import failpoint
from jobs.edge.publisher.handle import Publisher
from jobs.edge.table.delta_epochs import (
    EpochTable,
    Fenced,
    epoch_rows,
    live_files,
    newest_epoch,
    opened,
)
from jobs.edge.table.epoch_files import CHANGELOG
from schemas.spec.connections import Connection, librdkafka_options
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, TopicIdentity


class HistoryMissing(Exception):
    """What the topic lacks is no longer in the table; going on would leave a hole in it."""


class SinkAhead(Exception):
    """The topic has epochs that the table does not; those that come would be other ones."""


class Publishing:
    """Starts beside Spark, which takes longer; epochs committed meanwhile wait their turn."""

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
        self._started = threading.Thread(target=self._start, args=[newest.epoch], daemon=True)
        self._started.start()

    def identity(self) -> TopicIdentity:
        """The sink topic as the publisher found or made it."""
        self._wait_until_ready()
        assert self._ready is not None
        return TopicIdentity(self._ready.topic_id, self._ready.partitions)

    def send(self, row: EpochRow, names: Sequence[str]) -> None:
        """Hand over a committed epoch."""
        self._wait_until_ready()
        self._publisher.send(self._to_publish(row, names))
        failpoint("epoch_sent")

    def check(self) -> None:
        """Raise if the publisher has failed."""
        if self._failure is not None:
            raise self._failure
        if self._publisher.failure is not None:
            self._publisher.flush(0)

    def drain(self) -> None:
        """Wait until everything committed is published."""
        self._wait_until_ready()
        self._publisher.flush()

    @property
    def published(self) -> int | None:
        return self._publisher.published

    def last(self) -> tuple[int | None, float | None]:
        """The newest epoch in the topic, and the seconds from its hand-over until it was there."""
        answer = self._publisher.last_answer
        return self._publisher.published, None if answer is None else answer.seconds

    def close(self) -> None:
        self._started.join()
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
        """Send the epochs that the topic lacks; its newest one, `after`, has this uuid."""
        if after > newest:
            standing = newest_epoch(self._table.root, opened(self._table.root))
            if standing is not None and standing.epoch > newest:
                raise Fenced(
                    f"the table {self._table.root} stands at epoch {standing.epoch} by now, but "
                    f"this job began at epoch {newest}; another writer is here, so this one stops"
                )
            raise SinkAhead(
                f"topic {self.topic!r} has epoch {after}, but the table stands at epoch {newest}: "
                "it was restored, or the topic belongs to a job in another directory. Give "
                "sink.topic another name"
            )
        handle = self._table.reader()
        rows = epoch_rows(self._table.root, handle, since=after - 1)
        there = [row for row in rows if row.epoch == after]
        if there and uuid and there[0].uuid != uuid:
            raise SinkAhead(
                f"epoch {after} of topic {self.topic!r} is another one than the table's: one of "
                "them was restored and went on. Give sink.topic another name"
            )
        rows = [row for row in rows if row.epoch > after]
        if not rows:
            return
        begun = [row.epoch for row in rows if row.begins]
        if begun and after == -1:  # a topic that has nothing yet begins where history does
            after = begun[-1] - 1
            rows = [row for row in rows if row.epoch > after]
        elif begun:
            raise HistoryMissing(
                f"groups have other columns since epoch {begun[-1]}, and topic {self.topic!r} has "
                "the changelog of before; give sink.topic another name"
            )
        oldest = rows[0].epoch if rows else newest
        if oldest > after + 1:
            raise HistoryMissing(
                f"topic {self.topic!r} needs the epochs from {after + 1} on, but the table's "
                f"history begins at {oldest}: retention has removed what lies between, and a "
                "changelog that begins in the middle is none. Give the job a new name, so that it "
                "begins anew"
            )
        changelog = [file for file in live_files(handle) if file.part == CHANGELOG]
        for row in rows:
            names = [f.path for f in changelog if f.epoch_min <= row.epoch <= f.epoch_max]
            self._publisher.send(self._to_publish(row, names))

    def _to_publish(self, row: EpochRow, names: Sequence[str]) -> EpochToPublish:
        return EpochToPublish(
            epoch=row.epoch,
            uuid=row.uuid,
            files=[str(self._table.root / name) for name in names],
            rows=int(row.counters.get("changelog_rows", 0)),
            watermark=told_watermark(row.watermarks),
            status=row.watermarks.get("status", "active"),
            offsets=row.offsets,
            committed_ms=row.committed_at // 1_000,
        )

    def _wait_until_ready(self) -> None:
        self._started.join()
        if self._failure is not None:
            raise self._failure


def told_watermark(watermarks: Mapping[str, Any]) -> int | None:
    """What an epoch lets readers of the topic know: results come first, so under the event clock
    the watermark up to which nothing is withheld any more, and with windows the one that they are
    told up to."""
    agenda = watermarks.get("agenda", {})
    told = [watermarks.get("combined")]
    if "assigner" in agenda:
        told.append(agenda.get("released"))
    if "emits" in agenda:
        told.append(agenda.get("passed"))
    known = [watermark for watermark in told if watermark is not None]
    return min(known) if len(known) == len(told) else None


def result_columns(plan: Plan) -> ResultColumns:
    """The key's columns, and the row's in SELECT order."""
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
