"""Following: who holds a stream of changes or waits for an epoch, and how many may.

Each holds a connection for as long as its client likes. There is a bound for all, and a lower one
for each token's name, so that no token keeps everybody else from following. On an open service
everybody is the same, so only the bound for all holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from schemas.limits import FOLLOWERS_A_TOKEN_SHARE
from service.problems import Problem


class Following:
    """On the event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._held.total()

    def begin(self, request: Request) -> None:
        """Count one more; a Problem if there are too many. `end` has to follow."""
        name = request.state.who
        share = 1.0 if request.state.by == "loopback" else FOLLOWERS_A_TOKEN_SHARE
        if self.total >= self._most or self._held[name] >= int(self._most * share):
            detail = (
                f"{self.total} follow changes or wait already, {self._held[name]} of them with "
                "this token; try again later"
            )
            raise Problem("too-many-followers", 429, detail, headers={"Retry-After": "5"})
        self._held[name] += 1

    def end(self, request: Request) -> None:
        self._held[request.state.who] -= 1
        self._held += Counter()  # names without any are dropped

    @contextmanager
    def waiting(self, request: Request) -> Iterator[None]:
        self.begin(request)
        try:
            yield
        finally:
            self.end(request)
