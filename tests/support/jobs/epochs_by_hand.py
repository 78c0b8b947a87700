"""Epochs by hand: the pipeline itself, one epoch a call, with Kafka, Spark and Delta but no query.

    produce ─► Kafka ─► Pipeline.run_epoch up to the end offsets ─► the table
                                                                      │
                              tests choose when an epoch ends ────────┘ and what happens between

All tests share one JVM, so that an epoch costs a fraction of a second. End offsets come from the
broker, as Spark's plan has them, and never from rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.changing.evolve import Evolved, activate_replay, evolve, prepare_replay
from jobs.changing.rewind import Rewound, rewind
from jobs.checking.audit import AuditReport, audit_table
from jobs.checking.source_rows import SourceRows
from jobs.core.fold.laws import messages_conserved, repeats_the_last_row
from jobs.core.fold.program import Program
from jobs.core.fold.state import Key
from jobs.core.job.views import plans_of
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Op, Row
from jobs.core.values.json_values import render
from jobs.edge.files.log import FileLog
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.offset_ranges import ranges_between
from jobs.edge.kafka.source import begin_new_topics, find_topics
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.state.bucket_states import hot_state_of
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.job_specs import write_specs
from jobs.edge.table.reading import TableReader
from jobs.reading.epoch_rows import epoch_rows
from jobs.reading.files import live_files, open_table
from jobs.reading.parts import CHANGELOG, LATE, QUARANTINE
from jobs.reading.version import TableVersion
from jobs.running.clock import JobClock
from jobs.running.file_reading import notice_files
from jobs.running.job_table import open_table as open_job_table
from jobs.running.pipeline import Pipeline, make_pipeline
from schemas.spec.connections import Registry, load_connections
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity
from schemas.types.arrow_values import to_tuples
from tests.support.histories.change_scripts import shown
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.jobs.running_job import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = 4  # few, because each touched one is an environment to open


@dataclass(slots=True)
class EpochsByHand:
    """A job whose epochs end when a test says so."""

    spark: SparkSession
    brokers: str
    home: Path
    spec: JobSpec
    now_ms: int | None = None  # where a test says what time it is
    view: str = ""  # which of several views is looked at
    registries: Mapping[str, Registry] = field(default_factory=dict)
    plan: Plan = field(init=False)
    layout: TableLayout = field(init=False)
    pipeline: Pipeline = field(init=False)
    logs: dict[str, FileLog] = field(init=False)

    def __post_init__(self) -> None:
        self._look_at(next(iter(self.plans)))
        self.restart()

    @property
    def plans(self) -> dict[str, Plan]:
        return plans_of(self.spec)

    def _look_at(self, view: str) -> None:
        self.view = view
        self.plan = self.plans[view]
        self.layout = TableLayout(Program(self.plan))

    def at_view(self, view: str) -> EpochsByHand:
        """The same job, of which the results and so on are those of one view."""
        seen = copy(self)
        seen._look_at(view)
        return seen

    @property
    def place(self) -> JobDirectory:
        return JobDirectory(self.home, self.spec.name, self.view)

    @property
    def root(self) -> Path:
        table = self.place.table
        assert isinstance(table, Path)
        return table

    @property
    def cache(self) -> Path:
        return hot_state_of(self.place, open_table(self.root))

    # --- running ------------------------------------------------------------------------------

    def restart(self) -> Pipeline:
        """A pipeline that knows only what is on disk, as a new process does. The former one stays
        as it is: a test may keep it as the zombie it would be."""
        with self._open_topics() as admin:
            topics = find_topics(admin, self.spec.topics)
            place = self.place.at_view("")
            table, newest = open_job_table(self.spec, self.plans, place, admin, topics)
            newest = begin_new_topics(admin, self.spec, newest)
        write_specs(self.spec, place)
        self.pipeline = make_pipeline(
            self.spec,
            self.plans,
            self.place.at_view(""),
            table,
            newest,
            spark=self.spark,
            connections={"default": {"bootstrap.servers": self.brokers}},
            registries=self.registries,
            cores=2,
            on_commit=lambda _row, _files: None,
            clock=ClockByHand(self, newest, topics),
            logs=self.logs,
        )
        self.pipeline.topics |= topics
        return self.pipeline

    def _open_topics(self) -> KafkaAdmin:
        """The topics, and the files that are there now."""
        self.logs = notice_files(self.home, self.spec, whole=True)
        names = self.spec.topic_connections
        admin = KafkaAdmin({"bootstrap_servers": [self.brokers]} if names else None)
        admin._files = self.logs
        return admin

    def ends(self) -> Offsets:
        """Where the topics end now for a read_committed reader."""
        with self._open_topics() as admin:
            return {
                topic: {str(number): end for number, end in admin.end_offsets(topic).items()}
                for topic in self.spec.topics
            }

    def epoch(self, ends: Offsets | None = None, pipeline: Pipeline | None = None) -> EpochRow:
        """One epoch over everything up to `ends` (now, if not told)."""
        pipeline = pipeline or self.pipeline
        ends = ends or self.ends()
        pipeline.logs = self.logs
        assert ranges_between(pipeline.newest.offsets, ends), "there is nothing new to read"
        return pipeline.run_epoch(ends)

    def epoch_of(self, messages: Iterable[tuple[int, bytes | None]]) -> EpochRow:
        """Produce to the first topic, then one epoch over it."""
        produce(self.brokers, self.spec.source.topics[0], messages)
        return self.epoch()

    def time_epoch(self, ms: int = 0) -> EpochRow:
        """What the clock does: an epoch without changes, after so much time by hand."""
        if ms:
            assert self.now_ms is not None
            self.now_ms += ms
        return self.pipeline.run_epoch(self.pipeline.newest.offsets)

    def release(self) -> EpochRow:
        """End the bundle of the event clock, wherever its boundary is."""
        self.pipeline.views[0].due_work._ending = True
        return self.time_epoch()

    # --- changing -----------------------------------------------------------------------------

    def go_on(self, spec: JobSpec) -> None:
        """Continue with another spec, as a start after `retally evolve` does."""
        self.spec = spec
        self._look_at(next(iter(self.plans)))
        self.restart()

    def evolve(self, spec: JobSpec) -> Evolved:
        evolved = evolve(self.place.at_view(""), spec)
        self.go_on(spec)
        return evolved

    def read_again(self, spec: JobSpec, now_ms: int | None = None) -> EpochsByHand:
        """Read the topics in the shadow job, up to the offsets of this one, and return it."""
        made = prepare_replay(self.place.at_view(""), spec)
        shadow = EpochsByHand(self.spark, self.brokers, made.shadow.data, made.spec, now_ms)
        if shadow.pipeline.newest.offsets != (made.goal or shadow.ends()):
            shadow.epoch(made.goal)
        return shadow

    def replay(self, spec: JobSpec, now_ms: int | None = None) -> EpochsByHand:
        """Read the topics again and go on with the views of the spec; return the shadow job."""
        shadow = self.read_again(spec, now_ms)
        activate_replay(self.place.at_view(""), spec)
        self.go_on(spec)
        return shadow

    def rewind(self, to: str) -> Rewound:
        with KafkaAdmin({"bootstrap_servers": [self.brokers]}) as admin:
            return rewind(self.place.at_view(""), to, admin)

    def audit(self, view: str = "", place: JobDirectory | None = None) -> AuditReport:
        """Audit a view of this job, or of another job with the same topics."""
        connections = replace(load_connections(None, self.brokers), registries=self.registries)
        reader = TableReader.open((place or self.place).at_view(view))
        source = SourceRows(lambda: self.spark, connections, [reader])
        with KafkaAdmin({"bootstrap_servers": [self.brokers]}) as admin:
            return audit_table(reader, admin, source)

    # --- looking ------------------------------------------------------------------------------

    def epochs(self) -> list[EpochRow]:
        return epoch_rows(self.root, live_files(open_table(self.root)))

    def changelog(self, epoch: int | None = None) -> list[tuple[Op, Key, Row]]:
        """The changelog in the table, in its order; values as retally holds them in memory."""
        rows = []
        for table in self._tables(CHANGELOG):
            keys, results = self.layout.keys(table), to_tuples(table, self.layout.results)
            places = zip(table["epoch"].to_pylist(), table["seq"].to_pylist(), strict=True)
            ops = map(Op, table["op"].to_pylist())
            rows += list(zip(places, ops, keys, results, strict=True))
        rows.sort(key=lambda row: row[0])
        assert len({place for place, *_ in rows}) == len(rows), "a place in the changelog twice"
        return [(op, key, row) for (at, _), op, key, row in rows if epoch in (None, at)]

    def lines(self, epoch: int | None = None) -> list[str]:
        """The changelog as change scripts write it."""
        return [shown(op, self._output(key, row)) for op, key, row in self.changelog(epoch)]

    def changelog_json(self) -> list[dict[str, Any]]:
        """The changelog as a replay prints it."""
        return [
            {"op": op, "row": dict(zip(self.plan.output, self._output(key, row), strict=True))}
            for op, key, row in self.changelog()
        ]

    def results(self) -> dict[Key, Row]:
        """What the changelog folds to, once it is seen that every law holds up to now: each
        retraction repeats the last row, and the accumulators say the same as the changelog."""
        folded: dict[Key, Row] = {}
        # A generator, so that each row is checked against the table as it is before that row.
        fold_changelog(folded, repeats_the_last_row(folded.get, self.changelog()))
        stored = TableReader.open(self.place).results().items()
        assert sorted(map(repr, stored)) == sorted(map(repr, folded.items()))
        assert self.pipeline.newest.of_view(self.view).counters["groups"] == len(folded)
        self._messages_must_be_accounted_for()
        return folded

    def quarantine(self) -> list[dict[str, Any]]:
        table = TableVersion(self.root)
        files = table.of_part(QUARANTINE)
        rows = [row for file in files for row in table.read(file).to_pylist()]
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def late(self) -> list[dict[str, Any]]:
        """A row and a window that it came too late for, in the order of the source."""
        rows = [row for table in self._tables(LATE) for row in table.to_pylist()]
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def files(self, part: str) -> set[str]:
        """Everything that lies in a part's directory, committed or not."""
        return {path.name for path in (self.root / f"part={part}").glob("*.parquet")}

    def _messages_must_be_accounted_for(self) -> None:
        for row in self.epochs():
            if row.kind == "data":
                parts = ("decoded", "skipped", "filtered", "quarantined")
                counted = {part: row.counters[part] for part in parts}
                messages_conserved(f"epoch {row.epoch}", row.counters["read"], **counted)
        quarantined = sum(row.counters.get("quarantined", 0) for row in self.epochs())
        assert len(self.quarantine()) == quarantined

    def _tables(self, part: str) -> list[pa.Table]:
        files = [file.path for file in live_files(open_table(self.root)) if file.part == part]
        return [pq.ParquetFile(self.root / name).read() for name in files]

    def _output(self, key: Key, row: Row) -> Sequence[object]:
        columns = [(named.name, named.type) for named in self.plan.group]
        columns += self.plan.results
        by_name = {
            name: render(value, kind)
            for (name, kind), value in zip(columns, key + row, strict=True)
        }
        return [by_name[name] for name in self.plan.output]


