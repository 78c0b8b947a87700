"""A job as users run it: a process, its exit code, and its files."""

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
from jobs.edge.table.epoch_files import TableLayout
from jobs.reading.epoch_rows import epoch_rows
from jobs.reading.files import live_files, open_table
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import SqlType
from tests.support.topics import committed_records
from tests.support.warm_driver import warm_driver

CHECKOUT = Path(__file__).resolve().parents[3]
RUN_SECONDS_MAX = 600


@dataclass(slots=True)
class RunningJob:
    """One job's spec and data directory on a real broker."""

    spec: dict[str, Any]
    home: Path
    brokers: str
    options: tuple[str, ...] = ()  # more options of `retally run`
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

    def _write_spec(self) -> str:
        path = self.home / "spec.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(self.spec))
        return str(path)

    def _run_words(self, caught_up: bool) -> list[str]:
        """The arguments of `retally run`, once the spec is written."""
        words = ["run", self._write_spec(), "--data", str(self.data), "--brokers", self.brokers]
        words += self.options
        return [*words, "--until-caught-up"] if caught_up else words

    def start(
        self, failpoints: str = "", *, caught_up: bool = True, under: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start the job as a process; `under` is a command prefix, such as a tracer."""
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
        """Run to the end; return the exit code (negative: the signal that killed it) and output."""
        process = self.start(failpoints)
        output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
        return process.returncode, output

    def must_run(self) -> None:
        """Run to the end in the warm driver, to test the effects of a run."""
        ran = self._ran(*self._run_words(caught_up=True))
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def must_run_by_itself(self) -> None:
        """Run to the end in its own process, as after a crash."""
        code, output = self.run()
        assert code == 0, output

    def must_die_at(self, failpoint: str, action: str) -> None:
        """Run until the failpoint kills it; fail if the failpoint did not fire."""
        code, output = self.run(f"{failpoint}={action}")
        assert code == -signal.SIGKILL, output
        assert self.fired(failpoint), output

    def evolve(self, *words: str, failpoints: str = "", code: int = 0) -> str:
        """Run `retally evolve` with the spec, which ends with `code`; return its output."""
        done = subprocess.run(
            self.command("evolve", self._write_spec(), "--data", str(self.data), *words),
            cwd=CHECKOUT,
            env={**os.environ, "RETALLY_FAILPOINTS": failpoints},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def fired(self, failpoint: str) -> bool:
        return any(self.marks.glob(f"{failpoint}-*"))

    def ask(self, *words: str, code: int | None = 0) -> list[dict[str, Any]]:
        """Run a command about this job, which ends with `code` or in any way; return its lines."""
        done = self._ran(*words, "--data", str(self.data), "--json")
        assert code in (None, done.returncode), done.stdout + done.stderr
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
        return epoch_rows(self.table, live_files(open_table(self.table)))

    def part(self, part: str) -> list[dict[str, Any]]:
        """Return all rows of a part of the table, as in Parquet."""
        import pyarrow.parquet as pq

        names = [file.path for file in live_files(open_table(self.table)) if file.part == part]
        return [row for name in names for row in pq.read_table(self.table / name).to_pylist()]


def create_topic(brokers: str, topic: str, partitions: int) -> None:
    with KafkaAdmin({"bootstrap_servers": brokers.split(",")}) as admin:
        admin.ensure_topic(topic, partitions, {})


def produce(brokers: str, topic: str, messages: Iterable[tuple[int, bytes | None]]) -> None:
    """Write messages, each to its partition, and wait for their acknowledgements."""
    producer = producer_for(brokers)
    for partition, value in messages:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


@lru_cache(maxsize=1)
def producer_for(brokers: str) -> Producer:
    """Return a producer shared by all tests: a new one needs half a second to get its id."""
    # Idempotent: otherwise a batch that is sent again could follow later ones.
    settings = {"bootstrap.servers": brokers, "linger.ms": 5, "enable.idempotence": True}
    return Producer({**settings, "log_level": 0})  # a broker may end before the producer


def consumed(brokers: str, topic: str) -> list[Mapping[str, Any]]:
    """Return the committed records of a changelog-json topic, partition by partition."""
    return [
        {
            "partition": record.partition,
            "key": record.key.decode(),
            "value": json.loads(record.value),
            "headers": dict(record.headers),
        }
        for record in committed_records(brokers, topic)
    ]
