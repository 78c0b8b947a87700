"""Logs: what stays of a demo that failed, so that its reason can be found."""

from __future__ import annotations

import shutil
from pathlib import Path

# Log files of the processes of a demo, below its data directory.
_LOGS = ("service.log", "broker/broker.log", "broker/java.out", "service/jobs/*/log*")


def find_logs(data: Path) -> list[Path]:
    """Return the log files in the data directory of a demo."""
    found = [path for pattern in _LOGS for path in sorted(data.glob(pattern))]
    return [path for path in found if path.is_file() and path.stat().st_size > 0]


def keep_logs(data: Path) -> Path:
    """Delete the data directory of a demo, all but its logs; return the directory with these."""
    kept = data / "logs"
    kept.mkdir(exist_ok=True)
    for path in find_logs(data):
        name = path.name if path.name.endswith((".log", ".out")) else f"{path.parent.name}.log"
        path.replace(kept / name)
    for path in data.iterdir():
        if path != kept:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
    return kept
