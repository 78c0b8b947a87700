"""Plain events in replay: inserts, whose time closes windows; bad ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.offline.replay import ReplayError, replay

QUERY = (
    "SELECT shop, window_start, SUM(amount) AS total FROM orders "
    "GROUP BY shop, TUMBLE(at, INTERVAL '10' SECOND)"
)
ORDERS: dict[str, Any] = {
    "name": "orders",
    "columns": {"shop": "STRING", "amount": "INT", "at": "TIMESTAMP(3)"},
    "query": QUERY,
    "watermark": {"time": {"column": "at"}, "delay": "5s", "exact": True},
    "emit": "final",
}
CSV = [
    "a,1,2026-01-31 12:00:00",
    "a,2,2026-01-31 12:00:09.999",
    "a,x,2026-01-31 12:00:09",
    "a,4,2026-01-31 12:00:15",
    "a,8,2026-01-31 12:00:09",
    '"b",16,2026-01-31 12:00:16',
]
JSON = [
    json.dumps({"shop": {"name": shop.strip('"')}, "amount": amount, "at": at})
    for shop, amount, at in (line.split(",") for line in CSV)
]


@pytest.mark.parametrize(
    ("source", "messages", "path"),
    [
        ({"format": "csv"}, CSV, "amount"),
        ({"format": "json", "json": {"paths": {"shop": "shop.name"}}}, JSON, "$.amount"),
    ],
    ids=["csv", "json"],
)
def test_windows_over_events_close_as_their_time_passes(
    source: dict[str, Any], messages: list[str], path: str
) -> None:
    steps = [step for text in messages for step in ({"message": text}, {"flush": True})]
    found = list(replay({**ORDERS, "source": {"topic": "t", **source}}, steps))
    rows = [each["row"] for each in found if "op" in each]
    assert rows == [
        {"shop": "a", "window_start": "2026-01-31 12:00:00", "total": 3},
        {"shop": "a", "window_start": "2026-01-31 12:00:10", "total": 4},
        {"shop": "b", "window_start": "2026-01-31 12:00:10", "total": 16},
    ]
    (late,) = [each["late"] for each in found if "late" in each]
    assert (late["row"]["amount"], late["weight"]) == (8, 1)
    (rejected,) = [each["rejected"] for each in found if "rejected" in each]
    assert "'x' is not a valid INT" in rejected["reason"]
    assert (rejected["offset"], path in str(rejected)) == (2, True)


def test_epoch_milliseconds_are_a_time_too() -> None:
    spec = {
        **ORDERS,
        "source": {"topic": "t", "format": "json"},
        "columns": {**ORDERS["columns"], "at": "BIGINT"},
    }
    steps = [{"message": json.dumps({"shop": "a", "amount": 1, "at": at})} for at in (5, 9_999)]
    rows = [each["row"] for each in replay(spec, steps) if "op" in each]
    assert rows == [{"shop": "a", "window_start": 0, "total": 2}]


def test_an_omitted_field_is_null_or_a_lost_column() -> None:
    spec: dict[str, Any] = {
        "name": "n",
        "source": {"topic": "t", "format": "json"},
        "columns": {"k": "STRING", "v": "INT"},
        "query": "SELECT k, COUNT(*) AS n, COUNT(v) AS v FROM t GROUP BY k",
    }
    steps = [{"message": '{"k": "a"}'}, {"message": '{"k": "a", "v": 1}'}]
    rows = [each["row"] for each in replay(spec, steps) if "op" in each]
    assert rows == [{"k": "a", "n": 2, "v": 1}]
    strict = {**spec, "source": {**spec["source"], "json": {"ignore_null_fields": False}}}
    with pytest.raises(ReplayError, match="v is missing in the message"):
        list(replay(strict, steps))
