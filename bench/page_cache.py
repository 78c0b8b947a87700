"""Control the kernel's page cache in a measurement: empty it, or limit its memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# The directory of control groups and the file of the memory limit, for both versions.
_CONTROLS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)

ENDED_SECONDS_MAX = 30


def forget(directory: Path) -> None:
    """Drop these files from the page cache; no process may have mapped them."""
    os.sync()  # dirty pages cannot be dropped
    for path in directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


@dataclass(frozen=True, slots=True)
class Room:
    """A control group that limits the memory of processes and of their page cache."""

    group: Path

    def take(self, pid: int) -> None:
        """Limit this process and all processes that it starts from now on."""
        (self.group / "cgroup.procs").write_text(str(pid))


@contextmanager
def room(limit_bytes: int) -> Iterator[Room | None]:
    """Return a memory limit, or None: it needs root and control groups."""
    group = _make_group(limit_bytes)
    try:
        yield None if group is None else Room(group)
    finally:
        if group is not None:
            _remove(group)


def _remove(group: Path) -> None:
    """Remove the group after its last process has ended, which may be later than its parent."""
    give_up = time.monotonic() + ENDED_SECONDS_MAX
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _make_group(limit_bytes: int) -> Path | None:
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
