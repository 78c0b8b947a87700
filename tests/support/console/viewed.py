"""A job with several views, whose table is written without Spark."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.console.shop import Shop, put
from tests.support.service.served import Served, eventually

VIEWED = "viewed"
LEAST = "SELECT name, MIN(v) AS least FROM t GROUP BY name"
MOST = "SELECT name, MAX(v) AS most FROM t GROUP BY name HAVING MAX(v) > 1"


def put_views(client: httpx.Client, **views: str) -> None:
    """Put the job's spec with these views, to be approved."""
    spec = client.get(f"/v1/jobs/{VIEWED}").json()["spec"]
    spec["views"] = {
        name: {"query": query, "state": {"buckets": 4}} for name, query in views.items()
    }
    answer = client.put(f"/v1/jobs/{VIEWED}", json=spec, params={"replace": True})
    assert answer.status_code == 200, answer.text


def approve(client: httpx.Client) -> None:
    """Approve the pending spec, and wait until the job has its views."""
    place = client.post(f"/v1/jobs/{VIEWED}/approve").headers["location"]
    ended = ("DONE", "FAILED")
    done: dict[str, Any] = eventually(
        lambda: (seen := client.get(place).json())["state"] in ended and seen, 60
    )
    assert done["state"] == "DONE", done


def put_viewed(served: Served) -> None:
    """Create the job with both views."""
    table = Shop(served.data, VIEWED)
    table.write({"bolt": (7, 9), "nut": (1,)}, {"bolt": (7,), "nut": (1, 4)})
    put(served, table)
    with served.client() as client:
        put_views(client, least=LEAST, most=MOST)
        approve(client)
