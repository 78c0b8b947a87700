"""Run retally in a measurement: by its command, its result topic and its Delta table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from bench.fold import QUERY, fold_changelog
from bench.generator import COLUMNS
from bench.outcome import BenchFailed, Outcome, Progress
from bench.process_tree import sampled_footprint

RUN_SECONDS_MAX = 1_800
STOP_SECONDS_MAX = 60
LOG_LINES_SHOWN = 30

MINIBATCH = {"size": 5_000, "latency": "1s", "max_rows": 500_000}


@dataclass(frozen=True, slots=True)
class Epoch:
    """One row of the job's `epochs`; `processed` is the number of changes up to its end."""

    epoch: int
    kind: str
    committed_ms: float
    processed: int


def published_ms(brokers: str, topic: str) -> int:
    """Return when the last record of a result topic was written."""
    return fold_changelog(brokers, topic).last_ms


@dataclass(slots=True)
class RetallyJob:
    """One job over one topic; a second run continues where the first one ended."""

    name: str
    brokers: str
    topic: str
    directory: Path
    minibatch: dict[str, Any] = field(default_factory=lambda: dict(MINIBATCH))
    overrides: dict[str, Any] = field(default_factory=dict)  # keys of the spec; None: omit it
    columns: dict[str, str] = field(default_factory=lambda: dict(COLUMNS))
    flags: tuple[str, ...] = ()  # more of the command line
    environment: dict[str, str] = field(default_factory=dict)  # more of it
    # Returns the time of the last record in the result topic; None: ignore the topic.
    published_ms: Callable[[str, str], int] | None = published_ms
    _running: subprocess.Popen[bytes] | None = None

    @property
    def sink_topic(self) -> str:
        return f"{self.topic}-{self.name}"

    @property
    def spec(self) -> dict[str, Any]:
        document = {
            "name": self.name,
            "source": {"topic": self.topic, "format": "canal-json", "start": "earliest"},
            "columns": self.columns,
            "query": QUERY,
            "minibatch": self.minibatch,
            "sink": {"topic": self.sink_topic, "partitions": 4, "delivery": "exactly_once"},
        } | self.overrides
        return {key: value for key, value in document.items() if value is not None}

    @property
    def table(self) -> Path:
        return self.directory / "jobs" / self.name / "epochs"

    @property
    def cache(self) -> Path:
        return self.directory / "cache"

    def catch_up(self) -> Outcome:
        """Run the job until it has published everything up to the current end of the topic."""
        started_ms = time.time() * 1_000
        with (
            self._process("--until-caught-up") as process,
            sampled_footprint(process.pid) as footprint,
        ):
            try:
                code = process.wait(RUN_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise self._make_failure(f"did not finish within {RUN_SECONDS_MAX} s") from None
        if code != 0:
            raise self._make_failure(f"ended with exit code {code}")
        epochs = [epoch for epoch in self.epochs() if epoch.committed_ms >= started_ms]
        if not epochs:
            raise self._make_failure("committed nothing")
        progress = [Progress(epoch.committed_ms, epoch.processed) for epoch in epochs]
        if self.published_ms is not None:
            # A change is done when a consumer can read its result, not when it is committed.
            published_ms = self.published_ms(self.brokers, self.sink_topic)
            if published_ms > progress[-1].at_ms:
                progress.append(Progress(published_ms, progress[-1].changes))
        return Outcome(
            "retally",
            started_ms,
            progress,
            footprint.memory_bytes_max,
            footprint.cpu_seconds,
            footprint.spent,
        )

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the job until the block ends; then stop it, which must succeed."""
        with self._process() as process:
            self._running = process
            yield process
            self._running = None
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise self._make_failure(f"did not stop within {STOP_SECONDS_MAX} s") from None
            if code != 0:
                raise self._make_failure(f"ended with exit code {code} after SIGTERM")

    @contextmanager
    def run_until_killed(self) -> Iterator[None]:
        """Run the job until the block ends; then kill it."""
        with self._process() as process:
            yield
            process.kill()
            process.wait()

    def count_processed(self) -> int:
        """Return the number of changes in committed epochs; raise if the job has ended."""
        if self._running is not None and self._running.poll() is not None:
            raise self._make_failure(
                f"ended unexpectedly with exit code {self._running.returncode}"
            )
        epochs = self.epochs()
        return epochs[-1].processed if epochs else 0

    def epochs(self) -> list[Epoch]:
        """Return the epochs, read from the table."""
        try:
            table = DeltaTable(str(self.table))
        except TableNotFoundError:
            return []
        columns = ["epoch", "kind", "committed_at", "offsets"]
        rows = table.to_pyarrow_table(filters=[("part", "=", "epochs")], columns=columns)
        return [_epoch(row) for row in rows.sort_by("epoch").to_pylist()]

    @contextmanager
    def _process(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        self.directory.mkdir(parents=True, exist_ok=True)
        spec = self.directory / f"{self.name}.json"
        spec.write_text(json.dumps(self.spec, indent=2))
        retally = Path(sys.executable).with_name("retally")
        if not retally.exists():
            raise BenchFailed(f"{retally} does not exist: run make setup")
        command = [str(retally), "run", str(spec), "--data", str(self.directory), "--brokers"]
        with (
            self._log.open("ab") as log,
            subprocess.Popen(
                [*command, self.brokers, *self.flags, *flags],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ) as process,
        ):
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
                    try:
                        process.wait(STOP_SECONDS_MAX)
                    except subprocess.TimeoutExpired:
                        process.kill()

    @property
    def _log(self) -> Path:
        return self.directory / "retally.log"

    def _make_failure(self, what: str) -> BenchFailed:
        tail = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return BenchFailed(f"retally {what}; the end of {self._log}:\n" + "\n".join(tail))


def _epoch(row: dict[str, Any]) -> Epoch:
    offsets: dict[str, dict[str, int]] = json.loads(row["offsets"] or "{}")
    # The topics start at offset 0 and contain only changes, so offsets count the changes.
    processed = sum(sum(partitions.values()) for partitions in offsets.values())
    return Epoch(
        epoch=row["epoch"],
        kind=row["kind"],
        committed_ms=row["committed_at"].timestamp() * 1_000,
        processed=processed,
    )
