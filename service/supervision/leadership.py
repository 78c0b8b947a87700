"""Leadership: which one of the services on a data directory changes anything.

    lock is free ──► taken, with a new term in the register ──► leader: a beat every 2 s
    lock is held ──► standby, which looks every half second:
                       lock is free                ──► it starts again, as the leader
                       no beat of the leader, 8 s  ──► a new term, and another lock file: free

The kernel frees the lock of a process that ends. Beats tell of a leader that hangs, or is cut off
from the directory. Every write of the register checks the term in its transaction, as a commit of a
job checks the claim of its table: a leader that returns changes nothing any more, and ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from schemas.limits import LEADER_BEAT_SECONDS, LEADER_SILENT_SECONDS_MAX, LEADER_WATCH_SECONDS
from service.paths import ServicePaths
from service.supervision.register import read_term, replace_term

log = logging.getLogger("service")

DEPOSED = 75  # as of a job that another process owns
_NOTE_BYTES_MAX = 400
_LOCK_ATTEMPTS = 5  # a standby that looks holds the lock for some microseconds
_LOCK_PAUSE_SECONDS = 0.05


class CannotServe(Exception):
    """The service cannot start; the message gives the reason and what to do."""


class AlreadyServed(Exception):
    """Another service leads, so this one stands by."""


class Leadership:
    """The lock of the data directory, and the beats of its owner."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._closed = threading.Event()

    @classmethod
    @contextmanager
    def take(cls, paths: ServicePaths) -> Iterator[Leadership]:
        """Hold the lock: two supervisors would fight over the jobs."""
        paths.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_LOCK_ATTEMPTS):
            descriptor = _try_lock(paths.lock)
            if descriptor is not None:
                break
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            raise AlreadyServed(f"{read_owner(paths.lock) or 'another service'} leads")
        leadership = cls(descriptor)
        try:
            os.ftruncate(descriptor, 0)  # the note of an earlier service
            yield leadership
        finally:
            leadership._closed.set()
            os.close(descriptor)

    def begin(self, address: str, is_deposed: Callable[[], bool]) -> None:
        """Note our address in the lock's file, and beat there; end the process once deposed."""
        note = f"process {os.getpid()} on {socket.gethostname()}, {address}"
        self._write(note, 0)
        threading.Thread(
            target=self._beat, args=(note, is_deposed), name="leadership", daemon=True
        ).start()

    def _beat(self, note: str, is_deposed: Callable[[], bool]) -> None:
        beats = 0
        while not self._closed.wait(LEADER_BEAT_SECONDS):
            beats += 1
            try:
                deposed = is_deposed()
                if not deposed:  # a network file system may have closed the file of a lost lock
                    self._write(note, beats)
            except (OSError, sqlite3.Error) as error:  # no beat: a standby may take over
                log.warning("cannot write to the data directory: %s", error)
                continue
            if deposed:
                log.critical("another service leads since; this one ends, and its jobs go on")
                os._exit(DEPOSED)

    def _write(self, note: str, beats: int) -> None:
        text = f"{note}\nbeat {beats:012}\n".encode()
        os.pwrite(self._descriptor, text, 0)


class LeaderWatch:
    """What a standby or a reader sees of the leader.

    A thread looks, and requests read `address`: a look can take long on a network file system.
    """

    def __init__(self, paths: ServicePaths) -> None:
        self._paths = paths
        self._seen = b""
        self._seen_at = time.monotonic()
        self._term = 0
        self.address: str | None = None

    def learn_address(self) -> bool:
        """Learn the address that the leader listens on; return False while nobody leads.

        The lock file still names a leader that has ended, whose port may be another program's.
        """
        # Shared, so that the looks of several services do not seem a leader to each other.
        descriptor = _try_lock(self._paths.lock, fcntl.LOCK_SH)
        if descriptor is not None:
            os.close(descriptor)
            self.address = None
            return False
        self.address = read_owner(self._paths.lock).rpartition(", ")[2] or None
        return True

    def wait_until_nobody_leads(self, closed: threading.Event, only_reads: bool = False) -> bool:
        """Return True once nobody leads; False if `closed` is set before, or at all if we read."""
        while not closed.wait(LEADER_WATCH_SECONDS):
            try:
                leads = self.learn_address()
                if not (only_reads or (leads and self._is_alive())):
                    return True
            except (OSError, sqlite3.Error) as error:
                log.warning("cannot look for the leader, trying again: %s", error)
        return False

    def _is_alive(self) -> bool:
        note = _read_note(self._paths.lock)  # opened anew: a network file system reads it again
        if note != self._seen:
            self._seen, self._seen_at = note, time.monotonic()
            self._term = read_term(self._paths.register)
            return True
        silent = time.monotonic() - self._seen_at
        return silent <= LEADER_SILENT_SECONDS_MAX or not self._depose(silent)

    def _depose(self, silent: float) -> bool:
        """End the term of a silent leader, unless somebody has done so; free the lock."""
        if not replace_term(self._paths.register, self._term):
            self._seen = b""
            return False
        log.warning("the leader has been silent for %.0f s; its term has ended", silent)
        self._paths.trash.mkdir(mode=0o700, exist_ok=True)
        for index in self._paths.home.glob("jobs/*/index*"):  # its readers may go on writing
            index.rename(self._paths.trash / uuid4().hex)
        free = self._paths.lock.with_name(f"lock-{os.getpid()}")
        os.close(os.open(free, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        free.replace(self._paths.lock)
        return True


def _try_lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """Return a descriptor that holds the lock; None if another process does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _read_note(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_NOTE_BYTES_MAX)


def read_owner(path: Path) -> str:
    """Return the process, host and address of the leader; empty while it starts."""
    return _read_note(path).partition(b"\n")[0].decode(errors="replace").strip()
