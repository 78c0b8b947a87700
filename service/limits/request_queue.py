"""Request queue: the order of requests, and the number in progress.

    request ──► too many in progress for its rank? ──► 503
                    └──► turn ──► handler             one in each round of the event loop

A handler blocks the event loop for about a millisecond. If a thousand requests arrived together and
all started, the next request would wait for all of them. So each round of the loop starts one: an
admin's first, an anonymous one last. Every eighth turn is for the lowest rank, so that no request
waits forever. Health checks bypass the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from schemas.limits import REQUESTS_AT_WORK_MAX, REQUESTS_STARTED_PER_ROUND, STARTS_PER_LOWEST_RANK
from service.access.tokens import Role
from service.problems import Problem

ANONYMOUS = 0  # the rank below every role
RANKS = (ANONYMOUS, *(int(role) for role in Role))


def compute_bound(rank: int, most: int = REQUESTS_AT_WORK_MAX) -> int:
    """Return how many requests may be in progress before this rank is refused."""
    return most * (len(RANKS) - 1 + rank) // (2 * (len(RANKS) - 1))


class RequestQueue:
    """Requests that wait for their turn. Call it on the event loop only."""

    def __init__(self, most: int = REQUESTS_AT_WORK_MAX) -> None:
        self._most = most
        self._left = REQUESTS_STARTED_PER_ROUND
        self._taken = 0
        self._waiting: list[deque[asyncio.Future[None]]] = [deque() for _ in RANKS]
        self._scheduled = False

    async def wait_for_turn(self, at_work: int, rank: Callable[[], int]) -> None:
        """Wait for a turn; raise a Problem if `at_work` is too high for the rank.

        `rank` is called only if it matters, because it checks the token.
        """
        if self._left and not any(self._waiting) and at_work < compute_bound(ANONYMOUS, self._most):
            self._left -= 1
            self._schedule_round()
            return
        known = rank()
        if at_work >= compute_bound(known, self._most):
            detail = "too many requests are in progress; try again in a moment"
            headers = {"Retry-After": "1", "Connection": "close"}
            raise Problem("too-busy", detail, headers=headers)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[known].append(turn)
        self._schedule_round()
        await turn

    def _schedule_round(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start_round)

    def _start_round(self) -> None:
        self._scheduled = False
        self._left = REQUESTS_STARTED_PER_ROUND
        while self._left and (ranks := [queue for queue in self._waiting if queue]):
            self._taken += 1
            turn = ranks[-1 if self._taken % STARTS_PER_LOWEST_RANK else 0].popleft()
            if not turn.done():  # otherwise its request was cancelled
                turn.set_result(None)
                self._left -= 1
        if self._left < REQUESTS_STARTED_PER_ROUND:
            self._schedule_round()
