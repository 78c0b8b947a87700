"""Hold the lock of a bucket's directory across processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.edge.state.errors import BucketLocked

_POLL_SECONDS = 0.005


@contextmanager
def hold_bucket(directory: Path, seconds_max: float) -> Iterator[None]:
    """Hold the lock; wait for at most so long, then raise BucketLocked."""
    lock = os.open(f"{directory}/bucket.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(lock, directory, seconds_max)
        yield
    finally:
        os.close(lock)


def _acquire(lock: int, directory: Path, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise BucketLocked(
                    f"{directory}: locked by another process for more than {seconds_max} s; "
                    f"find it with `fuser {directory}/bucket.lock`"
                ) from None
            time.sleep(_POLL_SECONDS)
