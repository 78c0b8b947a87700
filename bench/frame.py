"""The frame of all workloads: a broker, streams with their topics, and the list of figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.flink.peer import FlinkJob
from bench.fold import fold_canal, fold_changelog, fold_upserts
from bench.generator import Shape, ShopTable, Stream, stored_stream
from bench.latency import Latency, probe_latency
from bench.machine import other_work
from bench.outcome import Outcome, check
from bench.product import RetallyJob
from bench.topic import create_topic, fill, producer, send_steadily

MIB = 2**20
OTHERS_SHARE_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    changes: int
    seconds: float  # of each steady stream
    flink: bool
    retally: bool
    calls: tuple[str, ...] = ()  # names of the aggregates to measure; empty: all
    groups: int = 10_000_000  # the largest state


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, with its bound if there is one."""

    workload: str
    engine: str
    what: str
    value: float
    unit: str
    bound: str = ""
    holds: bool | None = None


@dataclass(slots=True)
class Loaded:
    """A topic with a whole stream, and the table after all changes so far."""

    topic: str
    stream: Stream
    table: ShopTable


@dataclass(slots=True)
class Bench:
    """One run of the benchmarks."""

    brokers: str
    out: Path  # kept between runs: streams, Flink's jars
    directory: Path  # of this run
    options: Options
    console: Console = field(default_factory=Console)
    figures: list[Figure] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    others_share_max: float = 0.0  # share of the machine that other work had in a measurement
    _topics: int = 0
    _backfilled: dict[Shape, tuple[Loaded, RetallyJob, Outcome]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.console.print(f"[dim]bench:[/dim] {text}", highlight=False)

    @contextmanager
    def measuring(self, what: str) -> Iterator[None]:
        """Report a measurement, and warn if other work disturbed it."""
        self.say(what)
        with other_work() as others:
            yield
        self.others_share_max = max(self.others_share_max, others.share)
        if others.share > OTHERS_SHARE_MAX:
            self.say(
                f"[red]other work took {others.share:.0%} of the machine; rates are too low, "
                "and times too long[/red]"
            )

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)

    def load(self, shape: Shape) -> Loaded:
        """Create a topic with the whole stream of this shape."""
        stream = stored_stream(shape, self.out / "streams")
        topic = self.new_topic("product", shape.partitions)
        seconds = fill(self.brokers, topic, stream.batches())
        self.say(f"{shape.changes:,} changes in {topic} after {seconds:.1f} s")
        self.shapes.append(shape)
        return Loaded(topic, stream, stream.table())

    def new_topic(self, stem: str, partitions: int = 4) -> str:
        self._topics += 1
        topic = f"{stem}-{self._topics}"
        create_topic(self.brokers, topic, partitions)
        return topic

    def backfill(self, shape: Shape) -> tuple[Loaded, RetallyJob, Outcome]:
        """Return a job that has caught up with a stream; workloads share one run."""
        if shape not in self._backfilled:
            loaded = self.load(shape)
            job = RetallyJob(
                name="backfill",
                brokers=self.brokers,
                topic=loaded.topic,
                directory=self.directory / loaded.topic,
            )
            with self.measuring("retally: backfill"):
                outcome = job.catch_up()
            self.check_retally(job, loaded)
            self._backfilled[shape] = loaded, job, outcome
        return self._backfilled[shape]

    def make_peer(self, loaded: Loaded, **options: Any) -> FlinkJob:
        """Return a job of Flink over the same topic, with a sink topic of its own."""
        sink_topic = self.new_topic("flink")
        directory = self.directory / sink_topic
        return FlinkJob(self.brokers, loaded.topic, sink_topic, self.out, directory, **options)

    def send(self, loaded: Loaded, rate: int, seconds: float) -> None:
        """Send more changes of a stream at a steady rate."""
        client = producer(self.brokers, 5)
        send_steadily(client, loaded.topic, loaded.table, rate=rate, seconds=seconds)

    def probe(self, loaded: Loaded, sink_topic: str, rate: int) -> Latency:
        """Return how long changes at a steady rate take until they are readable."""
        topics = loaded.topic, sink_topic
        seconds = self.options.seconds
        return probe_latency(self.brokers, *topics, loaded.table, rate=rate, seconds=seconds)

    def check_retally(self, job: RetallyJob, loaded: Loaded) -> None:
        check("retally", fold_changelog(self.brokers, job.sink_topic).table, loaded.table.truth())

    def check_flink(self, job: FlinkJob, loaded: Loaded) -> None:
        """Check Flink's results; a black hole has none."""
        if job.sink == "blackhole":
            return
        fold = fold_upserts if job.sink == "upsert-kafka" else fold_canal
        check("Flink", fold(self.brokers, job.sink_topic).table, loaded.table.truth())
