"""RequestQueue: admins first, one in each round of the event loop, and a bound for each rank."""

from __future__ import annotations

import asyncio

import pytest

from schemas.limits import REQUESTS_AT_WORK_MAX, REQUESTS_STARTED_PER_ROUND, STARTS_PER_LOWEST_RANK
from service.access.tokens import Role
from service.limits.request_queue import ANONYMOUS, RequestQueue, compute_bound
from service.problems import Problem


async def begun(ranks: list[int]) -> list[int]:
    """The ranks of requests that come together, in the order in which they begin."""
    queue, order = RequestQueue(), []

    async def request(rank: int) -> None:
        await queue.wait_for_turn(0, lambda: rank)
        order.append(rank)

    await asyncio.gather(*(request(rank) for rank in ranks))
    return order


def test_the_highest_rank_begins_first_and_nobody_waits_for_ever() -> None:
    strangers, admins = [ANONYMOUS] * 50, [Role.ADMIN] * 20
    order = asyncio.run(begun([*strangers, Role.VIEWER, *admins]))
    assert len(order) == 71
    first = order[REQUESTS_STARTED_PER_ROUND:][
        : len(admins) + 3
    ]  # the first round was free when they came
    assert first.count(Role.ADMIN) == len(admins)
    assert 1 <= first.count(ANONYMOUS) <= 1 + len(first) // STARTS_PER_LOWEST_RANK
    assert Role.VIEWER in order[: len(admins) + 6]


def test_a_round_begins_one() -> None:
    async def in_one_round() -> int:
        queue, count = RequestQueue(), 0

        async def request() -> None:
            nonlocal count
            await queue.wait_for_turn(0, lambda: ANONYMOUS)
            count += 1

        tasks = [asyncio.ensure_future(request()) for _ in range(5 * REQUESTS_STARTED_PER_ROUND)]
        await asyncio.sleep(0)
        found = count
        await asyncio.gather(*tasks)
        return found

    assert asyncio.run(in_one_round()) == REQUESTS_STARTED_PER_ROUND


def test_the_lower_the_rank_the_sooner_it_is_refused() -> None:
    bounds = [compute_bound(rank) for rank in (ANONYMOUS, *Role)]
    assert bounds == sorted(bounds) and bounds[-1] == REQUESTS_AT_WORK_MAX
    assert bounds[0] >= REQUESTS_AT_WORK_MAX // 2

    async def taken(at_work: int, rank: int) -> None:
        await RequestQueue().wait_for_turn(at_work, lambda: rank)

    asyncio.run(taken(bounds[0] - 1, ANONYMOUS))
    asyncio.run(taken(bounds[0], Role.VIEWER))
    for at_work, rank in zip(bounds, (ANONYMOUS, *Role), strict=True):
        with pytest.raises(Problem) as refused:
            asyncio.run(taken(at_work, rank))
        assert (refused.value.code, refused.value.status) == ("too-busy", 503)
        assert refused.value.headers["Connection"] == "close"
