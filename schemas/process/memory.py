"""Read how much memory this process has, to limit how much more it may get (see setrlimit)."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of a process in bytes, as the kernel counts it for a limit."""

    address_space: int  # RLIMIT_AS
    data: int  # RLIMIT_DATA


def read_process_memory() -> ProcessMemory | None:
    """Return the memory of this process; None if the machine does not run Linux."""
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except FileNotFoundError:
        return None
    size = resource.getpagesize()
    return ProcessMemory(int(pages[0]) * size, int(pages[5]) * size)
