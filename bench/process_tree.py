"""Memory of a job: the anonymous memory of a process and all its descendants, sampled from /proc.

RssAnon is what the processes hold themselves; mapped files (the hot state, jars) are page cache
that the kernel may take back, and shared pages would be counted once for every process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAMPLE_SECONDS = 0.5
_KIB = 1024


class MemorySampler:
    """Keeps the highest sum of RssAnon seen over a process tree."""

    def __init__(self, root: int) -> None:
        self.bytes_max = 0
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
def sampled_memory(root: int) -> Iterator[MemorySampler]:
    sampler = MemorySampler(root)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()


def anonymous_bytes(root: int) -> int:
    """RssAnon of `root` and every process below it; a process that ends meanwhile counts 0."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        fields = _status(path)
        if "Pid" in fields:
            pid = int(fields["Pid"])
            parents[pid] = int(fields["PPid"])
            sizes[pid] = int(fields.get("RssAnon", "0 kB").split()[0]) * _KIB
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total, open_ends = 0, [root]
    while open_ends:
        pid = open_ends.pop()
        total += sizes.get(pid, 0)
        open_ends += children.get(pid, [])
    return total


def _status(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