class ClockByHand(JobClock):
    """A job's clock that stands still until a test moves it, if the test wants that."""

    def __init__(
        self, job: EpochsByHand, newest: EpochRow, topics: Mapping[str, TopicIdentity]
    ) -> None:
        self._job = job
        partitions = {topic: identity.partitions for topic, identity in topics.items()}
        super().__init__(job.spec, partitions, newest, read_log_ends=job.ends)

    @property
    def now(self) -> int:
        return super().now if self._job.now_ms is None else self._job.now_ms


@dataclass(frozen=True, slots=True)
class ByHand:
    """Opens jobs by hand over the topic of a test, in its directory."""

    spark: SparkSession
    brokers: str
    topic: str
    home: Path

    def job(
        self,
        document: dict[str, Any],
        *,
        partitions: int = 1,
        at: str = "",
        now_ms: int | None = None,
        registries: Mapping[str, Registry] = MappingProxyType({}),
    ) -> EpochsByHand:
        """A job of this spec, over the test's topic if it names no other; create the topic."""
        source = document.get("source", {})
        if "topics" not in source:
            source = {"topic": self.topic, **source}
            create_topic(self.brokers, source["topic"], partitions)
        spec = spec_of({**document, "source": source}, BUCKETS if "query" in document else None)
        home = self.home / at
        return EpochsByHand(self.spark, self.brokers, home, spec, now_ms, registries=registries)

    def views(
        self, views: dict[str, Any], *, partitions: int = 1, at: str = "", **keys: Any
    ) -> EpochsByHand:
        """A job with these views, which are queries or whole sections; "" is its own query."""
        sections = {name: of_view(view) for name, view in views.items()}
        own = sections.pop("", {})
        others = {"views": sections} if sections else {}
        return self.job({**own, **others, **keys}, partitions=partitions, at=at)

    def reopen(self, spec: JobSpec) -> EpochsByHand:
        """Another job of the same directory, such as a clone."""
        return EpochsByHand(self.spark, self.brokers, self.home, spec)


def of_view(view: str | dict[str, Any]) -> dict[str, Any]:
    """The section of a view, of which the query may be enough."""
    return {"state": {"buckets": BUCKETS}, **({"query": view} if isinstance(view, str) else view)}


def spec_of(document: dict[str, Any], buckets: int | None = BUCKETS) -> JobSpec:
    """The spec of a job by hand; None: its views say how many buckets they have."""
    state = {} if buckets is None else {"buckets": buckets, **document.get("state", {})}
    own = {"state": state} if state else {}
    return load_spec({"name": "by-hand", **document, **own})
