"""Many connections at once."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import psutil

from schemas.limits import WAITING_CONNECTIONS_MAX
from tests.support.faults.tally import FaultTally
from tests.support.service.served import Served

PATIENCE_SECONDS = 20.0  # on a machine that is busy with other tests
GROWTH_BYTES_MAX = 150 * 1024 * 1024


class Port:
    """Raw connections to a service."""

    def __init__(self, served: Served) -> None:
        parts = urlsplit(served.address)
        self.place = (parts.hostname or "", parts.port or 0)
        self.process = psutil.Process(served.process.pid)

    def connected(self) -> socket.socket:
        connection = socket.create_connection(self.place, timeout=10)
        connection.settimeout(10)
        return connection

    def exchange(self, sent: bytes) -> bytes:
        """Send bytes, and return the response until the connection closes or is silent."""
        with self.connected() as connection:
            connection.settimeout(2)
            found = b""
            try:
                connection.sendall(sent)
                while piece := connection.recv(65_536):
                    found += piece
            except (TimeoutError, ConnectionError):
                pass
            return found

    @contextmanager
    def many(self, count: int, first: bytes) -> Iterator[list[socket.socket]]:
        """Open connections, and send these first bytes on each."""
        with ExitStack() as stack:
            made = []
            for _ in range(count):
                connection = stack.enter_context(self.connected())
                with suppress(ConnectionError):  # the service closes those that wait longest
                    connection.sendall(first)
                made.append(connection)
            yield made


def answered(served: Served) -> float:
    """Return the seconds that another client waits for two responses."""
    began = time.monotonic()
    with served.client() as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/jobs").status_code == 200
    return time.monotonic() - began


def crowd(served: Served, count: int, tally: FaultTally) -> None:
    """Open idle connections: silent, after half a head, half a body, or a whole request."""
    port, before = Port(served), Port(served).process.memory_info().rss
    beginnings = {
        "silent": b"",
        "half a head": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        "half a body": b"POST /v1/jobs:validate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
        "kept alive": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    }
    for name, first in beginnings.items():
        tally.plan(name)
        with port.many(count, first) as made:
            tally.inputs += len(made)
            waited = answered(served)
            assert waited < PATIENCE_SECONDS, f"{name}: {waited:.1f} s"
            tally.outputs += 1
            tally.recoveries.append(waited)
            assert len(port.process.net_connections()) < 2 * WAITING_CONNECTIONS_MAX
            tally.fire(name)
    assert port.process.memory_info().rss - before < GROWTH_BYTES_MAX
    assert served.process.poll() is None
