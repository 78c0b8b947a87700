"""Published messages of jobs, without their timestamps."""

from __future__ import annotations

import json


def without_moments(messages: list[tuple[int, bytes]]) -> list[tuple[int, object]]:
    """Return messages without the fields `es` and `ts`, which differ between runs."""
    found: list[tuple[int, object]] = []
    for partition, value in messages:
        try:
            message = json.loads(value)
        except ValueError:
            found.append((partition, value[:40]))
            continue
        found.append((partition, {k: v for k, v in message.items() if k not in ("es", "ts")}))
    return found
