"""Sample memory and processor time of a process and all its descendants from /proc.

RssAnon is the processes' own memory. Mapped files (the hot state, jars) are page cache, which the
kernel can reclaim, and shared pages would count once for every process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAMPLE_SECONDS = 0.5
_KIB = 1024
_TICKS = os.sysconf("SC_CLK_TCK")


class Footprint:
    """The highest sum of RssAnon over a process tree, and its processor time.

    Not every parent waits for its children, so the time of each process is recorded while it lives.
    """

    def __init__(self, root: int) -> None:
        self.memory_bytes_max = 0
        self.spent: list[tuple[float, float]] = []  # ms since 1970, CPU seconds so far
        self._root = root
        self._ticks: dict[int, int] = {}
        self._ticks_before = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_on, daemon=True)

    @property
    def cpu_seconds(self) -> float:
        return (sum(self._ticks.values()) - self._ticks_before) / _TICKS

    def start(self) -> None:
        self._sample()
        self._ticks_before = sum(self._ticks.values())
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def _sample_on(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        memory = 0
        for pid in descendants(self._root):
            memory += anonymous_bytes(pid)
            self._ticks[pid] = max(self._ticks.get(pid, 0), cpu_ticks(pid))
        self.memory_bytes_max = max(self.memory_bytes_max, memory)
        self.spent.append((time.time() * 1_000, self.cpu_seconds))


@contextmanager
def sampled_footprint(root: int) -> Iterator[Footprint]:
    footprint = Footprint(root)
    footprint.start()
    try:
        yield footprint
    finally:
        footprint.stop()


def descendants(root: int) -> list[int]:
    """Return `root` and all processes below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(path.name)):
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found = [root]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def anonymous_bytes(pid: int) -> int:
    """Return RssAnon of a process; 0 if it has ended."""
    return _field(f"/proc/{pid}/status", "RssAnon") * _KIB


def written_bytes(pid: int) -> int:
    """Return the bytes that a process wrote to disk, in whole pages; 0 if it has ended."""
    return _field(f"/proc/{pid}/io", "write_bytes")


def read_bytes(pid: int) -> int:
    """Return the bytes that a process read from disk; 0 if it has ended."""
    return _field(f"/proc/{pid}/io", "read_bytes")


def command_line(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ")


def cpu_ticks(pid: int) -> int:
    """Return the clock ticks of a process in user and system mode; 0 if it has ended."""
    return sum(map(int, _stat(pid)[11:13]))


def cpu_ticks_with_ended(pid: int) -> int:
    """Return the ticks of a process and of all below it that it has waited for."""
    return sum(map(int, _stat(pid)[11:15]))


def _stat(pid: int) -> list[str]:
    """Return the fields of a process after its name (which may contain blanks)."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _field(path: str, name: str) -> int:
    for line in _read(path).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
