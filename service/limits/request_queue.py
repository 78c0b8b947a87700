"""Turns: in which order requests are handled, and how many may be at work at once.

    request ──► too many at work for its rank? ──► 503
                    └──► turn ──► handler         one in each round of the event loop

A handler holds the event loop for a millisecond or so. If a thousand requests came together and
all began, whoever asks next would wait for all of them. So each round of the loop begins one: that
of an admin first, that of a stranger last; but every eighth turn is for the last, so that nobody
waits for ever. Health is asked for without a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from schemas.limits import REQUESTS_AT_WORK_MAX, TURNS_A_ROUND, TURNS_FOR_THE_LAST
from service.access.tokens import Role
from service.problems import Problem

STRANGER = 0  # below every role
RANKS = (STRANGER, *(int(role) for role in Role))


def at_work_max(rank: int, most: int = REQUESTS_AT_WORK_MAX) -> int:
    """Return how many requests may be at work before one of this rank is refused."""
    return most * (len(RANKS) - 1 + rank) // (2 * (len(RANKS) - 1))


class Turns:
    """On the event loop only."""

    def __init__(self, most: int = REQUESTS_AT_WORK_MAX) -> None:
        self._most = most
        self._left = TURNS_A_ROUND
        self._taken = 0
        self._waiting: list[deque[asyncio.Future[None]]] = [deque() for _ in RANKS]
        self._round_comes = False

    async def take(self, at_work: int, rank: Callable[[], int]) -> None:
        """Wait for a turn; a Problem if there are too many `at_work`. `rank` is called only if it
        matters, because it costs a look at the token."""
        if self._left and not any(self._waiting) and at_work < at_work_max(STRANGER, self._most):
            self._left -= 1
            self._expect_round()
            return
        known = rank()
        if at_work >= at_work_max(known, self._most):
            detail = "too many requests are at work; try again in a moment"
            headers = {"Retry-After": "1", "Connection": "close"}
            raise Problem("too-busy", 503, detail, headers=headers)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[known].append(turn)
        self._expect_round()
        await turn

    def _expect_round(self) -> None:
        if not self._round_comes:
            self._round_comes = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._round_comes = False
        self._left = TURNS_A_ROUND
        while self._left and (ranks := [queue for queue in self._waiting if queue]):
            self._taken += 1
            turn = ranks[-1 if self._taken % TURNS_FOR_THE_LAST else 0].popleft()
            if not turn.done():  # else its request was cancelled
                turn.set_result(None)
                self._left -= 1
        if self._left < TURNS_A_ROUND:
            self._expect_round()
