"""What the kernel says: the start of the machine, and the memory of this process."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

# Which start of the machine this is: what was not synced may be lost before the next one.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of a process in bytes, as the kernel counts it for a limit."""

    address_space: int  # RLIMIT_AS
    data: int  # RLIMIT_DATA
    resident: int


def read_process_memory() -> ProcessMemory | None:
    """Return the memory of this process, to limit how much more it may get (see setrlimit).

    Return None if the machine does not run Linux.
    """
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except FileNotFoundError:
        return None
    size = resource.getpagesize()
    return ProcessMemory(int(pages[0]) * size, int(pages[5]) * size, int(pages[1]) * size)
