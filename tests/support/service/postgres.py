"""A service that PostgreSQL's clients reach; and such a client by hand, byte for byte."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable

VERSION_3 = 196608


@contextmanager
def serve_items(data: Path, token: str | None = None, *more: str) -> Iterator[Served]:
    """Serve the job `items` with two epochs, also to PostgreSQL's clients."""
    log = data / "log"
    arguments = ("--pg-port", "0", *more)
    with (
        log.open("wb") as errors,
        Served.start(data, *arguments, token=token, errors=errors) as served,
    ):
        watched = WatchedTable(served)
        watched.write({"a": (1, 5), "b": (2,)}, {"a": (1,), None: (4,), "b": (2,)})
        watched.seen()
        yield served
    assert "Traceback" not in log.read_text()


def make_url(served: Served, scheme: str = "postgresql", password: str = "") -> str:
    place = urlsplit(served.postgres).netloc
    return f"{scheme}://me{':' + password if password else ''}@{place}/retally"


def frame(kind: bytes, content: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(content) + 4) + content


def frame_startup(content: bytes, code: int = VERSION_3) -> bytes:
    return struct.pack(">ii", len(content) + 8, code) + content


class Wire:
    """A connection whose bytes the test writes."""

    def __init__(self, served: Served) -> None:
        place = urlsplit(served.postgres)
        self.socket = socket.create_connection((place.hostname or "", place.port or 0), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, *messages: bytes) -> None:
        self.socket.sendall(b"".join(messages))

    def start(self, password: str = "") -> tuple[int, int]:
        """Sign in; return the key that cancels."""
        self.send(frame_startup(b"user\0me\0database\0retally\0\0"))
        if password:
            assert self.receive() == (b"R", struct.pack(">i", 3))
            self.send(frame(b"p", password.encode() + b"\0"))
        key = (0, 0)
        while True:
            kind, content = self.receive()
            assert kind in b"RSKZ", content
            if kind == b"K":
                key = struct.unpack(">ii", content)
            if kind == b"Z":
                return key

    def receive(self) -> tuple[bytes, bytes]:
        """Return the next message; raise EOFError at the end of the connection."""
        head = self._take(5)
        return head[:1], self._take(struct.unpack_from(">i", head, 1)[0] - 4)

    def receive_until(self, last: bytes) -> list[tuple[bytes, bytes]]:
        found = [self.receive()]
        while found[-1][0] != last:
            found.append(self.receive())
        return found

    def query(self, sql: str) -> list[tuple[bytes, bytes]]:
        self.send(frame(b"Q", sql.encode() + b"\0"))
        return self.receive_until(b"Z")

    def is_ended(self) -> bool:
        """Return whether the service has ended the connection, perhaps after a message."""
        try:
            while True:
                self.receive()
        except (EOFError, ConnectionError):
            return True

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            piece = self.socket.recv(65_536)
            if not piece:
                raise EOFError
            self._read += piece
        taken, self._read = self._read[:size], self._read[size:]
        return taken


def find_code(messages: list[tuple[bytes, bytes]]) -> str:
    """Return the SQLSTATE of the first error among messages; "" if there is none."""
    for kind, content in messages:
        if kind == b"E":
            (code,) = [each[1:] for each in content.split(b"\0") if each.startswith(b"C")]
            return code.decode()
    return ""
