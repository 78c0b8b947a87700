"""Who may ask by SQL at once."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from starlette.requests import Request

from service.access.tokens import Role
from service.limits.sql_slots import SqlSlots
from service.problems import Problem


def of(who: str, role: Role = Role.VIEWER, by: str = "token") -> Request:
    return Request({"type": "http", "state": {"who": who, "role": role, "by": by}})


def test_a_token_holds_one_slot_and_others_leave_one_for_admins() -> None:
    slots = SqlSlots()
    with ExitStack() as held:
        held.enter_context(slots.hold(of("ana")))
        with pytest.raises(Problem, match="of this token"), slots.hold(of("ana")):
            pass
        held.enter_context(slots.hold(of("ben", Role.OPERATOR)))
        with pytest.raises(Problem, match="2 statements are being answered"), slots.hold(of("eva")):
            pass
        held.enter_context(slots.hold(of("root", Role.ADMIN)))
        with pytest.raises(Problem), slots.hold(of("root2", Role.ADMIN)):
            pass
    with slots.hold(of("ana")):
        pass


def test_on_an_open_service_each_client_may_use_all_slots() -> None:
    slots = SqlSlots()
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(slots.hold(of("local", Role.ADMIN, "loopback")))
        with pytest.raises(Problem, match="3 statements"):
            held.enter_context(slots.hold(of("local", Role.ADMIN, "loopback")))
