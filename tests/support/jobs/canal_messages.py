"""Canal-json messages of single changes, for tests of a running job."""

from __future__ import annotations

import json
from random import Random
from typing import Any

Rows = list[dict[str, Any]]


def message(kind: str, rows: Rows | None, old: Rows | None = None, **fields: Any) -> bytes:
    """Return a message as canal writes it."""
    head = {"database": "shop", "table": "product", "isDdl": False, "es": 1_000, "ts": 1_001}
    return json.dumps({**head, "type": kind, "data": rows, "old": old, **fields}).encode()


def row(k: str | None, v: object) -> dict[str, Any]:
    return {"k": k, "v": v}


def insert(*rows: dict[str, Any], **fields: Any) -> bytes:
    return message("INSERT", list(rows), **fields)


def delete(*rows: dict[str, Any]) -> bytes:
    return message("DELETE", list(rows))


def timed_messages(random: Random, live: list[dict[str, str | None]]) -> list[tuple[int, bytes]]:
    """Inserts and deletes of rows around 1970, in two partitions; some rows have no time."""
    made: list[tuple[int, bytes]] = []
    for _ in range(40):
        second = f"1970-01-01 00:00:{random.randint(0, 19):02}.{random.randint(0, 999):03}"
        if random.random() < 0.7 or not live:
            time = None if random.random() < 0.05 else second
            live.append({"k": random.choice("abc"), "v": str(random.randint(1, 9)), "t": time})
            document = {"type": "INSERT", "data": [live[-1]]}
        else:
            document = {"type": "DELETE", "data": [live.pop(random.randrange(len(live)))]}
        made.append((random.randint(0, 1), json.dumps(document).encode()))
    return made
