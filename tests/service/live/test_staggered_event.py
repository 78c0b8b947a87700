"""A staggered event: everybody is woken, and others have a turn between."""

from __future__ import annotations

import asyncio

from schemas.limits import WAKE_SHARES
from service.live.staggered_event import StaggeredEvent, wait_for_share


def test_everybody_wakes_and_other_work_comes_in_between() -> None:
    async def story() -> list[str]:
        event, order = StaggeredEvent(), []

        async def wait() -> None:
            await wait_for_share(event.share(), 10)
            order.append("woken")

        async def other() -> None:
            for _ in range(WAKE_SHARES):
                order.append("other")
                await asyncio.sleep(0)

        waiting = [asyncio.create_task(wait()) for _ in range(10 * WAKE_SHARES)]
        await asyncio.sleep(0.01)
        event.set(asyncio.get_running_loop())
        await asyncio.gather(*waiting, other())
        return order

    order = asyncio.run(story())
    assert order.count("woken") == 10 * WAKE_SHARES
    longest = max(len(run) for run in "".join(word[0] for word in order).split("o"))
    assert longest < 10 * WAKE_SHARES / 2


def test_a_share_taken_before_a_set_is_set_by_it_and_one_taken_after_it_is_not() -> None:
    async def story() -> tuple[bool, bool]:
        event = StaggeredEvent()
        before = event.share()
        event.set(asyncio.get_running_loop())
        after = event.share()
        await wait_for_share(before, 1)
        await wait_for_share(after, 0.01)
        return before.is_set(), after.is_set()

    assert asyncio.run(story()) == (True, False)
