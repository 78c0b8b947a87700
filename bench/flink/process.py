"""Run a SQL script in a Flink process with its own local cluster, and read its output.

script, options ──► java FlinkBench ──► {"event": ..}   its progress
          ends when its ▲ input ends └► any other line  the output of a print sink
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.flink.jars import flink_classpath
from bench.outcome import BenchFailed
from jobs.edge.machine.java import java

RUN_SECONDS_MAX = 1_800
STOP_SECONDS_MAX = 60
LOG_LINES_SHOWN = 30

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
# The encoding of standard output in Java 17, and in later versions.
_UTF8 = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8")


class Event(msgspec.Struct, frozen=True):
    """A line of the Java main."""

    event: str
    at: int
    records: int


@dataclass(slots=True)
class FlinkProcess:
    """One run of one script."""

    script: str
    configuration: dict[str, str]
    jvm: tuple[str, ...]
    out: Path  # for jars, shared by all runs
    directory: Path  # of this run
    events: list[Event] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    @contextmanager
    def start(self) -> Iterator[subprocess.Popen[str]]:
        """Run the process until the block ends; the caller has to `follow` it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        script = self.directory / "job.sql"
        script.write_text(self.script, encoding="utf-8")
        (self.directory / "options.json").write_text(json.dumps(self.configuration, indent=2))
        command = [str(java()), *self.jvm, *_UTF8]
        command += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        command += ["-cp", flink_classpath(self.out), "FlinkBench", str(script)]
        command += [f"{key}={value}" for key, value in self.configuration.items()]
        with (
            self._log.open("w") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, encoding="utf-8"
            ) as process,
        ):
            # The main ends when its input is closed, so it never outlives this process.
            watchdog = threading.Timer(RUN_SECONDS_MAX, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                watchdog.cancel()
                process.kill()

    def follow(self, process: subprocess.Popen[str]) -> None:
        """Read the output until it ends."""
        assert process.stdout is not None
        decode = msgspec.json.Decoder(Event).decode
        for line in process.stdout:
            if line.startswith('{"event"'):
                self.events.append(decode(line))
            else:
                self.printed.append(line.removesuffix("\n"))
        process.wait(STOP_SECONDS_MAX)

    def event(self, name: str) -> Event:
        for event in self.events:
            if event.event == name:
                return event
        log = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        raise BenchFailed(f"Flink did not report {name!r}; the end of its log:\n" + "\n".join(log))

    @property
    def _log(self) -> Path:
        return self.directory / "flink.log"
