"""How SQL orders values."""

from __future__ import annotations

import math
from typing import Any

from jobs.core.values.change import Value


def sql_rank(value: Value) -> tuple[int, Any]:
    """Return a sort key with the order that encoded keys must have."""
    if value is None:
        return (0, 0)
    if isinstance(value, tuple):
        return (1, tuple(map(sql_rank, value)))
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)
