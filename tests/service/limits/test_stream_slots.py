"""StreamSlots: a bound for all, and one for each token's name, except on an open service."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from service.limits.stream_slots import StreamSlots
from service.problems import Problem


def request(who: str, by: str) -> Request:
    return Request({"type": "http", "state": {"who": who, "by": by}})


@pytest.mark.parametrize(("by", "most"), [("token", 10), ("session", 10), ("loopback", 12)])
def test_a_token_leaves_a_share_and_an_open_service_has_one_bound(by: str, most: int) -> None:
    slots = StreamSlots(12)
    mine = request("eye", by)
    for _ in range(most):
        slots.acquire(mine)
    with pytest.raises(Problem) as refused:
        slots.acquire(mine)
    assert (refused.value.code, refused.value.status) == ("too-many-followers", 429)
    slots.release(mine)
    with slots.hold(mine):
        assert slots.total == most
    assert slots.total == most - 1
