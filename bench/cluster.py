"""Spark's standalone cluster on this machine, each worker in a control group of its own.

    master ◄── worker 1 ── executor of a job ── Python workers
           ◄── worker 2 ── ...                  └── limit(0.25): each a quarter of a core at most

Driver, publisher and broker have no limit. Control groups need Linux and root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from bench.control_group import limit_group, make_group, remove_group, why_no_groups
from bench.outcome import BenchFailed
from bench.process_tree import descendants
from jobs.edge.machine.java import use_found_java

_START_SECONDS_MAX = 120.0
_ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
_HOST = "127.0.0.1"


class Cluster:
    """A master and its workers, while the block runs."""

    def __init__(self, directory: Path, workers: int, slots: int) -> None:
        self._directory = directory
        self._numbers = range(1, workers + 1)
        self._slots = slots
        self._workers: list[subprocess.Popen[bytes]] = []
        self._groups: list[Path] = []
        self._closing = ExitStack()
        self.master = ""

    @staticmethod
    def why_not() -> str | None:
        """Return why this machine can run none; None if it can."""
        return why_no_groups()

    def __enter__(self) -> Self:
        use_found_java()
        try:
            self._start_master()
            for number in self._numbers:
                self._start_worker(number)
            self._wait_for("Registering worker", len(self._numbers))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def limit(self, cores: float) -> None:
        """Let each worker, with all that it has started, use so much of a core at most."""
        for group in self._groups:
            limit_group(group, cores)

    def processes(self) -> set[int]:
        """Return the workers' processes, with their executors and Python workers."""
        return {pid for worker in self._workers for pid in descendants(worker.pid)}

    def close(self) -> None:
        self._closing.close()

    def _start_master(self) -> None:
        self._start("master", [], "master.Master", "--host", _HOST, "--port", "0")
        self._wait_for("Starting Spark master at ", 1)
        line = next(each for each in self._lines() if "Starting Spark master at " in each)
        self.master = line.rpartition(" ")[2]

    def _start_worker(self, number: int) -> None:
        group = make_group(str(number))
        self._groups.append(group)
        self._closing.callback(remove_group, group)
        cores = ["--cores", str(self._slots), "--memory", "1g", "--host", _HOST]
        within = ["sh", "-c", _ENTER, str(group)]
        name = f"worker-{number}"
        self._workers.append(self._start(name, within, "worker.Worker", *cores, self.master))

    def _start(
        self, name: str, within: list[str], kind: str, *arguments: str
    ) -> subprocess.Popen[bytes]:
        own = self._directory / name
        own.mkdir(parents=True)
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "384m",
            "SPARK_WORKER_DIR": str(own / "work"),
            "SPARK_LOCAL_DIRS": str(own / "local"),
            "RETALLY_CACHE": str(own / "cache"),
        }
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*within, script, f"org.apache.spark.deploy.{kind}", *arguments],
                env=environment | {"SPARK_MASTER_WEBUI_PORT": "0", "SPARK_WORKER_WEBUI_PORT": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._closing.callback(_end, process)
        return process

    def _wait_for(self, text: str, times: int) -> None:
        give_up = time.monotonic() + _START_SECONDS_MAX
        while sum(text in line for line in self._lines()) < times:
            if time.monotonic() > give_up:
                raise BenchFailed(f"Spark's cluster did not start, see {self._directory}")
            time.sleep(0.2)

    def _lines(self) -> list[str]:
        log = self._directory / "master.log"
        return log.read_text(errors="replace").splitlines() if log.exists() else []


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)  # a worker would start an executor for a killed one
    for pid in reversed(descendants(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
