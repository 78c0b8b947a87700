"""Remove a control group that limited the processes of a measurement."""

from __future__ import annotations

import time
from pathlib import Path

ENDED_SECONDS_MAX = 30


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
