"""One run of a whole job in one process: seeded, with faults where the seed says.

    seed ──► plan of faults ──► scheduler ──► driver: Pipeline, EpochTable, JobPublisher
                                   │                     │ send
                                   │          publisher: PublisherProcess, Session
                                   ▼
                     after every turn a Judge reads table and topic as anybody may

A job has one query or several views (tests/simulation/jobs.py).
Real: `Pipeline.run_epoch` and all of its judging,
`EpochTable.commit_epoch` and `commit`, `BucketStates` and `catch_up`, `check_starts` and
`require_same_topics`, `JobPublisher` with what it sends again, `PublisherProcess` and `Session`,
the decoder, consolidation, program and fold of the core, clock and due work. Fake: the neighbours
(tests/simulation/neighbours.py), the two tasks, which fold the same rows by the core's functions
instead of Arrow's columns, and the text of published records.
`Job` itself needs Spark; what it does at a start is said again in `Driver`, call by call.

A stall is the worst one: while a driver or a publisher stands still, a second driver is let in, as
if the lock of the first had been taken away; later the first one goes on where it was.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from jobs.core.fold.laws import BrokenLaw
from jobs.core.fold.state import Upserts
from jobs.edge.kafka.source import (
    SourceChanged,
    check_starts,
    find_topics,
    first_offsets,
    require_same_topics,
)
from jobs.edge.publisher import job_publisher as publishing
from jobs.edge.publisher import process as publisher_process
from jobs.edge.publisher import session as publisher_session
from jobs.edge.publisher import share_processes, topic_writer
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.publisher.job_publisher import JobPublisher
from jobs.edge.state import bucket_states
from jobs.edge.state.catch_up import ZombieTask
from jobs.edge.state.errors import HotStateError
from jobs.edge.table import delta_epochs
from jobs.edge.table.delta_epochs import CommitFailed, EpochTable, Fenced
from jobs.edge.table.file_writer import AddedFile, file_name
from jobs.reading import epoch_rows
from jobs.reading.parts import ACCUMULATORS
from jobs.running.clock import JobClock
from jobs.running.outcome import InputRefused
from schemas.spec.connections import load_connections
from schemas.table.epoch import VIEWS, EpochRow, Offsets
from schemas.table.view_path import place_name, place_part
from tests.simulation import publisher, tasks
from tests.simulation.jobs import SINGLE, SimulatedJob
from tests.simulation.neighbours import (
    Admin,
    Broker,
    Consumer,
    Disk,
    Handle,
    Host,
    Place,
    Producer,
    Source,
)
from tests.support.histories.products import PARTITIONS, Message, endless

CONNECTION = load_connections(None, "127.0.0.1:9").lookup("default")
TURNS_MAX = 160
HEALING_TURNS_MAX = 40
MESSAGES_MIN = 25
SEEDS_APART = 1_000_000  # of the histories of several topics

# What may go wrong, and where. What a point is called is what comes next, or has just happened.
OF_TASKS = ("planned", "decoded", "shuffled", "folded")
OF_COMMIT = ("before_commit", "commit", "commit_reply_lost", "after_commit", "epoch_sent")
OF_PUBLISHER = (
    "init_transactions",
    "read_progress",
    "publish_begun",
    "publish_produced",
    "commit_transaction",
    "transaction_committed",
    "publish_committed",
)
AT_STARTS = ("starting", "init_transactions", "read_progress", "rebuild")
KAFKA_CALLS = ("init_transactions", "read_progress", "commit_transaction", "transaction_committed")
FAULTS: list[tuple[str, str]] = [
    *(("kill", point) for point in (*OF_TASKS, *OF_COMMIT, *OF_PUBLISHER)),
    *(("kill", point) for point in ("starting", "advance", "rebuild", "compacting")),
    *(("stall", point) for point in (*OF_TASKS, *OF_COMMIT, *OF_PUBLISHER)),
    *(("error", point) for point in ("commit", "commit_reply_lost", *KAFKA_CALLS)),
    *(("full", point) for point in ("planned", "folded", "commit")),
    *(("forget", point) for point in ("between", "shuffled", "folded")),
    ("twice", "reported"),
    ("missing", "reported"),
    ("skip", "reported"),
    ("drop", "arrived"),
]
# After these a job stops and says why.
FATAL: list[tuple[str, str]] = [
    ("expire", "between"),
    ("expire", "planned"),
    ("recreate_source", "between"),
    ("recreate_sink", "between"),
]


class Killed(BaseException):
    """The process is gone; nothing in it gets to say anything any more."""


class Violation(AssertionError):
    """A law is broken; the message says which, and the seed repeats it."""


@dataclass(slots=True)
class Fault:
    kind: str
    point: str
    passing: int  # at which passing of its point
    fired_at: int | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}@{self.point}"


class Driver:
    """A driver's life: the order of `Job._run_locked`, without Spark and lock."""

    def __init__(self, world: World) -> None:
        self.world = world
        admin: Any = Admin(world.broker)
        self.identities = find_topics(admin, world.job.spec.topics)
        table = EpochTable(Place(world.disk), tasks.LAYOUT, Handle(world.disk))  # type: ignore[arg-type]
        newest = table.newest() or self._begun(table, admin)
        if table.claim():
            newest = table.newest() or newest
        self.starts = check_starts(admin, newest.offsets, newest.topics, self.identities)
        world.point("starting")
        job = world.job
        self.publishing = JobPublisher(job.spec, job.plans, table, newest, CONNECTION).start()
        partitions = {name: identity.partitions for name, identity in self.identities.items()}
        options: dict[str, Any] = {
            "spark": None,
            "connections": {"default": {}},
            "cores": 2,
            "on_commit": self._committed,
            "clock": JobClock(job.spec, partitions, newest, read_log_ends=dict),
            "check_source": lambda: require_same_topics(admin, self.identities),
        }
        caches = {name: Path("cache", name) for name in ("", *job.states)}
        self.pipeline = tasks.SimulatedPipeline(
            job.spec, job.plans, table, newest, caches=caches, **options
        )
        self.pipeline.world = world
        self.pipeline.topics = {**self.identities, **self.publishing.identities()}

    def _begun(self, table: EpochTable, admin: Any) -> EpochRow:
        job = self.world.job
        counters: dict[str, Any] = {"groups": 0}
        if job.spec.views is not None:
            counters[VIEWS] = {
                name: {"plan": plan.fingerprint, "counters": {"groups": 0}}
                for name, plan in job.plans.items()
            }
        row = EpochRow(
            epoch=0,
            uuid=uuid.uuid4().hex,
            generation=1,
            kind="start",
            committed_at=0,
            plan=job.plan.fingerprint,
            offsets=first_offsets(admin, job.spec),
            topics=dict(self.identities),
            counters=counters,
        )
        table.commit_epoch(row, ())
        return row

    def turn(self) -> None:
        self.publishing.check()
        ends = self.world.planned(self.pipeline.newest.offsets)
        if ends is not None:
            self.pipeline.run_epoch(ends)
        armed = self.world.armed
        wanted = armed is not None and armed.point == "compacting"
        if self.world.random.random() < (0.5 if wanted else 0.1):
            self._compact()

    def _committed(self, row: EpochRow, files: Sequence[AddedFile]) -> None:
        self.publishing.send(row, files)

    def _compact(self) -> None:
        """All state files of a view become one, by the one commit function."""
        disk, table = self.world.disk, self.pipeline.table
        view = self.world.random.choice(self.world.job.states)
        part = place_part(ACCUMULATORS, view)
        live = [file for file in disk.live(table.version) if file.part == part]
        if len(live) < 2:
            return
        merged: dict[int, Upserts] = {}
        for file in live:
            for bucket, upserts in disk.files[file.path].items():
                into = merged.setdefault(bucket, Upserts([], [], []))
                into.groups += upserts.groups
                into.multisets += upserts.multisets
        self.world.point("compacting")
        newest, mark = live[-1].epoch_max, uuid.uuid4().hex
        name = place_name(file_name(ACCUMULATORS, newest, mark, "compaction"), view)
        added = disk.write(name, merged, (live[0].epoch_min, newest), len(merged))
        table.commit([added], live, uuid=mark, what="compaction")


