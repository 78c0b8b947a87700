"""SQL slots: the statements that are answered at once, each in a process of its own.

    slots for everybody ──► one for each token, so that one token cannot take them all
    slots beside those  ──► for admins only, so that others cannot keep an admin out

On an open service all clients look the same, so each may use all slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from schemas.limits import SQL_AT_ONCE_MAX, SQL_AT_ONCE_OF_ADMINS
from service.access.tokens import Role
from service.problems import Problem


class SqlSlots:
    """The slots in use. Call it on the event loop only."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @contextmanager
    def hold(self, request: Request) -> Iterator[None]:
        """Hold a slot within a with statement; raise a Problem if there is none."""
        name, role = request.state.who, request.state.role
        alone = request.state.by != "loopback"
        most = SQL_AT_ONCE_MAX + (SQL_AT_ONCE_OF_ADMINS if role >= Role.ADMIN else 0)
        if alone and self._held[name]:
            raise _make_problem("a statement of this token is being answered")
        if self._held.total() >= most:
            raise _make_problem(f"{self._held.total()} statements are being answered")
        self._held[name] += 1
        try:
            yield
        finally:
            self._held[name] -= 1
            self._held += Counter()  # names without any are dropped


def _make_problem(reason: str) -> Problem:
    detail = f"{reason}; try again when it is done"
    return Problem("too-many-requests", 429, detail, headers={"Retry-After": "5"})
