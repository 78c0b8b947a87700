"""The processor time of processes and of all below them, from /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def read_processor_seconds(*roots: int) -> float:
    """Return what these processes and all below them have spent, also children that ended."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # A name may contain blanks; the parent is the second field after it.
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            spent[pid] = sum(map(int, fields[11:15]))
    found = list(roots)
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return sum(spent.get(pid, 0) for pid in set(found)) / _TICKS
