"""Limits of time and memory of a connection, with answers that the test wants."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from schemas import limits
from schemas.process.postgres import pack_message
from schemas.process.statements import StatementReply, WorkerRequest
from service.access.requirements import Access
from service.access.tokens import Role, Tokens
from service.postgres.server import PostgresServer
from service.request_counts import PostgresCounts
from service.runtime import Runtime
from tests.support.service.postgres import find_code, frame, frame_startup

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Answers:
    """Answers every statement with rows of one MiB."""

    count = 32

    async def answer(
        self,
        request: WorkerRequest,
        name: str,
        role: Role,
        shared: bool,
        leaving: Coroutine[Any, Any, object],
    ) -> tuple[StatementReply, bytes]:
        leaving.close()
        row = pack_message(b"D", struct.pack(">hi", 1, 2**20) + bytes(2**20))
        head = pack_message(b"T", struct.pack(">h", 0))
        return StatementReply("answered", count=self.count), head + row * self.count


class Listening:
    """A server in this process, and connections to it."""

    def __init__(self, server: PostgresServer, port: int) -> None:
        self.server = server
        self._port = port

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def start(self) -> Streams:
        reader, writer = await self.connect()
        writer.write(frame_startup(b"user\0me\0\0"))
        await receive_until(reader, b"Z")
        return reader, writer


@asynccontextmanager
async def listen(home: Path) -> AsyncIterator[Listening]:
    runtime = SimpleNamespace(
        access=Access(Tokens(home / "tokens.json"), "127.0.0.1"),
        audit_log=SimpleNamespace(note=lambda *_: None),
        sql_answers=Answers(),
        postgres_counts=PostgresCounts(),
    )
    listener = socket.create_server(("127.0.0.1", 0))
    server = PostgresServer(cast(Runtime, runtime), listener)
    await server.start()
    try:
        yield Listening(server, listener.getsockname()[1])
    finally:
        server.close()
        await asyncio.sleep(0.05)


async def receive_until(reader: asyncio.StreamReader, last: bytes) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    while not found or found[-1][0] != last:
        head = await reader.readexactly(5)
        found.append((head[:1], await reader.readexactly(struct.unpack_from(">i", head, 1)[0] - 4)))
    return found


async def wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("sent", [b"", struct.pack(">i", 50), frame_startup(b"user\0me\0\0")[:-3]])
def test_a_slow_sign_in_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(limits, "POSTGRES_STARTUP_SECONDS_MAX", 0.2)

    async def check() -> None:
        async with listen(tmp_path) as listening:
            reader, writer = await listening.connect()
            writer.write(sent)
            async with asyncio.timeout(5):
                assert b"57P05" in await reader.read()

    asyncio.run(check())


@pytest.mark.parametrize(
    ("limit", "sent"),
    [("IDLE", b""), ("IDLE", b"Q"), ("MESSAGE", b"Q" + struct.pack(">i", 40) + b"SELECT")],
)
def test_a_connection_that_says_nothing_or_half_of_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, sent: bytes
) -> None:
    monkeypatch.setattr(limits, f"POSTGRES_{limit}_SECONDS_MAX", 0.2)

    async def check() -> None:
        async with listen(tmp_path) as listening:
            reader, writer = await listening.start()
            writer.write(sent)
            async with asyncio.timeout(5):
                assert b"57P05" in await reader.read()

    asyncio.run(check())


def test_a_client_that_does_not_read_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POSTGRES_STALL_SECONDS_MAX", 0.5)

    async def check() -> None:
        async with listen(tmp_path) as listening:
            places = listening.server._places
            _, writer = await listening.start()
            writer.write(frame(b"Q", b"SELECT 1\0"))
            await wait_until(lambda: places.held_bytes > 30 * 2**20)
            await wait_until(lambda: places.held_bytes == 0 and not places._signed_in)

    asyncio.run(check())


def test_answers_that_nobody_reads_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POSTGRES_HELD_BYTES_MAX", 40 * 2**20)

    async def check() -> None:
        async with listen(tmp_path) as listening:
            reader, writer = await listening.start()
            declare = "BEGIN; DECLARE {0} CURSOR FOR SELECT 1; FETCH 1 FROM {0}"
            for name, code in (("a", ""), ("b", "53200")):
                writer.write(frame(b"Q", declare.format(name).encode() + b"\0"))
                assert find_code(await receive_until(reader, b"Z")) == code
            writer.write(frame(b"Q", b"ROLLBACK\0"))
            assert find_code(await receive_until(reader, b"Z")) == ""
            assert listening.server._places.held_bytes == 0

    asyncio.run(check())


def test_the_end_of_the_service_ends_connections(tmp_path: Path) -> None:
    async def check() -> None:
        async with listen(tmp_path) as listening:
            reader, _ = await listening.start()
            listening.server.close()
            async with asyncio.timeout(5):
                assert b"57P01" in await reader.read()

    asyncio.run(check())
