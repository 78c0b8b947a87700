"""The kernel's cache of files as a measurement wants it: cold, or too small for all of a state."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# Where a group of processes is made, and what bounds its memory, in either version.
_CONTROLS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)

ENDED_SECONDS_MAX = 30


def forget(directory: Path) -> None:
    """Has the kernel drop what it keeps of these files, which nobody may have mapped."""
    os.sync()  # pages that are still to be written cannot be dropped
    for path in directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


@dataclass(frozen=True, slots=True)
class Room:
    """So much memory, of processes and of the files they read and write."""

    group: Path

    def take(self, pid: int) -> None:
        """This process, and what it starts from now on, has no more than that."""
        (self.group / "cgroup.procs").write_text(str(pid))


@contextmanager
def room(limit_bytes: int) -> Iterator[Room | None]:
    """None where this machine lets nobody bound memory: that takes root, and control groups."""
    group = _bounded(limit_bytes)
    try:
        yield None if group is None else Room(group)
    finally:
        if group is not None:
            _remove(group)


def _remove(group: Path) -> None:
    """Once the last of what was started in it has ended, which may be after its parent."""
    give_up = time.monotonic() + ENDED_SECONDS_MAX
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _bounded(limit_bytes: int) -> Path | None:
    for root, control in _CONTROLS:
        group = root / f"retally-bench-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            try:
                (group / control).write_text(str(limit_bytes))
            except OSError:
                group.rmdir()
                raise
            return group
    return None
