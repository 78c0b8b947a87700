"""The process of a reader: sends events to the service and receives requests for indexes.

    service ──fork, while it is small──► reader spawner ──fork, for each job──► reader
       │                                                                           │
       └◄─── IndexOpened, EpochRead, EpochIndexed, ... ──── a socket ──────────────┘
        └─── columns to index ──────────►

The reader spawner only forks readers and processes for attempts. It has all modules imported and no
threads, so a fork takes some milliseconds and shares its memory. All of them end with the service.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import NoReturn

import msgspec

from schemas.spec.job import JobSpec
from service.attempts import run_attempt
from service.live.reader import EpochRead, Reader, ReaderEvent
from service.live.recent_changes import Change
from service.paths import JobPaths

log = logging.getLogger(__name__)

_STOP = ""  # sent instead of a column
_READER, _ATTEMPT = b"r", b"a"  # requests to the spawner
_NICENESS = 5  # the service's responses come first
_PIECE_CHANGES = 1_000  # decoded at once, so that a large epoch delays no request


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ReaderEvent).decode
_decode_changes = msgspec.msgpack.Decoder(list[Change]).decode


class ReaderEnded(Exception):
    """The process of the reader has ended."""


class ReaderSpawner:
    """A process that forks readers and attempts for the service."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._socket = connection
        self._pid = pid

    @classmethod
    def start(cls) -> ReaderSpawner:
        """Fork the process; call it before threads start and before locks are taken."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _run_forked(partial(_run_spawner, theirs))
        theirs.close()
        return cls(ours, pid)

    def spawn_reader(self, paths: JobPaths, spec: JobSpec) -> ReaderProcess:
        """Fork the reader of a job."""
        reader = ReaderProcess(self._spawn(_READER))
        reader.begin(paths, spec)
        return reader

    def spawn_attempt(self) -> Connection:
        """Fork a process for one attempt; return the connection to it."""
        return self._spawn(_ATTEMPT)

    def _spawn(self, kind: bytes) -> Connection:
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._socket, [kind], [theirs.fileno()])
        except OSError:
            # Jobs keep running without a service, and the next service finds them.
            log.critical("the reader spawner has died; the service ends")
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            theirs.close()
        return Connection(ours.detach())

    def close(self) -> None:
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class ReaderProcess:
    """The service's end of a reader. Call `receive` in one thread; the rest is thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid: int | None = None

    def begin(self, paths: JobPaths, spec: JobSpec) -> None:
        """Send the job to read."""
        with suppress(OSError):  # the reader has ended; `receive` reports it
            self._connection.send((paths, spec))

    def receive(self) -> ReaderEvent:
        """Wait for the next event; raise ReaderEnded if the process has ended."""
        try:
            if self._pid is None:
                self._pid = self._connection.recv()
            received = self._connection.recv_bytes
            event: ReaderEvent = _decode(received())
            if isinstance(event, EpochRead):
                for _ in range(event.pieces):
                    event.changes.changes.extend(_decode_changes(received()))
        except (EOFError, OSError):
            self._pid = None
            raise ReaderEnded from None
        return event

    def request_index(self, column: str) -> None:
        """Ask the reader for an index on a column."""
        with suppress(OSError):  # it has ended; the next reader gets the request
            self._connection.send(column)

    def stop(self) -> None:
        """Ask the reader to end; `receive` then raises ReaderEnded."""
        self.request_index(_STOP)

    def kill(self) -> None:
        """Kill a reader that does not respond, for example while it fills an index."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


class _ServiceConnection:
    """The reader's end; a ReaderClient."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requested: list[str] = []
        self._stopped = False

    def send(self, event: ReaderEvent) -> None:
        pieces: list[list[Change]] = []
        if isinstance(event, EpochRead):
            pieces = list(_split(event.changes.changes))
            event = EpochRead(replace(event.changes, changes=[]), event.expired, len(pieces))
        for part in (event, *pieces):
            self._connection.send_bytes(_encode(part))

    def wait(self, seconds: float) -> bool:
        try:
            while not self._stopped and self._connection.poll(seconds):
                request = self._connection.recv()
                if request == _STOP:
                    self._stopped = True
                else:
                    self._requested.append(request)
                seconds = 0
        except (EOFError, OSError):
            self._stopped = True
        return self._stopped

    def take_requested_columns(self) -> Sequence[str]:
        requested, self._requested = self._requested, []
        return requested


def _split(changes: list[Change]) -> Iterator[list[Change]]:
    for start in range(0, len(changes), _PIECE_CHANGES):
        yield changes[start : start + _PIECE_CHANGES]


# --- the processes ------------------------------------------------------------------------------


def _run_forked(run: Callable[[], None]) -> NoReturn:
    """Run a forked process and exit without the exit handlers of its parent."""
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        logging.getLogger(__name__).exception("the process ends")
    finally:
        os._exit(code)


def _run_spawner(requests: socket.socket) -> None:
    # Ctrl-C in a terminal and a shell's `kill %1` go to the whole group, and are for the service,
    # with which the spawner ends. So its children inherit this: a reader ends by the service's
    # request, without it, or by SIGKILL. The kernel reaps them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, requests.fileno())
    os.closerange(requests.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    gc.freeze()
    while True:
        kind, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not kind:
            return
        if os.fork() == 0:
            requests.close()
            run = _run_reader if kind == _READER else run_attempt
            _run_forked(partial(run, Connection(descriptors[0])))
        os.close(descriptors[0])


def _run_reader(connection: Connection) -> None:
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        paths, spec = connection.recv()
        connection.send(os.getpid())
        os.nice(_NICENESS)
        Reader(paths, spec, _ServiceConnection(connection)).run()
