"""Requests of a client without the secret to the RPC port of a Spark process.

frame: length (8), type 3 = request (1), id (8), body length (4), body
body:  where it comes from and goes to, then an object in Java's serialization
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import psutil

UNKNOWN_CLASS = "NobodyHasThisClass"
_REQUEST = 3
_ENDPOINT = "endpoint-verifier"


def answer_to_stranger(port: int, host: str = "127.0.0.1") -> bytes:
    """Send one request that has an object of an unknown class; return what comes back."""
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.settimeout(3)
        connection.sendall(_request(host, port))
        found = b""
        with suppress(OSError):
            while piece := connection.recv(1 << 16):
                found += piece
        return found


def listening_ports(process: psutil.Process) -> list[int]:
    """Return the TCP ports that the JVM below a driver listens on."""
    javas = [each for each in process.children(recursive=True) if "java" in each.name()]
    listening = (psutil.CONN_LISTEN,)
    return sorted(
        {c.laddr.port for java in javas for c in java.net_connections() if c.status in listening}
    )


def _request(host: str, port: int) -> bytes:
    nobody = b"\x00"  # no address of a sender
    receiver = b"\x01" + _utf(host) + struct.pack(">i", port)
    body = nobody + receiver + _utf(_ENDPOINT) + _java_object()
    head = struct.pack(">bqi", _REQUEST, 1, len(body))
    return struct.pack(">q", 8 + len(head) + len(body)) + head + body


def _java_object() -> bytes:
    """An object without fields: stream magic, TC_OBJECT, TC_CLASSDESC, its name, its end."""
    description = _utf(UNKNOWN_CLASS) + struct.pack(">qbh", 1, 2, 0) + b"\x78\x70"
    return b"\xac\xed\x00\x05" + b"\x73\x72" + description


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
