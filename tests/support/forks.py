"""Functions in processes of their own, which a test may kill and wait for.

They are forked off a server that has imported what they need, so that one costs milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

SECONDS_MAX = 60
Say = Callable[[object], None]

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    [
        "pytest",
        "hypothesis",
        "jobs.edge.state.hot_state",
        "jobs.edge.state.columnar_state",
        "tests.support.tables.folded_table",
    ]
)


class Fork:
    """A process that calls a function of a module with a way to say something to the test."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self._said, theirs = _FORKED.Pipe(duplex=False)
        self._process = _FORKED.Process(
            target=_call, args=(theirs, dict(os.environ), function, *arguments)
        )
        self._process.start()
        theirs.close()

    def read(self) -> Any:
        """Wait for the next that the process says."""
        return self._said.recv()

    def read_all(self) -> list[Any]:
        """Wait for the end of the process, and return what it has said since the last read."""
        found = []
        with suppress(EOFError):
            while True:
                found.append(self.read())
        return found

    def kill(self) -> int:
        self._process.kill()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        self._process.join(SECONDS_MAX)
        code = self._process.exitcode
        assert code is not None, f"it has not ended within {SECONDS_MAX} s"
        return code


def _call(
    said: Connection, environment: dict[str, str], function: Callable[..., None], *arguments: Any
) -> None:
    os.environ.update(environment)  # that of the server is as old as the server
    function(said.send, *arguments)
