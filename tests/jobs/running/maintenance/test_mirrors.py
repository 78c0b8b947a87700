"""A mirror takes its share of the time."""

from __future__ import annotations

import pytest

from jobs.running.mirror import find_rest
from schemas import limits


@pytest.mark.parametrize("seconds", [0.0, 0.5, 12.0])
def test_a_refresh_takes_its_share_of_the_time(seconds: float) -> None:
    rest = find_rest(seconds)
    assert seconds <= (seconds + rest) * limits.MIRROR_SHARE_MAX * (1 + 1e-9)
