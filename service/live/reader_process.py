"""The process of a reader: what it sees crosses to the service as bytes, what is wanted back.

    service ──fork, while it is small──► nursery ──fork, for each job──► reader
       │                                                                    │
       └◄─── Begun, Told, Stood, ... ──────── a socket ─────────────────────┘
        └─── columns to be indexed ──────────►

A nursery does nothing but begin readers, and processes for attempts: it has everything imported and
no threads, so that one more takes some milliseconds and shares its memory. All end with their
service.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import NoReturn

import msgspec

from schemas.spec.job import JobSpec
from service.attempts import attempt
from service.live.reader import Begun, Looked, Outgrown, Reader, Seen, Stood, Told
from service.live.recent_changes import Change, EpochChanges
from service.places import JobPlaces

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
_ENOUGH = ""  # said instead of a column
_READER, _ATTEMPT = b"r", b"a"  # what a nursery is asked for
_NICENESS = 5  # beside the service, whose answers come first
_PIECE_CHANGES = 1_000  # decoded at once: a request should not wait for all of a large epoch


class _Epoch(msgspec.Struct, frozen=True, tag=True):
    """What is told of an epoch, without its changes, which follow in pieces."""

    epoch: int
    committed_at: int
    watermark: int | None
    status: str
    columns: dict[str, str] | None
    gone: list[bytes]
    pieces: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Epoch | Begun | Stood | Looked | Outgrown).decode
_decode_changes = msgspec.msgpack.Decoder(list[Change]).decode


class ReaderEnded(Exception):
    """The process of the reader is no more."""


class Nursery:
    """Made before there are threads, and before anything is open that others must not hold."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            _forked(partial(_nurse, theirs))
        theirs.close()

    def reader(self, places: JobPlaces, spec: JobSpec) -> ReaderProcess:
        return ReaderProcess(self._begin(_READER), places, spec)

    def attempt(self) -> Connection:
        """Begin a process for one attempt; return the connection to it."""
        return self._begin(_ATTEMPT)

    def _begin(self, kind: bytes) -> Connection:
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._socket, [kind], [theirs.fileno()])
        except OSError:
            # Jobs go on without a service, and the next one finds them.
            log.critical("the process that begins readers of tables is gone; the service ends")
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            theirs.close()
        return Connection(ours.detach())

    def close(self) -> None:
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class ReaderProcess:
    """The service's end. `next` belongs to one thread; the others may be called from any."""

    def __init__(self, connection: Connection, places: JobPlaces, spec: JobSpec) -> None:
        self._connection = connection
        self._pid: int | None = None
        with suppress(OSError):
            connection.send((places, spec))

    def next(self) -> Seen:
        """What the reader saw next."""
        try:
            if self._pid is None:
                self._pid = self._connection.recv()
            received = self._connection.recv_bytes
            seen: _Epoch | Begun | Stood | Looked | Outgrown = _decode(received())
            if not isinstance(seen, _Epoch):
                return seen
            changes: list[Change] = []
            for _ in range(seen.pieces):
                changes += _decode_changes(received())
        except (EOFError, OSError):
            self._pid = None
            raise ReaderEnded from None
        told = EpochChanges(
            seen.epoch, seen.committed_at, seen.watermark, seen.status, changes, seen.columns
        )
        return Told(told, seen.gone)

    def want(self, column: str) -> None:
        """An index of a column."""
        with suppress(OSError):  # it is no more: the next one is asked again
            self._connection.send(column)

    def end(self) -> None:
        """Have it end; `next` says when it has."""
        self.want(_ENOUGH)

    def kill(self) -> None:
        """Where it does not hear: it is filling an index, perhaps."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


class _Service:
    """The reader's end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wanted: list[str] = []
        self._over = False

    def tell(self, seen: Seen) -> None:
        if not isinstance(seen, Told):
            self._connection.send_bytes(_encode(seen))
            return
        told = seen.changes
        pieces = list(_pieces(told.changes))
        epoch = _Epoch(
            told.epoch, told.committed_at, told.watermark, told.status, told.columns, seen.gone,
            len(pieces),
        )  # fmt: skip
        self._connection.send_bytes(_encode(epoch))
        for piece in pieces:
            self._connection.send_bytes(_encode(piece))

    def wait(self, seconds: float) -> bool:
        try:
            while not self._over and self._connection.poll(seconds):
                said = self._connection.recv()
                if said == _ENOUGH:
                    self._over = True
                else:
                    self._wanted.append(said)
                seconds = 0
        except (EOFError, OSError):
            self._over = True
        return self._over

    def wanted(self) -> Sequence[str]:
        wanted, self._wanted = self._wanted, []
        return wanted


def _pieces(changes: list[Change]) -> Iterator[list[Change]]:
    for start in range(0, len(changes), _PIECE_CHANGES):
        yield changes[start : start + _PIECE_CHANGES]


# --- the lives of the processes -----------------------------------------------------------------


def _forked(live: Callable[[], None]) -> NoReturn:
    """A forked process's life: nothing of what its parent would do at its end."""
    code = 1
    try:
        live()
        code = 0
    except BaseException:
        logging.getLogger(__name__).exception("the process ends")
    finally:
        os._exit(code)


def _nurse(begun: socket.socket) -> None:
    # A terminal's Ctrl-C is for the service, whose end is ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how readers ended
    os.closerange(3, begun.fileno())
    os.closerange(begun.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT)
    gc.freeze()
    while True:
        said, descriptors, _, _ = socket.recv_fds(begun, 1, 1)
        if not said:
            return
        if os.fork() == 0:
            begun.close()
            live = _read if said == _READER else attempt
            _forked(partial(live, Connection(descriptors[0])))
        os.close(descriptors[0])


def _read(connection: Connection) -> None:
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        places, spec = connection.recv()
        connection.send(os.getpid())
        os.nice(_NICENESS)
        Reader(places, spec, _Service(connection)).run()
