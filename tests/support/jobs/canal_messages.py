"""Canal-json messages of single changes, for tests of a running job."""

from __future__ import annotations

import json
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
