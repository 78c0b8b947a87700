"""A job as users run it, for tests: a process, its exit code, and what it left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from jobs.core.fold.program import Program
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.table.delta_epochs import epoch_rows, live_files, opened
from jobs.edge.table.epoch_files import TableLayout
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import SqlType
from tests.support.topics import committed_records
from tests.support.warm_driver import warm_driver

CHECKOUT = Path(__file__).resolve().parents[3]
RUN_SECONDS_MAX = 240


@dataclass(slots=True)
class RunningJob:
    """One job's spec and data directory on a real broker."""

    spec: dict[str, Any]
    home: Path
    brokers: str
    warm: bool = True  # False where commands need more of the environment than our own settings

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def table(self) -> Path:
        return self.data / "jobs" / str(self.spec["name"]) / "epochs"

    @property
    def marks(self) -> Path:
        marks = self.home / "marks"
        marks.mkdir(parents=True, exist_ok=True)
        return marks

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "jobs.cli.main", *words]

    def _run_words(self, caught_up: bool) -> list[str]:
        """The arguments of `retally run`, once the spec is written."""
        path = self.home / "spec.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(self.spec))
        words = ["run", str(path), "--data", str(self.data), "--brokers", self.brokers]
        return [*words, "--until-caught-up"] if caught_up else words

    def start(
        self, failpoints: str = "", *, caught_up: bool = True, under: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """The job as a process; `under` another one, such as a tracer, which takes its command."""
        environment = {
            **os.environ,
            "RETALLY_FAILPOINTS": failpoints,
            "RETALLY_FAILPOINT_MARKS": str(self.marks),
        }
        return subprocess.Popen(
            [*under, *self.command(*self._run_words(caught_up))],
            cwd=CHECKOUT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, failpoints: str = "") -> tuple[int, str]:
        """To the end; the exit code (negative: the signal that killed it) and what it said."""
        process = self.start(failpoints)
        said, _ = process.communicate(timeout=RUN_SECONDS_MAX)
        return process.returncode, said

    def must_run(self) -> None:
        """To the end, in the warm driver: for what a run does, not for what its process does."""
        ran = self._ran(*self._run_words(caught_up=True))
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def must_run_by_itself(self) -> None:
        """To the end, in a process of its own, as after a crash."""
        code, said = self.run()
        assert code == 0, said

    def must_die_at(self, failpoint: str, action: str) -> None:
        """Killed by the failpoint, and by nothing else: a fault that did not fire is a failure."""
        code, said = self.run(f"{failpoint}={action}")
        assert code == -signal.SIGKILL, said
        assert self.fired(failpoint), said

    def fired(self, failpoint: str) -> bool:
        return any(self.marks.glob(f"{failpoint}-*"))

    def ask(self, *words: str) -> list[dict[str, Any]]:
        """A command about this job; its JSON lines."""
        done = self._ran(*words, "--data", str(self.data), "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _ran(self, *words: str) -> subprocess.CompletedProcess[str]:
        if self.warm:
            return warm_driver(*words)
        return subprocess.run(
            self.command(*words),
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
        )

    @property
    def plan(self) -> Plan:
        columns = {name: SqlType.parse(kind) for name, kind in self.spec["columns"].items()}
        return parse_query(self.spec["query"], columns)

    @property
    def layout(self) -> TableLayout:
        return TableLayout(Program(self.plan))

    def epochs(self) -> list[EpochRow]:
        return epoch_rows(self.table, opened(self.table))

    def part(self, part: str) -> list[dict[str, Any]]:
        """All rows of a part of the table, as Parquet has them."""
        import pyarrow.parquet as pq

        names = [file.path for file in live_files(opened(self.table)) if file.part == part]
        return [row for name in names for row in pq.read_table(self.table / name).to_pylist()]


def create_topic(brokers: str, topic: str, partitions: int) -> None:
    with KafkaAdmin({"bootstrap_servers": brokers.split(",")}) as admin:
        admin.ensure_topic(topic, partitions, {})


def produce(brokers: str, topic: str, messages: Iterable[tuple[int, bytes | None]]) -> None:
    """Write messages, each to its partition, and wait until they are there."""
    producer = producer_for(brokers)
    for partition, value in messages:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


@lru_cache(maxsize=1)
def producer_for(brokers: str) -> Producer:
    """Kept from test to test: a new one takes half a second until it has its id."""
    # Idempotent, for otherwise a batch that is sent again comes behind the next ones.
    settings = {"bootstrap.servers": brokers, "linger.ms": 5, "enable.idempotence": True}
    return Producer({**settings, "log_level": 0})  # a broker may end before the producer


def consumed(brokers: str, topic: str) -> list[Mapping[str, Any]]:
    """What a read_committed consumer sees of a changelog-json topic, partition by partition."""
    return [
        {
            "partition": record.partition,
            "key": record.key.decode(),
            "value": json.loads(record.value),
            "headers": dict(record.headers),
        }
        for record in committed_records(brokers, topic)
    ]
