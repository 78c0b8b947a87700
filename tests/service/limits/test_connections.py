"""What becomes of the requests of a connection that ends."""

from __future__ import annotations

import socket
import struct

from tests.support.faults.attackers import place_of, request
from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, as a client that is killed


def followers(served: Served) -> str:
    with served.client() as client:
        lines = client.get("/metrics").text.splitlines()
    return next(line for line in lines if line.startswith("retally_followers "))


def test_a_stream_ends_with_its_connection_though_a_request_follows_it(served: Served) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1,)})
    watched.seen()
    with socket.create_connection(place_of(served), timeout=10) as connection:
        connection.sendall(request("/v1/jobs/items/changes") + request("/healthz"))
        found = b""
        while b"retry:" not in found:
            found += connection.recv(65_536)
        assert followers(served) == "retally_followers 1"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    watched.write({"a": (2,)}, {"a": (3,)})  # written to the connection, which is found to be gone
    eventually(lambda: followers(served) == "retally_followers 0")
