"""What a client of the service gets wrong: the answer has the mistake and the correction.

The mistakes in specs, arguments and surroundings are in tests/jobs/cli/test_mistakes.py; these only
a service can show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable

JOB, NEW = "/v1/jobs/items", "/v1/jobs/new"
SPEC = {
    "source": {"topic": "t"},
    "columns": {"name": "STRING", "v": "INT"},
    "query": "SELECT name, COUNT(*) AS n FROM t GROUP BY name",
}
ELSEWHERE = SPEC | {"source": {"topic": "t", "connection": "prod"}}

# Method, address and body; status and code; what is wrong; what to do.
MISTAKES: dict[str, tuple[str, str, Any, int, str, str, str]] = {
    "another job": ("GET", "/v1/jobs/itmes", None, 404, "job-unknown", "'itmes'", "'items'?"),
    "results of another job": (
        *("GET", "/v1/jobs/itmes/results", None),
        *(404, "job-unknown", "'itmes'", "did you mean 'items'?"),
    ),
    "a parameter": (
        *("GET", f"{JOB}/results?asof=epoch:1", None),
        *(422, "parameter-unknown", "'asof'", "known: after_offset, as_of"),
    ),
    "an epoch without its word": (
        *("GET", f"{JOB}/results?as_of=3", None),
        *(422, "parameter-invalid", "query.as_of", "write as_of=epoch:N"),
    ),
    "an epoch of the future": (
        *("GET", f"{JOB}/results?as_of=epoch:999", None),
        *(404, "epoch-unknown", "no epoch 999 yet", "the newest is 2"),
    ),
    "an order": (
        *("GET", f"{JOB}/results?order=totl", None),
        *(422, "column-unknown", "'totl'", "they have name, total, top"),
    ),
    "a condition": (
        *("GET", f"{JOB}/results?where=total", None),
        *(422, "parameter-invalid", "'total' is not a condition", "write total>=10"),
    ),
    "a limit": (
        *("GET", f"{JOB}/results?limit=0", None),
        *(422, "parameter-invalid", "query.limit", "greater than or equal to 1"),
    ),
    "a position": (
        *("GET", f"{JOB}/changes?since=x", None),
        *(422, "parameter-invalid", "'x' is not a position", "EPOCH, EPOCH:SEQ or an id"),
    ),
    "a message": (
        *("GET", f"{JOB}/quarantine/1-t-0-0", None),
        *(404, "not-found", "no such message", "its listing has the ids"),
    ),
    "another name in the spec": (
        *("PUT", NEW, SPEC | {"name": "other"}),
        *(422, "spec-invalid", "differs from the name in the address", "change or remove it"),
    ),
    "a key": (
        *("PUT", NEW, SPEC | {"snik": {"topic": "x"}}),
        *(422, "spec-invalid", "unknown key 'snik'", "did you mean 'sink'?"),
    ),
    "a connection": (*("PUT", NEW, ELSEWHERE), *(422, "spec-invalid", "'prod'", "--connections")),
    "another query": (
        *("PUT", JOB, SPEC),
        *(409, "query-fixed", "of another query", "add ?replace=true"),
    ),
    "a field": (
        *("POST", f"{JOB}/rewind", {"epoch": 1}),
        *(422, "body-invalid", "unknown field `epoch`", "known: to"),
    ),
    "a savepoint's name": (
        *("POST", f"{JOB}/savepoints", {"name": "A b"}),
        *(422, "body-invalid", "body.name", "letters, digits"),
    ),
    "nothing to approve": (
        *("POST", f"{JOB}/approve", None),
        *(409, "nothing-pending", "'items'", "no pending spec"),
    ),
    "SQL that writes": (
        *("POST", "/v1/sql", {"sql": "DROP TABLE items"}),
        *(422, "sql-refused", "DROP is not possible", "with SELECT"),
    ),
    "a table in SQL": (
        *("POST", "/v1/sql", {"sql": "SELECT * FROM itmes"}),
        *(422, "sql-refused", "there is no job 'itmes'", "the jobs are items"),
    ),
    "a column in SQL": (
        *("POST", "/v1/sql", {"sql": "SELECT totl FROM items"}),
        *(422, "sql-refused", '"totl" not found', 'bindings: "total"'),
    ),
    "two statements": (
        *("POST", "/v1/sql", {"sql": "SELECT 1; SELECT 2"}),
        *(422, "sql-refused", "2 statements", "write one SELECT"),
    ),
}


@pytest.fixture(scope="module")
def watched(served: Served) -> Iterator[WatchedTable]:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)}, {"a": (1,), "c": (7,)})
    watched.seen()
    yield watched


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_what_is_wrong_and_what_to_do(
    mistake: str, watched: WatchedTable, client: httpx.Client
) -> None:
    method, path, body, status, code, wrong, right = MISTAKES[mistake]
    refused = client.request(method, path, json=body)
    found = refused.json()
    assert (refused.status_code, found["code"]) == (status, code), found
    assert wrong in refused.text.replace('\\"', '"'), found
    assert right in refused.text.replace('\\"', '"'), found
    assert "sqlite_master" not in refused.text
