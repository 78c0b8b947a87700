"""Pin the files of an epoch while a command reads them, by a temporary savepoint.

    pin ──► lock file, locked ──► savepoint clone-... ──► read ──► delete both
             └ killed: the kernel releases the lock, so the next check deletes the pin

The next command that pins, and the sweep of a running job, check for dead pins.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jobs.edge.process.fence import WriterLock
from jobs.reading.savepoints import delete_savepoint
from schemas.limits import OPERATION_SECONDS_MAX

_NAME = re.compile(r"clone-[0-9a-f]{12}")
# The lifetime of a pin without a lock to check: from another host, or from a retally without locks.
_SECONDS_MAX = 2 * OPERATION_SECONDS_MAX


@contextmanager
def hold_pin(home: Path, name: str) -> Iterator[None]:
    """Hold the lock of the pin `name` (clone-<12 hex digits>); delete the pin at the end.

    The caller writes the savepoint itself.
    """
    assert _NAME.fullmatch(name), name
    lock = WriterLock(_lock_path(home, name), name)
    try:
        yield
    finally:
        delete_savepoint(home, name)
        _lock_path(home, name).unlink(missing_ok=True)
        lock.release()


def delete_dead_pins(home: Path) -> list[str]:
    """Delete the pins whose commands have ended, and return their names."""
    directory = home / "savepoints"
    names = {path.stem for path in directory.glob("clone-*")} if directory.is_dir() else set()
    dead = [name for name in sorted(names) if _NAME.fullmatch(name) and not _is_alive(home, name)]
    for name in dead:
        delete_savepoint(home, name)
        _lock_path(home, name).unlink(missing_ok=True)
    return dead


def _is_alive(home: Path, name: str) -> bool:
    lock = _lock_path(home, name)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _is_young(home / "savepoints" / f"{name}.json")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _on_another_host(os.pread(descriptor, 4096, 0)) and _is_young(lock)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def _on_another_host(note: bytes) -> bool:
    """Return whether the lock's owner may run on another host; True if the note is unreadable."""
    with suppress(ValueError, KeyError, TypeError):
        return bool(json.loads(note)["host"] != socket.gethostname())
    return True


def _is_young(path: Path) -> bool:
    try:
        return path.stat().st_mtime > time.time() - _SECONDS_MAX
    except FileNotFoundError:
        return False


def _lock_path(home: Path, name: str) -> Path:
    return home / "savepoints" / f"{name}.lock"
