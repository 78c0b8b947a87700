"""Control groups that limit the processes of a measurement to a share of a core."""

from __future__ import annotations

import os
import time
from pathlib import Path

ENDED_SECONDS_MAX = 30
_GROUPS_V1 = Path("/sys/fs/cgroup/cpu")
_GROUPS_V2 = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


def why_no_groups() -> str | None:
    """Return why this machine can limit no processes; None if it can."""
    root = _groups_root()
    able = os.geteuid() == 0 and os.access(root, os.W_OK) and _limit_file(root).exists()
    return None if able else f"control groups for processors need root, and {_limit_file(root)}"


def make_group(name: str) -> Path:
    """Make a group of this run."""
    group = _groups_root() / f"retally-bench-{os.getpid()}-{name}"
    group.mkdir()
    return group


def limit_group(group: Path, cores: float) -> None:
    """Let all processes of a group together use so much of a core at most."""
    quota = round(cores * _PERIOD_US)
    text = str(quota) if _is_v1() else f"{quota} {_PERIOD_US}"
    _limit_file(group).write_text(text)


def remove_group(group: Path) -> None:
    """Remove the group after its last process has ended, which may be later than its parent."""
    give_up = time.monotonic() + ENDED_SECONDS_MAX
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _is_v1() -> bool:
    return _GROUPS_V1.is_dir()


def _groups_root() -> Path:
    return _GROUPS_V1 if _is_v1() else _GROUPS_V2


def _limit_file(group: Path) -> Path:
    return group / ("cpu.cfs_quota_us" if _is_v1() else "cpu.max")
