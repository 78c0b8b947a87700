"""A publisher's life in the simulation: the real PublisherProcess, turn by turn, without a process.

Instead of the text of a record it publishes (epoch, seq, op, key, row), which the judge reads.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.core.publish.protocol import Answer, Configuration, EpochToPublish, Fatal, Ready
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.publisher.pipes import ParentGone
from jobs.edge.publisher.process import PublisherProcess
from jobs.edge.publisher.records import SinkRecords
from jobs.edge.publisher.session import OutcomeUnknown, PublishFailed
from tests.simulation.neighbours import Disk

if TYPE_CHECKING:
    from tests.simulation.world import World

Line = tuple[int, str, Any, Any]  # seq, op, key, row


class Inbox:
    """What the driver has said."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.waiting: list[tuple[EpochToPublish, float]] = []
        self.exhausted = False

    def take(self, *, wait: bool) -> list[tuple[EpochToPublish, float]]:
        assert not wait
        taken, self.waiting = self.waiting, []
        return taken

    def require_parent(self) -> None: ...

    def pause(self, _seconds: float) -> None: ...


class Publisher:
    """In the place of the driver's handle on a process."""

    def __init__(self, world: World, configuration: Configuration) -> None:
        small = msgspec.structs.replace(
            configuration, transaction_records=world.random.choice((3, 8, 100))
        )
        if len(world.job.publishers) > 1 and not configuration.share:
            publishers = world.random.choice(world.job.publishers)
            small = msgspec.structs.replace(small, publishers=publishers)
        self.world = world
        self.inbox = Inbox(small)
        self.process = PublisherProcess(self.inbox, self)  # type: ignore[arg-type]
        self.failure: Fatal | None = None
        self.published: int | None = None
        self.last_answer: Answer | None = None
        self.alive = True
        self.free = True  # whether nobody is in it just now
        self._outstanding: deque[int] = deque()
        self._ready: Ready | None = None

    def write_answer(self, answer: Answer) -> None:
        """The outbox of the process."""
        if answer.ready is not None:
            self._ready = answer.ready
            topics = answer.ready.topics
            if all(each.epoch is not None for each in topics):
                self.published = min(each.published for each in topics)
        elif answer.published is not None:
            self.published, self.last_answer = answer.published, answer
            self._outstanding.popleft()

    def launch(self) -> None: ...

    def start(self) -> Ready:
        return self.wait_until_ready()

    def wait_until_ready(self) -> Ready:
        self._act(self.process.begin)
        self.world.publishers.append(self)
        self.flush(0)
        assert self._ready is not None
        return self._ready

    def send(self, epoch: EpochToPublish) -> None:
        self.flush(0)
        self.inbox.waiting.append((epoch, 0.0))
        self._outstanding.append(epoch.epoch)

    def flush(self, _seconds: float | None = None, up_to: int | None = None) -> bool:
        """With `up_to`, share 0 waits for its helper, which goes on meanwhile."""
        while up_to is not None and self._outstanding and self._outstanding[0] <= up_to:
            if not self.free:
                raise OutcomeUnknown("the helper stands still for as long as a transaction may")
            if not self.alive:
                break
            self.turn()
        if self.failure is not None:
            raise PublisherFailed(self.failure)
        return up_to is not None or not self._outstanding

    def turn(self) -> None:
        if self.alive and self.free:
            self._act(lambda: self.process.publish_next(wait=False))

    def _act(self, act: Any) -> None:
        from tests.simulation.world import Killed

        self.free = False
        try:
            act()
        except Killed:
            self._end(Fatal("publisher-died", "killed"))
        except ParentGone:
            self._end(Fatal("publisher-died", "its driver is gone"))
        except PublishFailed as hopeless:
            self._end(hopeless.fatal)
        finally:
            self.free = True

    def _end(self, fatal: Fatal) -> None:
        self.failure, self.alive = fatal, False


class RecordWriter:
    def __init__(
        self,
        _format: Any,
        group: Any,
        output: Any,
        partitions: int,
        _end: Any = None,
        _key_schema: int = 0,
    ) -> None:
        self.columns = tuple(name for name, _ in (*group, *output))
        self._partitions = partitions

    def write(
        self, batch: Sequence[Line], facts: Any, floors: Sequence[int] | None = None
    ) -> SinkRecords:
        last_seq = batch[-1][0]
        if floors is not None:
            batch = [line for line in batch if line[0] > floors[self._partition_of(line)]]
        keys = [msgspec.json.encode(key) for _, _, key, _ in batch]
        return SinkRecords(
            keys=keys,
            values=[msgspec.json.encode((facts.epoch, *line)) for line in batch],
            seqs=[str(line[0]).encode() for line in batch],
            partitions=[self._partition_of(line) for line in batch],
            rows=len(batch),
            last_seq=last_seq,
        )

    def _partition_of(self, line: Line) -> int:
        return zlib.crc32(msgspec.json.encode(line[2])) % self._partitions


def read_epoch(
    disk: Disk,
    files: Sequence[str],
    _epoch: int,
    _columns: Sequence[str],
    after: int,
    rows: int = 0,
) -> list[Line]:
    lines = [line for name in files for line in disk.files[name]]
    if len(lines) < rows:
        from tests.simulation.world import Violation

        raise Violation("lost: the publisher lacks rows of an epoch")
    return sorted(line for line in lines if line[0] > after)


def split_rows(lines: Sequence[Line], rows_max: int) -> Iterator[list[Line]]:
    """Pieces that never part a -U from its +U."""
    piece: list[Line] = []
    for line in lines:
        piece.append(line)
        if len(piece) >= rows_max and line[1] != "-U":
            yield piece
            piece = []
    if piece:
        yield piece
