"""Flink SQL as a peer: the same query over the same topic, in its own local cluster.

    topic ──► canal-json ──► mini-batch, two-phase aggregate ──► upsert-kafka ──► result topic

It runs as its documents set mini-batch up (`OPTIONS`, `JVM`), and once more with what made it
fastest here on top (`TUNED_OPTIONS`, `TUNED_JVM`), which its documents warn of: reused objects.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from bench.flink.jars import flink_classpath
from bench.fold import QUERY
from bench.generator import COLUMNS
from bench.outcome import BenchFailed, Outcome, Progress
from bench.process_tree import sampled_footprint
from jobs.edge.java import java

State = Literal["hashmap", "rocksdb"]
Delivery = Literal["at-least-once", "exactly-once"]
Sink = Literal["upsert-kafka", "canal-json", "blackhole"]

RUN_SECONDS_MAX = 1_800
STOP_SECONDS_MAX = 60
LOG_LINES_SHOWN = 30

JVM = ("-Xms1g", "-Xmx3g")  # ample
TUNED_JVM = ("-XX:+UseParallelGC",)
_OPENED = (
    "java.lang",
    "java.lang.reflect",
    "java.net",
    "java.io",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
)

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


class Event(msgspec.Struct, frozen=True):
    """A line of the Java main."""

    event: str
    at: int
    records: int


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
    columns: dict[str, str] = field(default_factory=lambda: dict(COLUMNS))
    query: str = QUERY
    results: dict[str, str] = field(default_factory=dict)  # columns behind those of QUERY
    sink: Sink = "upsert-kafka"
    events: list[Event] = field(default_factory=list)

    @property
    def engine(self) -> str:
        """As tables of figures call it."""
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
        if self.state == "rocksdb":
            options["execution.checkpointing.incremental"] = "true"
        return options

    def script(self, *, bounded: bool) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        source = {
            "connector": "kafka",
            "topic": self.topic,
            "properties.bootstrap.servers": self.brokers,
            "scan.startup.mode": "earliest-offset",
            "format": "canal-json",
        }
        if bounded:
            source["scan.bounded.mode"] = "latest-offset"
        key = ", PRIMARY KEY (name) NOT ENFORCED" if self.sink == "upsert-kafka" else ""
        results = "".join(f", {name} {kind}" for name, kind in self.results.items())
        return (
            f"CREATE TABLE product ({columns}) WITH ({_with(source)});\n"
            f"CREATE TABLE sink (name STRING, total BIGINT, top INT, n BIGINT{results}{key}) "
            f"WITH ({_with(self._sink_options())});\n"
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
        """Reads to the end of the topic as it is now, then ends."""
        with self._process(bounded=True) as process, sampled_footprint(process.pid) as footprint:
            started_ms = time.time() * 1_000
            self._follow(process)
        begin = self._event("running")
        finished = self._event("finished")
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
        """Reads on and on; `taken` says how far it is."""
        with self._process(bounded=False) as process:
            thread = threading.Thread(target=self._follow, args=(process,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                assert process.stdin is not None
                process.stdin.close()
                thread.join(STOP_SECONDS_MAX)

    def taken(self) -> int:
        """Changes read so far."""
        return self.events[-1].records if self.events else 0

    @contextmanager
    def _process(self, *, bounded: bool) -> Iterator[subprocess.Popen[str]]:
        self.directory.mkdir(parents=True, exist_ok=True)
        script = self.directory / "job.sql"
        script.write_text(self.script(bounded=bounded))
        (self.directory / "options.json").write_text(json.dumps(self.configuration, indent=2))
        command = [str(java()), *JVM, *(TUNED_JVM if self.tuned else ())]
        command += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        command += ["-cp", flink_classpath(self.out), "FlinkBench", str(script)]
        command += [f"{key}={value}" for key, value in self.configuration.items()]
        with (
            (self.directory / "flink.log").open("w") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            # The main ends when its input is closed, so it ends with us however we end.
            watchdog = threading.Timer(RUN_SECONDS_MAX, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                watchdog.cancel()
                process.kill()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        decode = msgspec.json.Decoder(Event).decode
        for line in process.stdout:
            if line.startswith('{"event"'):
                self.events.append(decode(line))
        process.wait(STOP_SECONDS_MAX)

    def _event(self, name: str) -> Event:
        for event in self.events:
            if event.event == name:
                return event
        log = (self.directory / "flink.log").read_text().splitlines()[-LOG_LINES_SHOWN:]
        raise BenchFailed(f"Flink never said {name!r}:\n" + "\n".join(log))


def _with(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
