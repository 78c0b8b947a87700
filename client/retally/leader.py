"""Leader: of several services on one data directory, requests go to the one that takes changes.

    request ──► the service of the URL ──► answer
                   └── 503 not-the-leader, `leader` ──► the leader, which gets all later requests
                          └── does not answer ──► the service of the URL, which may lead by now,
                                                  or starts again to lead

All later requests, because the leader's reads show the change at once, and others' a moment later.
A change is sent again only if it was refused, or if there was no connection to send it over.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

import httpx

from retally.errors import Refused, Unreachable
from retally.http import READ_METHODS, Connection, Request

TAKEOVER_SECONDS = 15.0  # a takeover takes at most this long; after it the error is raised
_PAUSE_SECONDS = 0.5
LEADERS_MAX = 64  # addresses that the token of one client is sent to
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout)


class LeaderConnection:
    """A connection to the service of a URL, and to the leader that it names."""

    def __init__(self, connect: Callable[[str], Connection], address: str) -> None:
        self._connect = connect
        self._named = self._at = connect(address)
        self._leaders: dict[str, Connection] = {}
        self.address = address

    async def send(self, request: Request) -> httpx.Response:
        deadline = time.monotonic() + TAKEOVER_SECONDS
        failed: Refused | Unreachable | None = None
        while True:
            at = self._at
            try:
                return await at.send(request)
            except Refused as error:
                if error.code != "not-the-leader":
                    raise
                self._at = self._find_leader(error) if at is self._named else self._named
                failed = error
            except Unreachable as error:
                self._at = self._named
                again = request.method in READ_METHODS or isinstance(error.__cause__, _NEVER_SENT)
                is_takeover = at is not self._named or failed is not None
                if not (again and is_takeover):
                    raise
                failed = error
            if self._at is self._named:  # nobody leads yet, or a proxy may choose another next time
                if time.monotonic() >= deadline:
                    raise failed
                await self.sleep(_PAUSE_SECONDS)

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._at.stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except Unreachable:  # whoever follows opens the stream again
            self._at = self._named
            raise

    async def sleep(self, seconds: float) -> None:
        await self._named.sleep(seconds)

    async def close(self) -> None:
        for each in (self._named, *self._leaders.values()):
            await each.close()

    def _find_leader(self, refused: Refused) -> Connection:
        """Return the leader; the service of the URL while there is none, or none to be trusted."""
        address: Any = refused.document.get("leader")
        with suppress(TypeError, ValueError, httpx.InvalidURL):  # it is no address
            if address in self._leaders:
                return self._leaders[address]
            is_less_safe = httpx.URL(self.address).scheme == "https" != httpx.URL(address).scheme
            if not is_less_safe and len(self._leaders) < LEADERS_MAX:
                return self._leaders.setdefault(address, self._connect(address))
        return self._named