@dataclass(slots=True)
class World:
    """Everything there is in one run, and the scheduler."""

    seed: int
    faults: list[tuple[str, str]] = field(default_factory=lambda: FAULTS)
    sound: bool = True
    job: SimulatedJob = SINGLE
    random: random.Random = field(init=False)
    disk: Disk = field(init=False)
    broker: Broker = field(init=False)
    host: Host = field(init=False)
    plan: list[Fault] = field(init=False)
    drivers: list[Driver] = field(default_factory=list)
    publishers: list[publisher.Publisher] = field(default_factory=list)
    messages: dict[str, Iterator[Message]] = field(init=False)  # by topic
    turns: int = 0
    recoveries: list[int] = field(default_factory=list)
    refused: str | None = None
    hurt_at: int | None = None
    healing: bool = False
    depth: int = 0
    unread_expired: bool = False

    def __post_init__(self) -> None:
        self.random = rng = random.Random(f"simulation {self.seed}")
        self.disk = Disk(self.point, sound=self.sound)
        topics = self.job.spec.topics
        self.broker = Broker(
            self.point,
            {
                topic: Source("source-1", [[] for _ in range(PARTITIONS)], [0] * PARTITIONS)
                for topic in topics
            },
        )
        self.host = Host(self.point)
        self.messages = {
            topic: endless(self.seed + SEEDS_APART * number) for number, topic in enumerate(topics)
        }
        chosen = [rng.choice(self.faults) for _ in range(rng.randint(1, 4))]
        if self.faults is FAULTS and rng.random() < 0.1:
            chosen[-1] = rng.choice(FATAL)
        self.plan = [Fault(kind, point, rng.randint(1, 3)) for kind, point in chosen]

    # --- faults -------------------------------------------------------------------------------

    @property
    def armed(self) -> Fault | None:
        return next((fault for fault in self.plan if fault.fired_at is None), None)

    @property
    def fatal(self) -> bool:
        """Whether something has happened after which a job stops, but for what `must_stop` says."""
        return any(f.fired_at is not None and (f.kind, f.point) in FATAL for f in self.plan)

    @property
    def must_stop(self) -> bool:
        """Whether it may do nothing else. What retention took while a driver stood still may have
        been read by that one, which goes on later."""
        return self.unread_expired or any(
            f.fired_at is not None and f.kind.startswith("recreate") for f in self.plan
        )

    def point(self, name: str) -> str | None:
        """A place that is passed; what the armed fault does there."""
        fault = self.armed
        if fault is None or fault.point != name or self.healing:
            return None
        if (fault.kind, fault.point) in FATAL and not self._begun():
            return None  # what a job has not seen is not gone for it
        fault.passing -= 1
        if fault.passing > 0:
            return None
        fault.fired_at = self.turns
        self.hurt_at = self.turns if self.hurt_at is None else self.hurt_at
        return self._act(fault)

    def _begun(self) -> bool:
        """Whether the job has read and published anything."""
        rows = self.disk.rows()
        return bool(rows) and "changes" in rows[-1].topics

    def _act(self, fault: Fault) -> str | None:
        if fault.kind == "kill":
            raise Killed(fault.name)
        if fault.kind == "error":
            if fault.point in KAFKA_CALLS:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
            raise OSError(f"{fault.point}: no answer")
        if fault.kind == "stall":
            self._rival()
        elif fault.kind == "full":
            self.disk.full = self.random.randint(1, 4)
        elif fault.kind == "forget":
            self.host.buckets.clear()
        elif fault.kind == "expire":
            self._expire()
        elif fault.kind == "recreate_source":
            self._recreate_source()
        elif fault.kind == "recreate_sink":
            before = self.broker.sinks.get("changes")
            self.broker.make("changes", 2 if before is None else len(before.partitions))
            self.produce(10)
        return fault.kind

    def _rival(self) -> None:
        """Somebody else goes on while whoever is at this point stands still."""
        self.depth += 1
        rival = self.started()
        for _ in range(self.random.randint(0, 3)):
            self.produce(self.random.randint(0, 4))
            if rival is not None and rival in self.drivers:
                self.let(rival)
            for each in list(self.publishers):
                if self.random.random() < 0.7 and each.free:
                    each.turn()
        self.depth -= 1

    def _expire(self) -> None:
        """Retention passes what the job has not read yet."""
        self.produce(PARTITIONS * 4 * len(self.messages))
        rows, topic = self.disk.rows(), self._choose_topic()
        offsets = rows[-1].offsets[topic] if rows else {}
        for partition, found in enumerate(self.broker.sources[topic].partitions):
            at = offsets.get(str(partition), 0)
            if at < len(found):
                self.broker.sources[topic].first[partition] = at + 1
                self.unread_expired = self.depth == 0
                return

    def _choose_topic(self) -> str:
        """A topic of the job; a job with one has the same seeds as without the choice."""
        topics = list(self.messages)
        return topics[0] if len(topics) == 1 else self.random.choice(topics)

    def _recreate_source(self) -> None:
        """Deleted, made again, and longer than before."""
        topic = self._choose_topic()
        before = self.broker.sources[topic]
        self.broker.sources[topic] = Source(
            "source-2", [list(p) for p in before.partitions], before.first
        )
        self.produce(10)

    # --- what happens ---------------------------------------------------------------------------

    def produce(self, count: int) -> None:
        for _ in range(count):
            topic = self._choose_topic()
            message = next(self.messages[topic])
            partition = self.broker.sources[topic].partitions[message.partition]
            partition.append(message)
            if self.random.random() < 0.2:  # the end of a transaction
                partition.append(None)

    def planned(self, offsets: Offsets) -> Offsets | None:
        """How far the next epoch reads: what Spark writes down before it calls us."""
        known = {topic: offsets.get(topic, {}) for topic in self.messages}
        ends: Offsets = {topic: {} for topic in known}
        for topic, source in self.broker.sources.items():
            for number, found in enumerate(source.partitions):
                at = known[topic].get(str(number), 0)
                unread = max(0, len(found) - at)
                read = unread if self.healing else self.random.randint(0, unread)
                ends[topic][str(number)] = at + read
        return ends if ends != known else None

    def started(self) -> Driver | None:
        """Another driver; None where it did not get so far."""
        made: list[Driver] = []
        self._guarded(lambda: made.append(Driver(self)))
        self.drivers += made
        return made[0] if made else None

    def let(self, driver: Driver) -> None:
        """Let a driver take a turn; what ends it ends its publisher too, later."""
        if not self._guarded(driver.turn) and driver in self.drivers:
            self.drivers.remove(driver)

    def _guarded(self, act: Callable[[], object]) -> bool:
        """Whether it went well. Whatever else ends a driver has to be something that stops it in
        words; anything unforeseen is a failure of the run."""
        try:
            act()
        except Killed:
            return False
        except (SourceChanged, publishing.SinkAhead, publishing.HistoryMissing) as reason:
            self.refused = str(reason)
            return False
        except PublisherFailed as failed:
            if failed.fatal.code in ("publisher-sink-changed", "publisher-gap"):
                self.refused = str(failed)
            return False
        except (Fenced, CommitFailed, ZombieTask, HotStateError, BrokenLaw, InputRefused, OSError):
            return False
        return True

    # --- a run ----------------------------------------------------------------------------------

    def run(self, observe: Callable[[World], None]) -> None:
        """Until every planned fault has happened; then until all is well again."""
        with patched(self):
            while self.turns < TURNS_MAX and self.refused is None:
                if self.armed is None and self.turns >= MESSAGES_MIN // 3:
                    break
                self._turn(self.random.randint(0, 5))
                observe(self)
            self.healing = True
            for _ in range(HEALING_TURNS_MAX):
                if self.refused is not None or self._healed():
                    break
                self._turn(0)
                observe(self)
        if self.refused is None and not self._healed():
            raise Violation("no progress: with all faults gone the job does not catch up")

    def _turn(self, messages: int) -> None:
        self.turns += 1
        self.produce(messages)
        self.point("between")
        self._begin_anew()
        if not self.drivers:
            self.started()
        for driver in list(self.drivers):
            if driver in self.drivers and (self.healing or self.random.random() < 0.8):
                self.let(driver)
        for each in list(self.publishers):
            if self.healing or self.random.random() < 0.7:
                each.turn()
        self.publishers = [each for each in self.publishers if each.alive]
        if self.hurt_at is not None and self._settled():
            self.recoveries.append(self.turns - self.hurt_at)
            self.hurt_at = None

    def _begin_anew(self) -> None:
        """A fault at a start needs starts, and one of a rebuild an empty cache."""
        fault = self.armed
        if fault is None or self.healing or fault.point not in AT_STARTS:
            return
        if fault.point == "rebuild":
            self.host.buckets.clear()
        elif self.drivers and self.random.random() < 0.5:
            self.drivers.pop()

    def _settled(self) -> bool:
        """A driver and its publisher are at the newest epoch."""
        newest = max((row.epoch for row in self.disk.rows()), default=-1)
        return any(
            d.publishing.published == newest == d.pipeline.newest.epoch for d in self.drivers
        )

    def _healed(self) -> bool:
        return (
            self._settled()
            and len(self.drivers) == 1
            and (self.planned(self.drivers[0].pipeline.newest.offsets) is None)
        )


