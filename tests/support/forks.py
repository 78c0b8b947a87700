"""Functions in processes of their own, which a test may kill and wait for.

They are forked off a server that has imported what they need, so that one costs milliseconds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SECONDS_MAX = 60
Say = Callable[[object], None]

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    ["pytest", "hypothesis", "jobs.edge.state.hot_state", "jobs.edge.state.columnar_state"]
)


class Fork:
    """A process that calls a function of a module with a way to say something to the test."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self._said, theirs = _FORKED.Pipe(duplex=False)
        self._process = _FORKED.Process(target=_call, args=(theirs, function, *arguments))
        self._process.start()
        theirs.close()

    def read(self) -> Any:
        """Wait for the next that the process says."""
        return self._said.recv()

    def kill(self) -> int:
        self._process.kill()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        self._process.join(SECONDS_MAX)
        code = self._process.exitcode
        assert code is not None, f"it has not ended within {SECONDS_MAX} s"
        return code


def _call(said: Connection, function: Callable[..., None], *arguments: Any) -> None:
    function(said.send, *arguments)
