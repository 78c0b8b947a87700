"""The hot states that this process keeps open, of one kind: those of the buckets used last."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from jobs.edge.machine.process_limits import count_open_states

State = TypeVar("State")


class OpenStates(Generic[State]):
    """States by process and directory; one that a parent opened before a fork stays with it."""

    def __init__(self, close: Callable[[State], None] = lambda _: None) -> None:
        self.held: dict[tuple[int, Path], State] = {}
        self._close = close

    def open(
        self, directory: Path, fits: Callable[[State], bool], make: Callable[[], State]
    ) -> State:
        """Return the state of a bucket: the open one if it fits, or else a new one."""
        name = (os.getpid(), directory.absolute())
        found = self.held.pop(name, None)
        if found is not None and not fits(found):
            self._close(found)
            found = None
        self.held[name] = found = found or make()
        mine = [other for other in self.held if other[0] == name[0]]
        for other in mine[: -count_open_states()]:
            self._close(self.held.pop(other))
        return found
