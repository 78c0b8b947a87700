"""Read how much memory this process may still use: of the machine, and of its container.

/proc/meminfo ─────────────────────────────► available
/sys/fs/cgroup, version 1 or 2 ─► limit - used (files can be dropped) ─► available, if less
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
# Directory of the controller, limit, use; version 2 and version 1.
_CONTROLLERS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


@dataclass(frozen=True, slots=True)
class Memory:
    available: int  # bytes
    limit: int | None  # of the container, if it has one below the machine's memory


def read_memory(root: Path = _ROOT) -> Memory:
    """Return the available memory, and the limit of the container if that is what bounds it."""
    machine = (root / "proc/meminfo").read_text()
    total, available = _read_kib(machine, "MemTotal"), _read_kib(machine, "MemAvailable")
    limits = [found for found in _read_limits(root) if found[0] < total]
    if not limits:
        return Memory(available, None)
    limit, used = min(limits, key=lambda found: found[0] - found[1])
    return Memory(min(available, max(0, limit - used)), limit)


def _read_limits(root: Path) -> list[tuple[int, int]]:
    """Return limit and used bytes of each group of this process that has a limit."""
    found = []
    for controller, limit_name, used_name, droppable in _CONTROLLERS:
        for group in _list_groups(root, controller):
            directory = root / controller / group
            try:
                limit = int((directory / limit_name).read_text())
                used = int((directory / used_name).read_text())
                counters = dict(
                    line.split() for line in (directory / "memory.stat").read_text().splitlines()
                )
            except (OSError, ValueError):  # no such group, or the text "max"
                continue
            found.append((limit, used - int(counters.get(droppable, 0))))
    return found


def _list_groups(root: Path, controller: str) -> list[str]:
    """Return the group of this process and all above it; a container sees its own as the top."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [""]
    wanted = "memory" if controller.endswith("memory") else ""
    for line in lines:  # 9:memory:/docker/0123, or 0::/system.slice/x
        _, controllers, path = line.split(":", 2)
        if wanted in controllers.split(","):
            parts = path.strip("/").split("/")
            return ["/".join(parts[:count]) for count in range(len(parts) + 1)]
    return [""]


def _read_kib(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else 0
