"""A failure: why a job's last run ended, left in its directory for whoever decides about the next.

An exit code is known only to the process's parent; this is known to a service that found the job
running too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from schemas.limits import FAILURE_BYTES_MAX


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    code: str  # for programs; never changes
    reason: str
    # Whether another start may go better by itself: a broker comes back, a topic of other rows
    # does not.
    retryable: bool
    pid: int
    failed_at: int  # milliseconds since 1970


def forget_failure(path: Path) -> None:
    """Of the run before. Its room is kept for what this one may have to say on a full disk."""
    fresh = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        path.replace(fresh)
    with _opened(fresh) as file:
        os.posix_fallocate(file.fileno(), 0, FAILURE_BYTES_MAX)


def write_failure(path: Path, failure: Failure) -> None:
    """In one step; the reason may quote the source, so it is for the owner only."""
    fresh = path.with_suffix(".new")
    with _opened(fresh) as file:
        file.write(msgspec.json.encode(failure))
        file.truncate()
    fresh.replace(path)


def read_failure(path: Path) -> Failure | None:
    """The failure of the last run; None where it did not fail, or could not say so."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Failure)
    except (OSError, ValueError):
        return None


def _opened(fresh: Path) -> IO[bytes]:
    """For writing, with what room it has."""
    return os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb")
