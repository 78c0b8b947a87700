"""Follow a job's changes over HTTP, and fold them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.service.served import Served

CHANGES = "/v1/jobs/items/changes"


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    id: str | None
    data: dict[str, Any]


def events(lines: Iterator[str]) -> Iterator[Event]:
    """Parse server-sent events as the standard describes."""
    kind, identity, data = "message", None, ""
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            yield Event(kind, identity, json.loads(data))
            kind, identity, data = "message", None, ""
        elif name == "event":
            kind = value
        elif name == "id":
            identity = value
        elif name == "data":
            data += value


@contextmanager
def following(served: Served, headers: dict[str, str] | None = None, **params: Any) -> Any:
    with (
        served.client(**(headers or {})) as client,
        client.stream("GET", CHANGES, params=params) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer.iter_lines())


def folded(taken: list[Event], rows: dict[Any, Any] | None = None) -> dict[Any, tuple[int, int]]:
    """Apply changes one by one, each checked against the current row."""
    found = {} if rows is None else dict(rows)
    for event in taken:
        if event.kind != "change":
            continue
        name, row = event.data["row"]["name"], event.data["row"]
        value = (row["total"], row["top"])
        if event.data["op"] == "+I":
            assert name not in found
            found[name] = value
        elif event.data["op"] == "+U":
            found[name] = value
        else:
            assert found[name] == value
            if event.data["op"] == "-D":
                del found[name]
    return found
