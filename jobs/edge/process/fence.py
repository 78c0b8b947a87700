"""Allow one writer per job on this host, by a lock that the kernel releases if it dies.

The lock is a `flock`, because `fcntl` locks vanish when any descriptor of the file is closed.
Across hosts the Delta commit is the fence; this lock only refuses earlier, with a clearer message.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Self


class OwnedElsewhere(Exception):
    """Another writer owns the job."""

    code = "owned-elsewhere"


class WriterLock:
    """The lock of a job, held from construction until `release`, or the end of `with`."""

    def __init__(self, path: Path, job: str) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _name_holder(os.pread(self._file, 4096, 0))
            os.close(self._file)
            raise OwnedElsewhere(
                f"job {job!r} is owned by {holder}; stop it first, or wait until it ends"
            ) from None
        note = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()
        try:
            os.pwrite(self._file, note, 0)  # over the old note, so a full disk has room for it
            os.ftruncate(self._file, len(note))
        except OSError as error:
            os.close(self._file)
            raise OSError(error.errno, error.strerror, str(path)) from None

    def release(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _name_holder(note: bytes) -> str:
    try:
        known = json.loads(note)
        return f"process {known['pid']} on {known['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
