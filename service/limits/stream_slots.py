"""Stream slots: the number of clients that follow changes or wait for an epoch.

Each of them holds a connection for as long as it likes. There is one limit for all, and a lower one
for each token name, so that one token cannot take all slots. On an open service all clients look
the same, so only the first limit applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from schemas.limits import FOLLOWERS_A_TOKEN_SHARE
from service.problems import Problem


class StreamSlots:
    """The slots in use. Call it on the event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._held.total()

    def acquire(self, request: Request) -> None:
        """Take a slot, to be released later; raise a Problem if there is none."""
        name = request.state.who
        share = 1.0 if request.state.by == "loopback" else FOLLOWERS_A_TOKEN_SHARE
        if self.total >= self._most or self._held[name] >= int(self._most * share):
            detail = (
                f"{self.total} clients follow changes or wait for an epoch, {self._held[name]} of "
                "them with this token; try again later"
            )
            raise Problem("too-many-followers", detail, headers={"Retry-After": "5"})
        self._held[name] += 1

    def release(self, request: Request) -> None:
        self._held[request.state.who] -= 1
        self._held += Counter()  # names without any are dropped

    @contextmanager
    def hold(self, request: Request) -> Iterator[None]:
        """Hold a slot within a with statement."""
        self.acquire(request)
        try:
            yield
        finally:
            self.release(request)
