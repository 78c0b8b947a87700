"""The listener for PostgreSQL's clients."""

from __future__ import annotations

import asyncio
import socket

from service.postgres.certificate import Certificate
from service.postgres.messages import PeerReader
from service.postgres.places import Places
from service.postgres.session import Session
from service.runtime import Runtime


class PostgresServer:
    """Call it on the event loop only."""

    def __init__(
        self, runtime: Runtime, listener: socket.socket, certificate: Certificate | None = None
    ) -> None:
        self._places = Places(runtime, certificate)
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()

        def make_protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(PeerReader(loop), self._connect, loop=loop)

        self._server = await loop.create_server(make_protocol, sock=self._listener)

    def close(self) -> None:
        """Take no more connections, and end all of them."""
        if self._server is not None:
            self._server.close()
        self._places.end_all()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, PeerReader)
        session = Session(self._places, reader, writer)
        self._places.add(session)
        try:
            await session.run()
        finally:
            self._places.remove(session)
