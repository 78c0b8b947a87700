"""Leader: of several services on one data directory, requests go to the one that takes changes.

    request ──► a service ──► answer
                   ├── 503 not-the-leader ──► the leader that it names, else the next service
                   └── no connection      ──► the next service

Later requests go there too, because the leader's reads show a change at once, and others' a moment
later. A change is sent again only if it was refused, or if there was no connection to send it over.

The token goes to the addresses that the caller has written, and to no other: a service can choose
among these, but cannot send a client elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import httpx

from retally.errors import Refused, Unreachable
from retally.http import READ_METHODS, Connection, Request

TAKEOVER_SECONDS = 15.0  # a takeover takes at most this long; after it the error is raised
_PAUSE_SECONDS = 0.5
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout)


class LeaderConnection:
    """Connections to the services of one data directory; `addresses` are separated by commas."""

    def __init__(self, connect: Callable[[str], Connection], addresses: str) -> None:
        written = (each.strip().rstrip("/") for each in addresses.split(","))
        self._services = {each: connect(each) for each in written}
        self._at = next(iter(self._services.values()))
        self.address = addresses

    async def send(self, request: Request) -> httpx.Response:
        deadline = time.monotonic() + TAKEOVER_SECONDS
        failed: Refused | Unreachable | None = None
        tried: set[Connection] = set()
        while True:
            at = self._at
            try:
                return await at.send(request)
            except Refused as error:
                if error.code != "not-the-leader":
                    raise
                leader = error.document.get("leader")
                named = self._services.get(str(leader).rstrip("/"))
                if len(self._services) == 1:
                    error = _advise(error)
                    if leader is not None and isinstance(failed, Refused):
                        raise error from None  # it leads elsewhere, and is not at its end
                self._at = self._find_next(at) if named is None else named
                failed = error
            except Unreachable as error:
                self._at = self._find_next(at)
                again = request.method in READ_METHODS or isinstance(error.__cause__, _NEVER_SENT)
                is_takeover = self._at is not at or failed is not None
                if not (again and is_takeover):
                    raise
                failed = error
            tried.add(at)
            if self._at in tried:  # nobody leads yet, or a proxy may choose another next time
                if time.monotonic() >= deadline:
                    raise failed
                await self.sleep(_PAUSE_SECONDS)
                tried.clear()

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        at = self._at
        try:
            async with aclosing(at.stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except Unreachable:  # whoever follows opens the stream again
            self._at = self._find_next(at)
            raise

    async def sleep(self, seconds: float) -> None:
        await self._at.sleep(seconds)

    async def close(self) -> None:
        for each in self._services.values():
            await each.close()

    def _find_next(self, at: Connection) -> Connection:
        services = list(self._services.values())
        return services[(services.index(at) + 1) % len(services)]


def _advise(error: Refused) -> Refused:
    """Return the refusal of an only service with how to write the addresses of several."""
    detail = f"{error.detail}; name all services as URL,URL to find the one that leads"
    return Refused({**error.document, "detail": detail, "advice": ""}, error.retry_after)
