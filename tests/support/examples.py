"""The number of examples of a property test: a share of them in `make test`, many in `make faults`.

EXAMPLES=1 runs what the test names, as the search for mutants does, and EXAMPLES=20 twenty times
as many.
"""

from __future__ import annotations

import os

from hypothesis import settings

_SHARE = float(os.environ.get("EXAMPLES", "0.2"))
_LEAST = 10


def scale(count: int) -> int:
    """Return how many of `count` examples this run tries."""
    return max(min(count, _LEAST), round(count * _SHARE))


def examples(count: int) -> settings:
    """Run a property test with `count` examples; a busy machine is no failure of any."""
    return settings(max_examples=scale(count), deadline=None)
