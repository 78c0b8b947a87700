"""The pulse: everybody is woken, and others have a turn between."""

from __future__ import annotations

import asyncio

from schemas.limits import PULSE_SHARES
from service.live.pulse import Pulse, wait_for_beat


def test_everybody_wakes_and_other_work_comes_in_between() -> None:
    async def story() -> list[str]:
        pulse, order = Pulse(), []

        async def wait() -> None:
            await wait_for_beat(pulse.share(), 10)
            order.append("woken")

        async def other() -> None:
            for _ in range(PULSE_SHARES):
                order.append("other")
                await asyncio.sleep(0)

        waiting = [asyncio.create_task(wait()) for _ in range(10 * PULSE_SHARES)]
        await asyncio.sleep(0.01)
        pulse.beat(asyncio.get_running_loop())
        await asyncio.gather(*waiting, other())
        return order

    order = asyncio.run(story())
    assert order.count("woken") == 10 * PULSE_SHARES
    longest = max(len(run) for run in "".join(word[0] for word in order).split("o"))
    assert longest < 10 * PULSE_SHARES / 2


def test_a_share_taken_before_a_beat_is_set_by_it_and_one_taken_after_it_is_not() -> None:
    async def story() -> tuple[bool, bool]:
        pulse = Pulse()
        before = pulse.share()
        pulse.beat(asyncio.get_running_loop())
        after = pulse.share()
        await wait_for_beat(before, 1)
        await wait_for_beat(after, 0.01)
        return before.is_set(), after.is_set()

    assert asyncio.run(story()) == (True, False)
