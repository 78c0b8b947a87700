"""Attackers of a service's port, and somebody who asks /healthz meanwhile.

with Health(place) as health:        asks on a new connection each time, all the time
    with pipelined(place, 100, 60):  so many connections with so many requests at once
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
    """Return the path of a file of some kilobytes that everybody may have."""
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
    """Somebody else: asks /healthz again and again, and keeps how long each answer took."""

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
        """Until it has asked so many times more."""
        wanted = len(self.seconds) + count
        while len(self.seconds) < wanted:
            time.sleep(PAUSE_SECONDS)

    @property
    def worst(self) -> float:
        return max(self.seconds)

    @property
    def median(self) -> float:
        return quantile(self.seconds, 0.5) or 0.0


def request(path: str, *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


@contextmanager
def pipelined(
    place: Place, connections: int, requests: int, one: bytes
) -> Iterator[list[socket.socket]]:
    """So many connections, each with so many requests in its first bytes; nothing is read yet."""
    with ExitStack() as stack:
        opened = []
        for _ in range(connections):
            connection = stack.enter_context(socket.create_connection(place, timeout=30))
            with suppress(OSError):  # closed already: then it is refused
                connection.sendall(one * requests)
            opened.append(connection)
        yield opened


def statuses(connections: list[socket.socket]) -> Counter[int]:
    """The statuses of all answers on these connections, each read to its end."""
    found: Counter[int] = Counter()
    for connection in connections:
        connection.settimeout(5)
        answers = b""
        with suppress(OSError):
            while piece := connection.recv(1 << 20):
                answers += piece
        found.update(int(status) for status in _STATUS.findall(answers))
    return found
