"""Memory and processor time of a process and all its descendants, from /proc.

RssAnon is what the processes hold themselves; mapped files (the hot state, jars) are page cache
that the kernel may take back, and shared pages would be counted once for every process.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAMPLE_SECONDS = 0.5
_KIB = 1024
_TICKS = os.sysconf("SC_CLK_TCK")


class Footprint:
    """The highest sum of RssAnon seen over a process tree, and the processor time it took."""

    def __init__(self, root: int) -> None:
        self.bytes_max = 0
        self.cpu_seconds = 0.0
        self._root = root
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.bytes_max = max(self.bytes_max, anonymous_bytes(self._root))


@contextmanager
def sampled_footprint(root: int) -> Iterator[Footprint]:
    """`root` is a child that is waited for inside the block."""
    footprint = Footprint(root)
    footprint.start()
    before = _cpu_seconds_of_ended()
    try:
        yield footprint
    finally:
        footprint.stop()
        footprint.cpu_seconds = _cpu_seconds_of_ended() - before


def anonymous_bytes(root: int) -> int:
    """RssAnon of `root` and every process below it; a process that ends meanwhile counts 0."""
    total = 0
    for pid in descendants(root):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1]) * _KIB
    return total


def own_cpu_seconds() -> float:
    """Processor time of this process, of all below it, and of those below it that have ended."""
    ticks = 0
    for pid in descendants(os.getpid())[1:]:
        # After the command's name, which may hold blanks: utime, stime and those of its ended
        # children are fields 14 to 17 of the line, 11 to 14 after the name.
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return time.process_time() + _cpu_seconds_of_ended() + ticks / _TICKS


def _cpu_seconds_of_ended() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def descendants(root: int) -> list[int]:
    """`root` and every process below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _read(f"{path}/stat").rpartition(")")[2].split()
        if fields:
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found = [root]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
