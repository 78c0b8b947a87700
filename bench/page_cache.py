"""Control the kernel's page cache in a measurement: empty it, or limit its memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.control_group import remove_group

# The directory of control groups and the file of the memory limit, for both versions.
_CONTROLS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


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
            remove_group(group)


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
