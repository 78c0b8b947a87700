"""The responses of routes in the OpenAPI document, with examples."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from schemas.types.json_types import JsonObject
from service.documents import Problem, make_reference

SPEC_DOCUMENT = {
    "name": "items",
    "source": {"topic": "shop.product"},
    "columns": {"id": "BIGINT", "name": "STRING", "cnt": "INT"},
    "query": "SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name",
    "sink": {"topic": "items-changes"},
}
VIEWS = {
    "views": [
        {
            "name": "by-region",
            "query": "SELECT region, MAX(cnt) AS top FROM product GROUP BY region",
            "columns": ["region", "top"],
            "sink": "shop-by-region",
            "epoch": 41,
            "groups": 5,
        }
    ]
}
ROW = {"name": "bolt", "sum_cnt": 36120, "top": 998, "n": 71}
_JOB = {
    "name": "items",
    "revision": 1,
    "desired": "RUNNING",
    "actual": "RUNNING",
    "since": "2026-01-31T12:00:00.000Z",
    "reason": None,
    "failure": None,
    "failures": 0,
    "retry_at": None,
    "restart_needed": False,
    "epoch": 41,
    "watermark": 1769860799999,
    "groups": 13,
    "rates": {"read_per_second": 750.0, "changes_per_second": 310.0, "epochs_per_second": 1.0},
}
JOB = {**_JOB, "spec": {"name": "items", "source": {"topic": "shop.product"}}}
JOBS = {"jobs": [_JOB], "next_cursor": None}
VALID = {
    "valid": True,
    "columns": [{"name": "name", "type": "STRING"}],
    "views": {"top": [{"name": "top", "type": "INT"}]},
    "notes": [],
    "spec": {"name": "items"},
}
SQL_ANSWER = {
    "epochs": {"items": 41},
    "columns": [{"name": "name", "type": "STRING"}],
    "rows": [{"name": "bolt"}],
}
PLAN = {
    "nodes": [
        {
            "id": "sink",
            "type": "Sink",
            "predecessors": ["table"],
            "attributes": {"topic": "items-changes", "format": "changelog-json"},
        }
    ],
    "views": {},
}
LOGS = {
    "lines": [
        {"time": "2026-01-31 12:00:00.000", "level": "INFO", "message": "epoch 41: 750 messages"}
    ]
}
_STATUS = {
    400: "The request cannot be parsed",
    404: "Not found",
    406: "Unsupported media type",
    409: "The job's state does not allow it",
    410: "Retention has removed the history",
    412: "A precondition of the request failed",
    413: "The body is too large",
    422: "Invalid request; `errors` lists every error",
    429: "Too many requests",
    501: "Not supported by this installation",
    502: "The brokers advertise an address that is not allowed",
    503: "Temporarily unavailable",
}


def describe_responses(
    document: type[msgspec.Struct] | None,
    example: Any,
    *problems: int,
    status: int = 200,
    media: Mapping[str, Any] = MappingProxyType({}),
) -> dict[int | str, Any]:
    """Return the responses of a route: success with an example, and the possible problems.

    `media` are other media types of the response with their examples, None for binary data.
    """
    content: JsonObject = {}
    if document is not None:
        content["application/json"] = {"schema": make_reference(document), "example": example}
    for name, shown in media.items():
        schema = {"schema": {"type": "string", "format": "binary"}}
        content[str(name)] = schema if shown is None else {"example": shown}
    found: dict[int | str, Any] = {}
    found[status] = {"description": "Success"} | ({"content": content} if content else {})
    for each in sorted({401, 403, 422, *problems}):
        descriptions = {401: "No valid token", 403: "The role of the token is too low"}
        found[each] = {
            "description": {**_STATUS, **descriptions}[each],
            "content": {"application/problem+json": {"schema": make_reference(Problem)}},
        }
    return found


# The response to a client that has the newest epoch already, without a body.
NOT_MODIFIED: dict[int | str, Any] = {304: {"description": "Nothing newer than If-None-Match"}}


def describe_body(
    properties: JsonObject, example: JsonObject, required: list[str] | None = None
) -> JsonObject:
    """Return the schema of a body: a JSON object with these properties only."""
    schema: JsonObject = {"type": "object", "properties": properties}
    schema |= {"additionalProperties": False, "required": required or []}
    return {
        "requestBody": {
            "required": bool(required),
            "content": {"application/json": {"schema": schema, "example": example}},
        }
    }
