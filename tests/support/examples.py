"""How many examples a property is tried with: few in a run of the tests, many in `make faults`."""

from __future__ import annotations

import os

from hypothesis import settings

# A machine that is busy is no failure, so no example has a deadline.
_TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> settings:
    """Try a property with so many examples; EXAMPLES=20 with twenty times as many."""
    return settings(max_examples=count * _TIMES, deadline=None)
