"""The `retally` command in a process that keeps its Spark session, so that no run starts a JVM.

    test ──arguments──► serve(): jobs.cli.main in the main thread ──exit code, output──► test

Use it to test the effects of a run. Tests of the process itself (kills, signals, exit, start) start
`retally` as users do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command.waiting import wait_readable

RUN_SECONDS_MAX = 600
_CHECKOUT = Path(__file__).resolve().parents[2]
_OURS = "RETALLY_"  # settings of ours in the environment, which a test may change between two runs


class WarmDriver:
    """Starts its process with the first run; `close` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command as `retally ARGUMENTS` would, to its end."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        environment = {name: text for name, text in os.environ.items() if name.startswith(_OURS)}
        print(json.dumps([arguments, environment]), file=process.stdin, flush=True)
        if not wait_readable(process.stdout, RUN_SECONDS_MAX):
            process.kill()
        line = process.stdout.readline()
        if not line:
            self._process = None
            raise AssertionError(f"the warm driver ended with {process.wait()} in {arguments}")
        code, output, errors = json.loads(line)
        return subprocess.CompletedProcess(arguments, code, output, errors)

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm_driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=_CHECKOUT,
            )
        return self._process


warm_driver = WarmDriver()  # one for all tests of a worker; tests/conftest.py closes it


def serve() -> None:
    """Run the commands from standard input, one JSON line each, until it ends."""
    from pyspark.sql import SparkSession

    from jobs.cli.main import main
    from jobs.edge.spark.session import session

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a JVM writes its warnings to standard output
    # With Delta, which a session takes at its start only, for jobs that have a mirror.
    spark = session("warm", delta=True)
    stop = spark.stop
    SparkSession.stop = lambda self: None  # type: ignore[method-assign]
    for line in sys.stdin:
        arguments, environment = json.loads(line)
        for name in [name for name in os.environ if name.startswith(_OURS)]:
            del os.environ[name]
        os.environ.update(environment)
        with _output() as (output, errors):
            code = main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            answer = [code, output.read_text(), errors.read_text()]
        print(json.dumps(answer), file=answers, flush=True)
    stop()


@contextmanager
def _output() -> Iterator[tuple[Path, Path]]:
    """Redirect both output streams to files, for this process and its children."""
    with tempfile.TemporaryDirectory() as directory:
        files = Path(directory, "output"), Path(directory, "errors")
        kept = os.dup(1), os.dup(2)
        try:
            for number, file in enumerate(files, start=1):
                opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(opened, number)
                os.close(opened)
            yield files
        finally:
            for number, before in enumerate(kept, start=1):
                os.dup2(before, number)
                os.close(before)


if __name__ == "__main__":
    serve()
