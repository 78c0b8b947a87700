"""SQL queue: which statements are answered at once, and which wait for their turn.

    slots for everybody ──► one for each token, so that one token cannot take them all
    slots beside those  ──► for admins only, so that others cannot keep an admin out
    no slot             ──► wait some seconds, tokens in turn; then 429

On an open service all clients look the same, so each may use all slots.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from schemas import limits
from schemas.limits import SQL_AT_ONCE_MAX, SQL_AT_ONCE_OF_ADMINS
from service.access.tokens import Role
from service.problems import Problem


@dataclass(frozen=True, slots=True, eq=False)
class _Client:
    """Who waits for a slot; `turn` becomes True with the slot, or False when it took too long."""

    name: str
    admin: bool
    shared: bool  # others have the same name
    turn: asyncio.Future[bool] = field(default_factory=asyncio.Future)


class SqlQueue:
    """The slots in use, and who waits for one. Call it on the event loop only."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Client]] = {}  # by name; its next turn comes first

    @asynccontextmanager
    async def hold(self, name: str, role: Role, shared: bool) -> AsyncIterator[None]:
        """Hold a slot within a with statement; raise a Problem if there is none for too long.

        `shared` means that other clients have the same name.
        """
        client = _Client(name, role >= Role.ADMIN, shared)
        if self._may_start(client):
            self._held[client.name] += 1
        else:
            await self._wait(client)
        try:
            yield
        finally:
            self._release(client)

    def _may_start(self, client: _Client) -> bool:
        most = SQL_AT_ONCE_MAX + (SQL_AT_ONCE_OF_ADMINS if client.admin else 0)
        own = client.shared or not self._held[client.name]
        return own and self._held.total() < most

    async def _wait(self, client: _Client) -> None:
        own = self._waiting.setdefault(client.name, deque())
        most = limits.SQL_WAITING_MAX if client.shared else limits.SQL_WAITING_OF_TOKEN_MAX
        if len(own) >= most or sum(map(len, self._waiting.values())) >= limits.SQL_WAITING_MAX:
            self._forget_empty(client.name)
            raise _make_problem(f"{len(own)} statements of this token are waiting")
        own.append(client)
        late = asyncio.get_running_loop().call_later(
            limits.SQL_WAIT_SECONDS_MAX, self._give_up, client
        )
        try:
            has_slot = await client.turn
        except asyncio.CancelledError:
            if client.turn.done() and not client.turn.cancelled() and client.turn.result():
                self._release(client)
            else:
                self._give_up(client)
            raise
        finally:
            late.cancel()
        if not has_slot:
            raise _make_problem(
                f"other statements are being answered, for {limits.SQL_WAIT_SECONDS_MAX:g} s"
            )

    def _give_up(self, client: _Client) -> None:
        """End a client's wait without a slot, if it waits."""
        own = self._waiting.get(client.name, deque())
        if client in own:
            own.remove(client)
            self._forget_empty(client.name)
        if not client.turn.done():
            client.turn.set_result(False)

    def _release(self, client: _Client) -> None:
        """Give up a slot; give it to the next client that may have one."""
        self._held[client.name] -= 1
        self._held += Counter()  # names without any are dropped
        for name in list(self._waiting):
            own = self._waiting[name]
            while own and self._may_start(own[0]):
                following = own.popleft()
                self._held[name] += 1
                following.turn.set_result(True)
                self._waiting[name] = self._waiting.pop(name)  # the others' turns come first
            self._forget_empty(name)

    def _forget_empty(self, name: str) -> None:
        if not self._waiting.get(name, ()):
            self._waiting.pop(name, None)


def _make_problem(reason: str) -> Problem:
    detail = f"{reason}; try again when they are done"
    return Problem("too-many-requests", detail, headers={"Retry-After": "5"})
