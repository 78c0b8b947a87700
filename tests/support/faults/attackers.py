"""Attackers of a service's port, and a client that requests /healthz at the same time.

with Health(place) as health:        requests /healthz all the time, each on a new connection
    with pipelined(place, 100, 60):  100 connections with 60 requests each, all at once
        ...
health.worst, health.median
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.support.faults.tally import quantile
from tests.support.service.served import Served

Place = tuple[str, int]
PAUSE_SECONDS = 0.02
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
_ASSET = re.compile(r"/assets/[0-9a-f]+/console\.css")


def place_of(served: Served) -> Place:
    parts = urlsplit(served.address)
    return parts.hostname or "", parts.port or 0


def asset_of(served: Served) -> str:
    """Return the path of a public file of some kilobytes."""
    with served.client() as client:
        found = _ASSET.search(client.get("/login").text)
        assert found is not None or served.token is None
        return found[0] if found else asset_of_page(client.get("/").text)


def asset_of_page(page: str) -> str:
    found = _ASSET.search(page)
    assert found is not None, page[:500]
    return found[0]


@dataclass
class Health:
    """Another client: requests /healthz again and again, and records the response times."""

    place: Place
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask_all, daemon=True)

    def __enter__(self) -> Health:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask_all(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            self.ask()

    def ask(self) -> None:
        began = time.monotonic()
        try:
            connection = http.client.HTTPConnection(*self.place, timeout=30)
            try:
                connection.request("GET", "/healthz")
                status = connection.getresponse().status
            finally:
                connection.close()
            if status != 200:
                self.failures.append(str(status))
        except OSError as error:
            self.failures.append(repr(error))
        self.seconds.append(time.monotonic() - began)

    def wait_for(self, count: int) -> None:
        """Wait until it has sent `count` more requests."""
        wanted = len(self.seconds) + count
        while len(self.seconds) < wanted:
            time.sleep(PAUSE_SECONDS)

    @property
    def worst(self) -> float:
        return max(self.seconds)

    @property
    def median(self) -> float:
        return quantile(self.seconds, 0.5) or 0.0

    def describe(self) -> dict[str, float]:
        """Return milliseconds, for a result line."""
        return {"p50": round(1_000 * self.median, 1), "max": round(1_000 * self.worst, 1)}


def request(path: str, *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


@contextmanager
def pipelined(
    place: Place, connections: int, requests: int, one: bytes
) -> Iterator[list[socket.socket]]:
    """Open connections, and send many requests at once on each; read no response."""
    with ExitStack() as stack:
        opened = []
        for _ in range(connections):
            connection = stack.enter_context(socket.create_connection(place, timeout=30))
            with suppress(OSError):  # the service has refused and closed it
                connection.sendall(one * requests)
            opened.append(connection)
        yield opened


def statuses(connections: list[socket.socket]) -> Counter[int]:
    """Read the connections to their ends, and count the responses by status."""
    found: Counter[int] = Counter()
    for connection in connections:
        connection.settimeout(5)
        answers = b""
        with suppress(OSError):
            while piece := connection.recv(1 << 20):
                answers += piece
        found.update(int(status) for status in _STATUS.findall(answers))
    return found
