"""Flink SQL as a peer: the same query over the same topic, in its own local cluster.

    topic ──► canal-json ──► mini-batch, two-phase aggregate ──► upsert-kafka ──► result topic

It runs with the mini-batch settings of its documents (`OPTIONS`, `JVM`), and again with the
settings that were fastest here (`TUNED_OPTIONS`, `TUNED_JVM`). Its documents warn of one of these,
the reuse of objects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from bench.flink.process import STOP_SECONDS_MAX, Event, FlinkProcess
from bench.fold import QUERY
from bench.generator import COLUMNS
from bench.outcome import Outcome, Progress
from bench.process_tree import sampled_footprint

State = Literal["hashmap", "rocksdb"]
Delivery = Literal["at-least-once", "exactly-once"]
Sink = Literal["upsert-kafka", "canal-json", "blackhole"]

JVM = ("-Xms1g", "-Xmx3g")  # ample
TUNED_JVM = ("-XX:+UseParallelGC",)

OPTIONS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "512m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "execution.checkpointing.storage": "filesystem",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.size": "5000",
}
TUNED_OPTIONS = {"pipeline.object-reuse": "true"}


@dataclass(slots=True)
class FlinkJob:
    brokers: str
    topic: str
    sink_topic: str
    out: Path  # for jars, shared by all runs
    directory: Path  # of this run
    state: State = "hashmap"
    delivery: Delivery = "at-least-once"
    latency: str = "5 s"
    checkpoints: str = "10 s"
    tuned: bool = False
    jvm: tuple[str, ...] = JVM
    normalized: bool = False  # the source may repeat changes, as canal does after a restart
    columns: dict[str, str] = field(default_factory=lambda: dict(COLUMNS))
    query: str = QUERY
    results: dict[str, str] = field(default_factory=dict)  # columns after those of QUERY
    sink: Sink = "upsert-kafka"
    events: list[Event] = field(default_factory=list)

    @property
    def engine(self) -> str:
        """The name of the engine in tables of figures."""
        tuned = ", tuned" if self.tuned else ""
        sink = "" if self.sink == "upsert-kafka" else f", {self.sink}"
        return f"Flink {self.state}{tuned}{sink}"

    @property
    def configuration(self) -> dict[str, str]:
        options = OPTIONS | {
            "state.backend.type": self.state,
            "execution.checkpointing.interval": self.checkpoints,
            "execution.checkpointing.dir": (self.directory / "checkpoints").as_uri(),
            "table.exec.mini-batch.allow-latency": self.latency,
        }
        if self.tuned:
            options |= TUNED_OPTIONS
        if self.normalized:
            options["table.exec.source.cdc-events-duplicate"] = "true"
        if self.state == "rocksdb":
            options["execution.checkpointing.incremental"] = "true"
        return options

    def script(self, *, bounded: bool) -> str:
        key = ", PRIMARY KEY (name) NOT ENFORCED" if self.sink == "upsert-kafka" else ""
        results = "".join(f", {name} {kind}" for name, kind in self.results.items())
        return (
            source_table(
                self.columns,
                self.brokers,
                self.topic,
                bounded=bounded,
                key="id" if self.normalized else None,
            )
            + f"CREATE TABLE sink (name STRING, total BIGINT, top INT, n BIGINT{results}{key}) "
            f"WITH ({with_options(self._sink_options())});\n"
            f"INSERT INTO sink {self.query};\n"
        )

    def _sink_options(self) -> dict[str, str]:
        if self.sink == "blackhole":
            return {"connector": "blackhole"}
        options = {
            "topic": self.sink_topic,
            "properties.bootstrap.servers": self.brokers,
            "sink.delivery-guarantee": self.delivery,
        }
        if self.sink == "upsert-kafka":
            options |= {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
        else:
            options |= {"connector": "kafka", "format": "canal-json"}
        if self.delivery == "exactly-once":
            options["sink.transactional-id-prefix"] = self.sink_topic
            options["properties.transaction.timeout.ms"] = "600000"
        return options

    def catch_up(self) -> Outcome:
        """Run the job until it has read up to the current end of the topic."""
        run = self._run(bounded=True)
        with run.start() as process, sampled_footprint(process.pid) as footprint:
            started_ms = time.time() * 1_000
            run.follow(process)
        begin = run.event("running")
        finished = run.event("finished")
        progress = [
            Progress(event.at, event.records)
            for event in self.events
            if event.event == "sample" and begin.at <= event.at < finished.at
        ]
        progress.append(Progress(finished.at, finished.records))
        return Outcome(
            self.engine, started_ms, progress, footprint.memory_bytes_max, footprint.cpu_seconds
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the job until the block ends."""
        run = self._run(bounded=False)
        with run.start() as process:
            thread = threading.Thread(target=run.follow, args=(process,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                assert process.stdin is not None
                process.stdin.close()
                thread.join(STOP_SECONDS_MAX)

    def count_processed(self) -> int:
        """Return the number of changes read so far."""
        return self.events[-1].records if self.events else 0

    def _run(self, *, bounded: bool) -> FlinkProcess:
        return FlinkProcess(
            self.script(bounded=bounded),
            self.configuration,
            (*self.jvm, *(TUNED_JVM if self.tuned else ())),
            self.out,
            self.directory,
            self.events,
        )


def source_table(
    columns: Mapping[str, str],
    brokers: str,
    topic: str,
    *,
    name: str = "product",
    bounded: bool,
    key: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a table over a canal-json topic; `bounded`: up to its current end."""
    declared = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    if key is not None:
        declared += f", PRIMARY KEY ({key}) NOT ENFORCED"
    source = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": brokers,
        "scan.startup.mode": "earliest-offset",
        "format": "canal-json",
    }
    if bounded:
        source["scan.bounded.mode"] = "latest-offset"
    return f"CREATE TABLE {name} ({declared}) WITH ({with_options({**source, **options})});\n"


def with_options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
