"""The number of examples of a property test: few in `make test`, many in `make faults`."""

from __future__ import annotations

import os

from hypothesis import settings

# A machine that is busy is no failure, so no example has a deadline.
_TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> settings:
    """Run a property test with `count` examples; EXAMPLES=20 runs twenty times as many."""
    return settings(max_examples=count * _TIMES, deadline=None)
