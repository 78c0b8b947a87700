"""An event that wakes its waiting clients in shares, not all at once.

    set ──► share 1 ──► other work of the event loop ──► share 2 ──► ...

Hundreds of clients may follow a job. If all woke up at once, they would delay every other request.
So each waits in one of a few shares, and the event loop runs other work between two shares.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from schemas.limits import WAKE_SHARES


class StaggeredEvent:
    """`share` is thread-safe. Call `set` on the event loop only."""

    def __init__(self) -> None:
        self._shares = [asyncio.Event() for _ in range(WAKE_SHARES)]
        self._next = 0

    def share(self) -> asyncio.Event:
        """Return an event that the next `set` sets. Take it before reading, to miss nothing."""
        self._next = (self._next + 1) % WAKE_SHARES
        return self._shares[self._next]

    def set(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake all waiting clients, one share after the other."""
        shares, self._shares = self._shares, [asyncio.Event() for _ in range(WAKE_SHARES)]
        _set_in_turn(loop, shares)


def _set_in_turn(loop: asyncio.AbstractEventLoop, shares: list[asyncio.Event]) -> None:
    shares.pop().set()
    if shares:
        loop.call_soon(_set_in_turn, loop, shares)


async def wait_for_share(share: asyncio.Event, seconds: float) -> None:
    """Wait until the share is set, at most for these seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await share.wait()
