"""Who may ask by SQL at once, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from schemas import limits
from service.access.tokens import Role
from service.problems import Problem
from service.sql.queue import SqlQueue


def of(who: str, role: Role = Role.VIEWER, by: str = "token") -> tuple[str, Role, bool]:
    return who, role, by == "loopback"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SQL_WAIT_SECONDS_MAX", 0.05)


@asynccontextmanager
async def refused(
    queue: SqlQueue, client: tuple[str, Role, bool], reason: str
) -> AsyncIterator[None]:
    with pytest.raises(Problem, match=reason):
        async with queue.hold(*client):
            pass
    yield


def test_a_token_holds_one_slot_and_others_leave_one_for_admins() -> None:
    async def check() -> None:
        queue = SqlQueue()
        async with AsyncExitStack() as held:
            await held.enter_async_context(queue.hold(*of("ana")))
            async with refused(queue, of("ana"), "other statements are being answered"):
                await held.enter_async_context(queue.hold(*of("ben", Role.OPERATOR)))
            async with refused(queue, of("eva"), "for 0.05 s"):
                await held.enter_async_context(queue.hold(*of("root", Role.ADMIN)))
            async with refused(queue, of("root2", Role.ADMIN), "for 0.05 s"):
                pass
        async with queue.hold(*of("ana")):
            pass

    asyncio.run(check())


def test_on_an_open_service_each_client_may_use_all_slots() -> None:
    async def check() -> None:
        queue = SqlQueue()
        local = of("local", Role.ADMIN, "loopback")
        async with AsyncExitStack() as held:
            for _ in range(3):
                await held.enter_async_context(queue.hold(*local))
            async with refused(queue, local, "other statements"):
                pass

    asyncio.run(check())


def test_who_waits_is_answered_in_turn_with_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SQL_WAIT_SECONDS_MAX", 10.0)
    order: list[str] = []

    async def ask(queue: SqlQueue, who: str) -> None:
        async with queue.hold(*of(who)):
            order.append(who)
            await asyncio.sleep(0)

    async def check() -> None:
        queue = SqlQueue()
        async with queue.hold(*of("x")), queue.hold(*of("y")):
            asked = [asyncio.create_task(ask(queue, who)) for who in ("a", "a", "a", "b", "c")]
            await asyncio.sleep(0.01)
            assert not order
            asked[1].cancel()  # the client has left
        await asyncio.gather(*asked, return_exceptions=True)
        assert sorted(order) == ["a", "a", "b", "c"] and order[-1] == "a"
        async with queue.hold(*of("a")), queue.hold(*of("b")):  # all slots are free again
            pass

    asyncio.run(check())


def test_a_slot_that_arrives_with_the_end_of_its_client_is_free_again() -> None:
    async def check() -> None:
        queue = SqlQueue()
        for _ in range(3):
            async with queue.hold(*of("a")), queue.hold(*of("b")):
                waiting = asyncio.create_task(queue.hold(*of("c")).__aenter__())
                await asyncio.sleep(0)
            waiting.cancel()  # after it was given the slot
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(check())


def test_no_more_wait_than_can_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SQL_WAITING_OF_TOKEN_MAX", 2)
    monkeypatch.setattr(limits, "SQL_WAIT_SECONDS_MAX", 10.0)

    async def check() -> None:
        queue = SqlQueue()
        async with queue.hold(*of("a")):
            asked = [asyncio.create_task(queue.hold(*of("a")).__aenter__()) for _ in range(2)]
            await asyncio.sleep(0)
            async with refused(queue, of("a"), "2 statements of this token are waiting"):
                pass
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(check())
