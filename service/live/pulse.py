"""Pulse: wakes the clients that wait for a job's next epoch, some at a time.

    beat ──► share 1 ──► other work of the event loop ──► share 2 ──► ...

Hundreds of clients may follow a job. If all woke up at once, they would delay every other request.
So each waits in one of a few shares, and the event loop runs other work between two shares.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from schemas.limits import PULSE_SHARES


class Pulse:
    """`share` is thread-safe. Call `beat` on the event loop only."""

    def __init__(self) -> None:
        self._shares = [asyncio.Event() for _ in range(PULSE_SHARES)]
        self._next = 0

    def share(self) -> asyncio.Event:
        """Return an event that the next beat sets. Take it before reading, to miss nothing."""
        self._next = (self._next + 1) % PULSE_SHARES
        return self._shares[self._next]

    def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake all waiting clients, one share after the other."""
        shares, self._shares = self._shares, [asyncio.Event() for _ in range(PULSE_SHARES)]
        _set_in_turn(loop, shares)


def _set_in_turn(loop: asyncio.AbstractEventLoop, shares: list[asyncio.Event]) -> None:
    shares.pop().set()
    if shares:
        loop.call_soon(_set_in_turn, loop, shares)


async def wait_for_beat(share: asyncio.Event, seconds: float) -> None:
    """Wait for the beat, at most for these seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await share.wait()
