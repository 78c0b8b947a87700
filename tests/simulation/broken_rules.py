"""Rules of the protocols, each broken on purpose: a simulation that does not see it is blind.

Each entry breaks one rule in the product's own code (or gives back to a neighbour what the rule is
there to withstand), and names the faults among which it must come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest.mock import patch

import msgspec
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from jobs.core.fold.state import Stamp, Upserts
from jobs.edge.kafka import source as kafka_source
from jobs.edge.publisher import claims
from jobs.edge.publisher import session as publisher_session
from jobs.edge.publisher.job_publisher import JobPublisher
from jobs.edge.publisher.process import PublisherProcess
from jobs.edge.publisher.session import Session
from jobs.edge.publisher.topic_writer import SinkTopicWriter
from jobs.edge.state import bucket_states
from jobs.edge.table.delta_epochs import APPLICATION, CommitFailed, EpochTable
from jobs.running import outcome as outcomes
from jobs.running.outcome import Outcome
from jobs.running.pipeline import Pipeline
from schemas.table.epoch import EpochRow, Offsets
from tests.simulation import tasks
from tests.simulation import world as worlds
from tests.simulation.neighbours import Disk, Handle, HotBucket
from tests.simulation.world import FATAL, FAULTS, Driver, World

Faults = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """What is broken, and where it shows."""

    says: str
    breaks: Callable[[ExitStack], None]
    faults: Faults = field(default_factory=lambda: FAULTS)
    sound: bool = True

    @contextmanager
    def broken(self) -> Iterator[dict[str, Any]]:
        """While the rule is broken; gives the options of the worlds."""
        with ExitStack() as stack:
            self.breaks(stack)
            yield {"faults": self.faults, "sound": self.sound}


def replaced(owner: Any, name: str, value: Any) -> Callable[[ExitStack], None]:
    return lambda stack: stack.enter_context(patch.object(owner, name, value))


def points(*names: str) -> Faults:
    return [fault for fault in FAULTS if fault[1] in names]


def _passed(module: str, point: str) -> None:
    """A failpoint of the product, as the world has it in its place."""
    import_module(f"jobs.edge.{module}").failpoint(point)


# --- 1: who drives an epoch -----------------------------------------------------------------------


def _ends_from_rows(self: World, offsets: Offsets) -> Offsets | None:
    """The last record that was seen, and one: marks of transactions are none."""
    known, ends = offsets.get("product", {}), {}
    for number, found in enumerate(self.broker.source.partitions):
        at = known.get(str(number), 0)
        records = [place for place, record in enumerate(found) if record is not None]
        ends[str(number)] = max(at, records[-1] + 1 if records else 0)
    return {"product": ends} if ends != known else None


def _healed_at_the_very_end(self: World) -> bool:
    at = self.drivers[0].pipeline.newest.offsets["product"] if self.drivers else {}
    return self._settled() and at == {
        str(number): len(found) for number, found in enumerate(self.broker.source.partitions)
    }


def _ends_of_rows(stack: ExitStack) -> None:
    stack.enter_context(patch.object(World, "planned", _ends_from_rows))
    stack.enter_context(patch.object(World, "_healed", _healed_at_the_very_end))


def _from_the_checkpoint(stack: ExitStack) -> None:
    """A start at what was planned, which is written before the batch, and not at what was
    committed."""
    newest, planned = EpochTable.newest, World.planned

    def noted(self: World, offsets: Offsets) -> Offsets | None:
        ends = planned(self, offsets)
        self.broker.source.checkpoint = ends or self.broker.source.checkpoint
        return ends

    def begun(self: Driver, world: World) -> None:
        def checkpointed(table: EpochTable) -> EpochRow | None:
            row, known = newest(table), world.broker.source.checkpoint
            return (
                row if row is None or known is None else msgspec.structs.replace(row, offsets=known)
            )

        with patch.object(EpochTable, "newest", checkpointed):
            start(self, world)

    start = Driver.__init__
    stack.enter_context(patch.object(World, "planned", noted))
    stack.enter_context(patch.object(Driver, "__init__", begun))


def _gaps_passed_over(stack: ExitStack) -> None:
    """What retention has taken is read from where it begins now."""
    stack.enter_context(patch.object(worlds, "check_starts", lambda _, offsets, *__: offsets))
    stack.enter_context(patch.object(tasks, "gone", lambda *_: None))


# --- 2: the commit --------------------------------------------------------------------------------


def _believed(self: EpochTable, _version: int) -> str | None:
    disk: Disk = self.handle.disk  # type: ignore[attr-defined]
    return disk.tried


def _left_to_the_library(stack: ExitStack) -> None:
    """No look at the version, and as many retries as it likes."""
    stack.enter_context(patch.object(EpochTable, "require_own_version", lambda _self: None))
    stack.enter_context(patch.object(Handle, "retries", True))


def _computed_once_more(stack: ExitStack) -> None:
    """A commit that was not answered has failed, so its epoch is computed again."""
    run = Pipeline._run

    def again(self: Pipeline, *asked: Any) -> EpochRow:
        try:
            return run(self, *asked)
        except OSError:
            self.table.handle.update_incremental()
            self.table.version = self.table.handle.version()
            standing = self.newest.epoch
            with patch.object(Handle, "transaction_version", lambda *_: standing):
                return run(self, *asked)

    stack.enter_context(patch.object(EpochTable, "commit", _unread_commit))
    stack.enter_context(patch.object(Pipeline, "_run", again))


def _unread_commit(
    self: EpochTable,
    added: Any,
    removed: Any = (),
    *,
    uuid: str,
    what: str,
    epoch: int | None = None,
    durable: bool = False,
) -> None:
    """Without a look at what came of it."""
    properties = CommitProperties(
        custom_metadata={"retally": {"uuid": uuid, "what": what}},
        max_commit_retries=0,
        app_transactions=[] if epoch is None else [Transaction(APPLICATION, epoch)],
    )
    actions: list[Any] = [AddAction(file.path, 1, {}, 0, True, "{}") for file in added]
    actions += [RemoveAction(file.path, True, 0, 1, {}) for file in removed]
    handle: Any = self.handle
    try:
        handle.create_write_transaction(actions, "append", None, [], commit_properties=properties)
    except CommitFailedError as refused:
        raise CommitFailed(str(refused)) from refused
    _passed("table.delta_epochs", "commit_reply_lost")
    handle.update_incremental()
    self.version = handle.version()


# --- 3: hot state ---------------------------------------------------------------------------------


def _whatever_is_there(stack: ExitStack) -> None:
    """A task folds on the state that it finds."""

    def view(self: HotBucket, _base: Stamp) -> Any:
        return seen(self, self.stamp)  # type: ignore[arg-type]

    def caught_up(state: HotBucket, base: Stamp, _line: Any, load: Any) -> None:
        if state.stamp is None:
            state.rebuild([*load(None), (base, Upserts())], since=None)

    seen = HotBucket.view
    stack.enter_context(patch.object(HotBucket, "view", view))
    stack.enter_context(patch.object(bucket_states, "catch_up", caught_up))


def _recalled_by_number(self: HotBucket, stamp: Stamp) -> Upserts | None:
    known = self.remembered
    return known[2] if known and known[0] == stamp.epoch else None


def _written_at_once(stack: ExitStack) -> None:
    """A fold writes into the state before its epoch is committed."""
    kept = HotBucket.remember

    def remember(self: HotBucket, epoch: int, uuid: str, upserts: Upserts) -> None:
        kept(self, epoch, uuid, upserts)
        self.state.apply(upserts)

    stack.enter_context(patch.object(HotBucket, "remember", remember))


# --- 6: the publisher -----------------------------------------------------------------------------


def _progress_apart(stack: ExitStack) -> None:
    """The records in one transaction, how far they go in the next."""
    commit = Session.commit

    def apart(self: Session, progress: Any) -> None:
        if self._started_at is not None:
            self._commit()
            self._started_at = None
            _passed("publisher.process", "publish_produced")
        commit(self, progress)

    stack.enter_context(patch.object(Session, "commit", apart))


def _read_before_fencing(stack: ExitStack) -> None:
    """How far a predecessor got is read while it can still go on."""
    read = publisher_session.read_progress
    known: list[Any] = []

    def as_known(*asked: Any) -> Any:
        """Read what is there before the fence; take it for what is there after it."""
        if known:
            return known.pop()
        known.append(read(*asked))
        _passed("publisher.process", "publish_begun")
        return known[0]

    stack.enter_context(patch.object(claims, "read_progress", as_known))


def _same_producer(stack: ExitStack) -> None:
    """After an outcome that nobody knows the records are simply sent again."""
    over = PublisherProcess._start_over

    def start_over(self: PublisherProcess) -> None:
        if self._session is None:
            over(self)
        else:
            self._session._started_at = None

    stack.enter_context(patch.object(PublisherProcess, "_start_over", start_over))


def _id_of_its_own(stack: ExitStack) -> None:
    """Each publisher has a transactional id of its own, so that none is fenced."""
    lives = iter(range(1_000_000))
    init = PublisherProcess.__init__

    def named(self: PublisherProcess, inbox: Any, outbox: Any) -> None:
        told = inbox.configuration
        inbox.configuration = msgspec.structs.replace(
            told, transactional_id=f"{told.transactional_id}-{next(lives)}"
        )
        init(self, inbox, outbox)

    stack.enter_context(patch.object(PublisherProcess, "__init__", named))


def _sent_before_commit(stack: ExitStack) -> None:
    commit_epoch = EpochTable.commit_epoch
    run = Pipeline._run

    def early(self: EpochTable, row: EpochRow, files: Any, **options: Any) -> None:
        pipeline_of = _running[-1] if _running else None
        if pipeline_of is not None:
            pipeline_of.on_commit(row, files)
            for each in pipeline_of.world.publishers:  # type: ignore[attr-defined]
                each.turn()
        commit_epoch(self, row, files, **options)

    def running(self: Pipeline, *asked: Any) -> EpochRow:
        _running.append(self)
        told: list[EpochRow] = []
        sent = self.on_commit
        self.on_commit = lambda row, files: told or (told.append(row), sent(row, files))  # type: ignore[func-returns-value,assignment]
        try:
            return run(self, *asked)
        finally:
            self.on_commit = sent
            _running.pop()

    _running: list[Pipeline] = []
    stack.enter_context(patch.object(EpochTable, "commit_epoch", early))
    stack.enter_context(patch.object(Pipeline, "_run", running))


def _nothing_missed(self: JobPublisher, _topics: Any, _newest: int) -> None:
    """What was committed and not published before a start is left out."""


BROKEN_RULES = [
    BrokenRule("1: end offsets come from the plan, never from rows", _ends_of_rows),
    BrokenRule(
        "1: exactly one report a planned range",
        replaced(Outcome, "require_one_report_each", lambda *_: None),
        points("reported"),
    ),
    BrokenRule(
        "1: every message that was read is accounted for",
        replaced(outcomes, "messages_conserved", lambda *_, **__: None),
        points("reported"),
    ),
    BrokenRule(
        "1: weighted rows that were sent arrive",
        replaced(Outcome, "count_filtered", lambda *_: 0),
        points("arrived"),
    ),
    BrokenRule("1: a start begins at the last committed epoch", _from_the_checkpoint),
    BrokenRule(
        "1: offsets that retention has passed stop the job",
        _gaps_passed_over,
        [fault for fault in FATAL if fault[0] == "expire"],
    ),
    BrokenRule(
        "1: a topic that was made again is another topic",
        replaced(kafka_source, "_require_same_id", lambda *_: None),
        [fault for fault in FATAL if fault[0] == "recreate_source"],
    ),
    BrokenRule(
        "2: the log takes a version once (a rename does not), and the lock is held",
        lambda _stack: None,
        [("stall", "rename"), ("stall", "commit")],
        sound=False,
    ),
    BrokenRule(
        "2: version v+1 is read back, with our uuid in it",
        replaced(EpochTable, "_writer_of", _believed),
    ),
    BrokenRule(
        "2: no retry inside, and the version is the one that was written last", _left_to_the_library
    ),
    BrokenRule("2: a commit whose reply is lost is recognised", _computed_once_more),
    BrokenRule("3: a task folds on exactly its base", _whatever_is_there),
    BrokenRule(
        "3: remembered changes are those of a committed uuid",
        replaced(HotBucket, "recall", _recalled_by_number),
    ),
    BrokenRule("3: the hot state holds committed epochs only", _written_at_once),
    BrokenRule("6: the progress is in the transaction of its records", _progress_apart),
    BrokenRule("6: a predecessor is fenced before the progress is read", _read_before_fencing),
    BrokenRule("6: after an indefinite error the producer is thrown away", _same_producer),
    BrokenRule("6: one transactional id a job", _id_of_its_own),
    BrokenRule("6: only committed epochs are published", _sent_before_commit),
    BrokenRule(
        "6: what the topic lacks is read from the table",
        replaced(JobPublisher, "_send_missed", _nothing_missed),
    ),
    BrokenRule(
        "6: a sink that was made again stops the job",
        replaced(
            SinkTopicWriter,
            "require_same_topic",
            lambda self, admin: setattr(self, "identity", admin.topic(self.topic)),
        ),
        [fault for fault in FATAL if fault[0] == "recreate_sink"],
    ),
]
