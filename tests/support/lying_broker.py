"""A broker that advertises a false address, and a port that no client should connect to.

The broker answers ApiVersions and Metadata, and refers its clients to the other address.

    client ──► LyingBroker: "broker 1 is at HOST:PORT" ──► does the client go there?
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

API_VERSIONS, METADATA = 18, 3
SERVED = {API_VERSIONS: (0, 0), METADATA: (0, 4)}
UNSUPPORTED_VERSION = 35


class LyingBroker(socketserver.ThreadingTCPServer):
    """Listens at `address`, and tells clients that it is at `advertised`."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, advertised: tuple[str, int], topic: str = "t") -> None:
        self.advertised = advertised
        self.topic = topic
        self.asked = 0  # number of metadata requests
        super().__init__((host, 0), _Conversation)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.server_address[:2])

    def answer(self, request: bytes) -> bytes:
        key, version, correlation = struct.unpack_from(">hhi", request)
        head = struct.pack(">i", correlation)
        if key == METADATA:
            self.asked += 1
            return head + self._metadata(version)
        error = UNSUPPORTED_VERSION if version else 0  # then the client asks in the oldest way
        served = [struct.pack(">hhh", api, *versions) for api, versions in SERVED.items()]
        return head + struct.pack(">hi", error, len(served)) + b"".join(served)

    def _metadata(self, version: int) -> bytes:
        host, port = self.advertised
        broker = struct.pack(">i", 1) + _text(host) + struct.pack(">i", port)
        # Partition 0: its leader, its replicas, and those in sync.
        partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        return b"".join(
            (
                struct.pack(">i", 0) if version >= 3 else b"",  # throttled for so long
                struct.pack(">i", 1) + broker + (_text(None) if version >= 1 else b""),
                _text("cluster") if version >= 2 else b"",
                struct.pack(">i", 1) if version >= 1 else b"",  # the controller
                struct.pack(">ih", 1, 0) + _text(self.topic) + (b"\0" if version >= 1 else b""),
                struct.pack(">i", 1) + partition,
            )
        )


class _Conversation(socketserver.StreamRequestHandler):
    server: LyingBroker

    def handle(self) -> None:
        while head := self.rfile.read(4):
            request = self.rfile.read(struct.unpack(">i", head)[0])
            answer = self.server.answer(request)
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


def _text(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


@contextmanager
def lying_broker(host: str, advertised: tuple[str, int]) -> Iterator[LyingBroker]:
    with LyingBroker(host, advertised) as broker:
        thread = threading.Thread(target=broker.serve_forever, args=[0.05], name="lying broker")
        thread.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            thread.join()


class Door:
    """A port that listens, and counts connections."""

    def __init__(self, host: str) -> None:
        self._listening = socket.create_server((host, 0))
        self._listening.settimeout(0)
        self.address: tuple[str, int] = self._listening.getsockname()[:2]

    def knocks(self) -> int:
        """Return the number of connections since the last call; the kernel accepts them itself."""
        found = 0
        while True:
            try:
                self._listening.accept()[0].close()
            except BlockingIOError:
                return found
            found += 1

    def close(self) -> None:
        self._listening.close()


def outer_address() -> str | None:
    """Return an address of this machine that is not loopback; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if found.startswith("127.") else found
