"""The demo's two jobs: one over the shop's table, one over the changes of the first.

    shop.product ──► items: a row a name ──► items-changes ──► ages: a row a window ──► ages-changes

`ages` counts the names whose oldest product is from the same ten seconds, and sums their stock. A
name leaves its window when that product is sold, so windows shrink and disappear.
"""

from __future__ import annotations

from datetime import datetime

from jobs.demo.shop import TABLE_COLUMNS, Truth
from schemas.types.json_types import JsonObject

SOURCE_TOPIC, SINK_TOPIC, PARTITIONS = "shop.product", "items-changes", 4
WINDOW_SECONDS = 10
_MINIBATCH = {"size": 5000, "latency": "1s"}

ITEMS: JsonObject = {
    "name": "items",
    "source": {"topic": SOURCE_TOPIC, "database": "shop", "table": "product"},
    "columns": TABLE_COLUMNS,
    "query": "SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n, MIN(created) AS oldest "
    "FROM product GROUP BY name",
    "minibatch": _MINIBATCH,
    "mirror": "off",  # the first comes after a minute, and the demo should start fast
    "sink": {"topic": SINK_TOPIC, "partitions": PARTITIONS},
}
AGES: JsonObject = {
    "name": "ages",
    "source": {"topic": SINK_TOPIC, "format": "changelog-json"},
    "columns": {"name": "STRING", "sum_cnt": "INT", "top": "INT", "oldest": "TIMESTAMP(3)"},
    "query": "SELECT window_start, COUNT(*) AS names, "  # noqa: S608 - our own query
    "SUM(sum_cnt) AS stock, MAX(top) AS top "
    f"FROM items GROUP BY TUMBLE(oldest, INTERVAL '{WINDOW_SECONDS}' SECOND)",
    "watermark": {"time": {"column": "oldest"}},
    "minibatch": _MINIBATCH,
    "mirror": "off",
    "sink": {"topic": "ages-changes", "partitions": 1},
}
SPECS = (ITEMS, AGES)

# What to try in another terminal, below the address of the service's jobs.
TOUR = {
    "the current result of a group": "curl {jobs}/items/results/bolt",
    "explain it: the values behind MAX, the epochs that changed it, their source offsets": (
        "curl {jobs}/items/results/bolt/explain"
    ),
    "follow its changes: each retraction comes before the row that replaces it": (
        "curl -N '{jobs}/items/changes?key=bolt'"
    ),
    "a second job over the changes of the first: windows that shrink and disappear": (
        "curl '{jobs}/ages/results?order=window_start' -H 'Accept: text/csv'"
    ),
    "messages that are bad on purpose, each with the reason of its refusal": (
        "curl '{jobs}/items/quarantine?limit=3'"
    ),
}


def compute_ages(items: Truth) -> list[JsonObject]:
    """Compute the results of the second job from those of the first, without the job."""
    windows: dict[str, list[JsonObject]] = {}
    for row in items.values():
        oldest = datetime.fromisoformat(row["oldest"])
        start = oldest.replace(second=oldest.second - oldest.second % WINDOW_SECONDS, microsecond=0)
        windows.setdefault(start.isoformat(" "), []).append(row)
    return [
        {
            "window_start": start,
            "names": len(rows),
            "stock": sum(row["sum_cnt"] for row in rows),
            "top": max(row["top"] for row in rows),
        }
        for start, rows in sorted(windows.items())
    ]
