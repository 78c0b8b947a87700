"""Views with windows that close, and their messages."""

from __future__ import annotations

import json
from typing import Any

WINDOWS = {
    "query": "SELECT k, window_start, window_end, COUNT(*) AS hits FROM t "
    "GROUP BY k, TUMBLE(t, INTERVAL '10' SECOND)",
    "state": {"buckets": 4},
}
KEYS: dict[str, Any] = {
    "columns": {"k": "STRING", "t": "TIMESTAMP(3)"},
    "watermark": {"time": {"column": "t"}, "delay": "1s", "idle_after": "never"},
}


def at(second: int, k: str = "a") -> bytes:
    time = f"1970-01-01 00:{second // 60:02}:{second % 60:02}.000"
    return json.dumps({"type": "INSERT", "data": [{"k": k, "t": time}]}).encode()
