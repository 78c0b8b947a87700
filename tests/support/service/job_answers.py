"""What jobs answer, without the moments in it."""

from __future__ import annotations

import json


def without_moments(messages: list[tuple[int, bytes]]) -> list[tuple[int, object]]:
    """Without the moments at which they were made."""
    found: list[tuple[int, object]] = []
    for partition, value in messages:
        try:
            told = json.loads(value)
        except ValueError:
            found.append((partition, value[:40]))
            continue
        found.append((partition, {k: v for k, v in told.items() if k not in ("es", "ts")}))
    return found
