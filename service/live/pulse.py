"""Pulse: wakes those who wait for a job's next epoch, some at a time.

    beat ──► share 1 ──► whatever else there is to do ──► share 2 ──► ...

Hundreds may follow a job. Woken all at once they would all be served before any other request; so
each waits in a share, and the event loop has a turn between two of them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from schemas.limits import PULSE_SHARES


class Pulse:
    """All but `beat` may be called from any thread; that belongs to the event loop."""

    def __init__(self) -> None:
        self._shares = [asyncio.Event() for _ in range(PULSE_SHARES)]
        self._next = 0

    def share(self) -> asyncio.Event:
        """Set by the next beat. Taken before a look, so that nothing in between is missed."""
        self._next = (self._next + 1) % PULSE_SHARES
        return self._shares[self._next]

    def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        beaten, self._shares = self._shares, [asyncio.Event() for _ in range(PULSE_SHARES)]
        _set_in_turn(loop, beaten)


def _set_in_turn(loop: asyncio.AbstractEventLoop, shares: list[asyncio.Event]) -> None:
    shares.pop().set()
    if shares:
        loop.call_soon(_set_in_turn, loop, shares)


async def beaten(share: asyncio.Event, seconds: float) -> None:
    """Until the beat, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await share.wait()
