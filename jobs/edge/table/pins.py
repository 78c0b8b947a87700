"""Pins: savepoints that a command holds while it reads their files, and no longer.

    pin ──► lock file beside it, locked ──► savepoint clone-... ──► read ──► both gone
             └ killed: the kernel lets go of the lock, so whoever looks next lets go of the pin

Who looks are the next command that pins, and the sweep of a running job.
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
from jobs.edge.table.savepoints import delete_savepoint
from schemas.limits import OPERATION_SECONDS_MAX

_NAME = re.compile(r"clone-[0-9a-f]{12}")
# Of a pin whose maker cannot be asked: on another host, or of a retally that had no locks for it.
_SECONDS_MAX = 2 * OPERATION_SECONDS_MAX


@contextmanager
def held(home: Path, name: str) -> Iterator[None]:
    """The right to pin under a name of the form clone-<12 hex digits>; the pin goes with it."""
    assert _NAME.fullmatch(name), name
    lock = WriterLock(_lock_of(home, name), name)
    try:
        yield
    finally:
        delete_savepoint(home, name)
        _lock_of(home, name).unlink(missing_ok=True)
        lock.release()


def forget_dead(home: Path) -> list[str]:
    """Let go of the pins whose makers are gone; their names."""
    directory = home / "savepoints"
    names = {path.stem for path in directory.glob("clone-*")} if directory.is_dir() else set()
    dead = [name for name in sorted(names) if _NAME.fullmatch(name) and not _alive(home, name)]
    for name in dead:
        delete_savepoint(home, name)
        _lock_of(home, name).unlink(missing_ok=True)
    return dead


def _alive(home: Path, name: str) -> bool:
    lock = _lock_of(home, name)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _young(home / "savepoints" / f"{name}.json")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _elsewhere(os.pread(descriptor, 4096, 0)) and _young(lock)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def _elsewhere(note: bytes) -> bool:
    """Whether the maker is not to be seen from here; one that has left no note yet, either."""
    with suppress(ValueError, KeyError, TypeError):
        return bool(json.loads(note)["host"] != socket.gethostname())
    return True


def _young(path: Path) -> bool:
    try:
        return path.stat().st_mtime > time.time() - _SECONDS_MAX
    except FileNotFoundError:
        return False


def _lock_of(home: Path, name: str) -> Path:
    return home / "savepoints" / f"{name}.lock"
