"""The failure of a job's last run, in a file of its directory.

The service reads it to decide about the next start. An exit code would not do: only the parent of a
process gets it, and a service may have found the job running.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from schemas.limits import FAILURE_BYTES_MAX


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    code: str  # for programs; stable
    reason: str
    retryable: bool  # whether another start may succeed, for example when a broker is back
    pid: int
    failed_at: int  # milliseconds since 1970
    stack: str = ""  # of the exception, the end of a long one


def forget_failure(path: Path) -> None:
    """Delete the previous run's failure, and reserve space, so that a full disk can be reported."""
    fresh = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        path.replace(fresh)
    with _open_fresh(fresh) as file:
        os.posix_fallocate(file.fileno(), 0, FAILURE_BYTES_MAX)


def write_failure(path: Path, failure: Failure) -> None:
    """Write the file atomically. Only the owner may read it: the reason may quote the source."""
    fresh = path.with_suffix(".new")
    with _open_fresh(fresh) as file:
        file.write(msgspec.json.encode(failure))
        file.truncate()
    fresh.replace(path)


def _open_fresh(fresh: Path) -> IO[bytes]:
    """Open a file for writing without truncating it, which keeps its reserved space."""
    return os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb")