@contextmanager
def patched(world: World) -> Iterator[None]:
    """The neighbours in the places of the real ones."""
    places: list[tuple[ModuleType, dict[str, Any]]] = [
        (delta_epochs, {
            "write_file": tasks.write_file, "live_files": tasks.live_files,
            "open_table": tasks.open_table, "failpoint": world.point,
        }),
        (epoch_rows, {
            "read_epoch_rows": tasks.read_epoch_rows, "_read_files": tasks.read_epoch_files,
        }),
        (bucket_states, {
            "live_files": tasks.live_files, "open_table": tasks.open_table,
            "open_shared": world.host.open_shared, "StateFiles": tasks.StateFiles,
        }),
        (publishing, {
            "live_files": tasks.live_files, "failpoint": world.point,
            "open_table": tasks.open_table,
            "Publisher": lambda configuration: publisher.Publisher(world, configuration),
        }),
        (publisher_session, {
            "Producer": lambda options: Producer(world.broker, options),
            "Consumer": lambda options: Consumer(world.broker, options),
            "failpoint": world.point,
        }),
        (share_processes, {
            "Publisher": lambda configuration: publisher.Publisher(world, configuration),
        }),
        (publisher_process, {
            "KafkaAdmin": lambda _options: Admin(world.broker),
            "split_rows": publisher.split_rows,
            "read_epoch": lambda *asked: publisher.read_epoch(world.disk, *asked),
            "failpoint": world.point, "log": lambda _text: None,
        }),
        (topic_writer, {"RecordWriter": publisher.RecordWriter}),
    ]  # fmt: skip
    before = [(module, name, getattr(module, name)) for module, names in places for name in names]
    for module, names in places:
        for name, value in names.items():
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
