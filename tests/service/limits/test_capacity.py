"""Capacity: bounds on connections fit into the open files that a process may have."""

from __future__ import annotations

import pytest

from schemas.limits import DESCRIPTORS_WANTED
from service.limits.capacity import Capacity, derive_capacity


@pytest.mark.parametrize("descriptors", [16, 64, 256, 1_024, 4_096, 1_000_000])
def test_connections_leave_a_quarter_of_the_descriptors(descriptors: int) -> None:
    capacity = derive_capacity(descriptors)
    assert capacity.connections <= descriptors * 3 / 4
    assert min(capacity.followers, capacity.waiting, capacity.requests) >= 1


def test_with_what_is_asked_for_nothing_is_lowered() -> None:
    assert (
        derive_capacity(DESCRIPTORS_WANTED)
        == Capacity()
        == derive_capacity(10 * DESCRIPTORS_WANTED)
    )
    assert derive_capacity(1_024) != Capacity()
