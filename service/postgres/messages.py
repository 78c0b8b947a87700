"""PostgreSQL's protocol, version 3: messages of clients to values, and ours to bytes.

    startup   size, code, content            standard   kind, size, content

Every size is checked before its content is read, so that a stranger cannot make us hold more.
"""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

from schemas import limits
from schemas.process.postgres import pack_message

SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
CANCEL_REQUEST = 80877102
VERSION_3 = 3 << 16

_READ_AHEAD_BYTES = 256 * 1024
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_FIELD = struct.Struct(">IhIhih")

AUTHENTICATION_OK = pack_message(b"R", _INT.pack(0))
PASSWORD_WANTED = pack_message(b"R", _INT.pack(3))
PARSE_COMPLETE = pack_message(b"1")
BIND_COMPLETE = pack_message(b"2")
CLOSE_COMPLETE = pack_message(b"3")
NO_DATA = pack_message(b"n")
SUSPENDED = pack_message(b"s")
EMPTY_QUERY = pack_message(b"I")


class PgError(Exception):
    """The content of an ErrorResponse; after a fatal one the connection ends."""

    def __init__(
        self, code: str, message: str, position: int | None = None, *, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.position = position
        self.fatal = fatal

    def pack(self) -> bytes:
        severity = "FATAL" if self.fatal else "ERROR"
        fields = {"S": severity, "V": severity, "C": self.code, "M": str(self)}
        if self.position is not None:
            fields["P"] = str(self.position + 1)
        written = (f"{name}{value}\0" for name, value in fields.items())
        return pack_message(b"E", "".join(written).encode("utf-8", "replace") + b"\0")


def make_violation(reason: str) -> PgError:
    return PgError("08P01", reason, fatal=True)


class Message(NamedTuple):
    kind: bytes
    content: bytes


class PeerReader(asyncio.StreamReader):
    """A reader that tells at once that its peer has left, whatever is still unread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_READ_AHEAD_BYTES, loop=loop)
        self.left = asyncio.Event()

    @property
    def has_unread(self) -> bool:
        return bool(self._buffer)  # type: ignore[attr-defined]

    def feed_eof(self) -> None:
        self.left.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.left.set()
        super().set_exception(exc)


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the code and the content of a message that has no kind."""
    (size,) = _INT.unpack(await reader.readexactly(4))
    if not 8 <= size <= limits.POSTGRES_STARTUP_BYTES_MAX:
        raise make_violation("this is no startup message of PostgreSQL's protocol")
    content = await reader.readexactly(size - 4)
    return _INT.unpack_from(content)[0], content[4:]


async def read_message(
    reader: asyncio.StreamReader, size_max: int = limits.POSTGRES_MESSAGE_BYTES_MAX
) -> Message:
    """Return the next message; raise TimeoutError if it does not come or is not completed."""
    async with asyncio.timeout(limits.POSTGRES_IDLE_SECONDS_MAX):
        head = await reader.readexactly(5)
    size = _INT.unpack_from(head, 1)[0] - 4
    if not 0 <= size <= size_max:
        raise make_violation(f"a message has at most {size_max} bytes")
    async with asyncio.timeout(limits.POSTGRES_MESSAGE_SECONDS_MAX):
        return Message(head[:1], await reader.readexactly(size))


class Content:
    """Reads the parts of a message; raises a PgError where it is not what it should be."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at >= len(self._content)

    def text(self) -> str:
        end = self._content.find(b"\0", self._at)
        if end < 0:
            raise make_violation("a text of a message has no end")
        piece, self._at = self._content[self._at : end], end + 1
        try:
            return piece.decode()
        except UnicodeDecodeError:
            raise PgError("22021", "a text is not UTF-8") from None

    def byte(self) -> bytes:
        return self._take(1)

    def short(self) -> int:
        return int(_SHORT.unpack(self._take(2))[0])

    def whole(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def value(self) -> bytes | None:
        size = self.whole()
        return None if size < 0 else self._take(size)

    def shorts(self) -> tuple[int, ...]:
        return tuple(self.short() for _ in range(self.short()))

    def oids(self) -> tuple[int, ...]:
        return tuple(self.whole() & 0xFFFFFFFF for _ in range(self.short()))

    def values(self) -> tuple[bytes | None, ...]:
        return tuple(self.value() for _ in range(self.short()))

    def _take(self, size: int) -> bytes:
        piece = self._content[self._at : self._at + size]
        if len(piece) < size:
            raise make_violation("a message is shorter than what it has")
        self._at += size
        return piece


def pack_ready(status: str) -> bytes:
    """Return ReadyForQuery: I is idle, T in a transaction, E in one that has failed."""
    return pack_message(b"Z", status.encode())


def pack_complete(tag: str) -> bytes:
    return pack_message(b"C", tag.encode() + b"\0")


def pack_status(name: str, value: str) -> bytes:
    return pack_message(b"S", f"{name}\0{value}\0".encode("utf-8", "replace"))


def pack_key(process: int, secret: int) -> bytes:
    return pack_message(b"K", _INT.pack(process) + _INT.pack(secret))


def pack_versions(options: list[str]) -> bytes:
    """Return NegotiateProtocolVersion: we have 3.0, and know none of these options."""
    names = "".join(f"{name}\0" for name in options).encode("utf-8", "replace")
    return pack_message(b"v", _INT.pack(VERSION_3) + _INT.pack(len(options)) + names)


def pack_parameters(oids: list[int]) -> bytes:
    return pack_message(b"t", _SHORT.pack(len(oids)) + struct.pack(f">{len(oids)}I", *oids))


def pack_text_row(name: str, value: str) -> tuple[bytes, bytes]:
    """Return the description of one column of text, and its one row."""
    described = name.encode() + b"\0" + _FIELD.pack(0, 0, 25, -1, -1, 0)
    encoded = value.encode("utf-8", "replace")
    row = _SHORT.pack(1) + _INT.pack(len(encoded)) + encoded
    return pack_message(b"T", _SHORT.pack(1) + described), pack_message(b"D", row)


def cut_rows(body: bytes, start: int, count: int) -> tuple[int, int]:
    """Return where the next rows of an answer end, and how many they are; 0 means all of them."""
    found, at = 0, start
    while at < len(body) and (not count or found < count):
        at += 1 + _INT.unpack_from(body, at + 1)[0]
        found += 1
    return at, found
