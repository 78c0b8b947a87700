"""Memory and processor time of a process and all its descendants, sampled from /proc.

RssAnon is what the processes hold themselves; mapped files (the hot state, jars) are page cache
that the kernel may take back, and shared pages would be counted once for every process.
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
    """The highest sum of RssAnon seen over a process tree, and the processor time it took.

    Processes come and go, and not all of them are waited for by their parents, so each one's
    time is noted while it lives.
    """

    def __init__(self, root: int) -> None:
        self.memory_bytes_max = 0
        self.spent: list[tuple[float, float]] = []  # ms since 1970, processor time until then
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
    """`root` and every process below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(path.name)):
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found = [root]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def anonymous_bytes(pid: int) -> int:
    """RssAnon of a process; 0 when it has ended meanwhile."""
    return _field(f"/proc/{pid}/status", "RssAnon") * _KIB


def written_bytes(pid: int) -> int:
    """What a process made the kernel write to a disk, in whole pages; 0 when it has ended."""
    return _field(f"/proc/{pid}/io", "write_bytes")


def read_bytes(pid: int) -> int:
    """What a process had read from a disk; 0 when it has ended."""
    return _field(f"/proc/{pid}/io", "read_bytes")


def command_line(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ")


def cpu_ticks(pid: int) -> int:
    """Clock ticks a process has run, in user and system mode; 0 when it has ended meanwhile."""
    return sum(map(int, _stat(pid)[11:13]))


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name, which may hold blanks: state, parent, ..."""
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
