"""HTTP as people expect it: HEAD, OPTIONS, Allow, gzip, slashes, request ids, names of operations.

Python's own client and httpx are the other side, over connections that are kept alive.
"""

from __future__ import annotations

import gzip
import http.client
import json
import keyword
import logging
import shutil
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.datastructures import Headers

from schemas.limits import GZIP_BYTES_MIN, REQUEST_ID_CHARACTERS_MAX
from service.request_ids import JsonFormat, TextFormat, enter_request
from tests.support.service.served import SPEC, Served, problem
from tests.support.service.tables import WatchedTable

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NAMES = {"name": "items", "key": "a", "id": "none", "savepoint": "none", "topic": "t"}


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    watched.write({f"group-{number}": (number,) for number in range(200)} | {"a": (1, 5)})
    watched.seen()
    return watched


@pytest.fixture(scope="module")
def paths(watched: WatchedTable) -> dict[str, Any]:
    with watched.served.client() as client:
        found: dict[str, Any] = client.get("/openapi.json").json()["paths"]
    return found


def ask(connection: http.client.HTTPConnection, method: str, path: str, **headers: str) -> Any:
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer, answer.read()


def test_head_is_get_without_a_body_wherever_get_is(
    watched: WatchedTable, paths: dict[str, Any]
) -> None:
    known = [path.format_map(NAMES) for path, methods in paths.items() if "get" in methods]
    connection = http.client.HTTPConnection(urlsplit(watched.served.address).netloc, timeout=20)
    asked = 0
    for path in ["/", "/jobs/items", "/favicon.ico", *known]:
        if path.startswith("/v1/topics") or path in ("/metrics", "/v1/jobs/items/changes"):
            continue  # no broker; another text each time; an endless stream, which is below
        head, nothing = ask(connection, "HEAD", path)
        get, body = ask(connection, "GET", path)
        assert (head.status, nothing) == (get.status, b""), path
        for name in ("Content-Type", "ETag", "Location"):
            assert head.getheader(name) == get.getheader(name), path
        assert head.getheader("Content-Length") == str(len(body)) or path == "/", path
        asked += 1
    assert asked > 20


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_head_of_a_stream_ends_with_its_headers(watched: WatchedTable, accept: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(watched.served.address).netloc, timeout=20)
    for _ in range(3):
        head, nothing = ask(connection, "HEAD", "/v1/jobs/items/changes?since=0", Accept=accept)
        assert (head.status, nothing) == (200, b"")
        assert head.getheader("Content-Type").startswith(accept)
    _, text = ask(connection, "GET", "/metrics")
    assert b"\nretally_followers 0\n" in text


def test_allow_has_the_methods_that_are_not_refused(
    watched: WatchedTable, paths: dict[str, Any]
) -> None:
    with watched.served.client() as client:
        for template, methods in paths.items():
            path = template.format_map(NAMES)
            wanted = {method.upper() for method in methods} | {"OPTIONS"}
            wanted |= {"HEAD"} if "GET" in wanted else set()
            told = client.options(path)
            assert (told.status_code, told.content) == (204, b"")
            assert set(told.headers["allow"].split(", ")) == wanted, path
            refused = client.request("TRACE", path)
            problem(refused, 405, "method-not-allowed")
            assert refused.headers["allow"] == told.headers["allow"]
        assert client.options("/").headers["allow"] == "GET, HEAD, OPTIONS"
        problem(client.options("/v1/nothing"), 404, "not-found")


def test_long_answers_are_compressed_and_streams_are_not(watched: WatchedTable) -> None:
    connection = http.client.HTTPConnection(urlsplit(watched.served.address).netloc, timeout=20)
    listing = "/v1/jobs/items/results?limit=200"
    plain, body = ask(connection, "GET", listing)
    packed, less = ask(connection, "GET", listing, **{"Accept-Encoding": "gzip"})
    assert plain.getheader("Content-Encoding") is None
    assert packed.getheader("Content-Encoding") == "gzip"
    assert packed.getheader("ETag") == plain.getheader("ETag")
    assert gzip.decompress(less) == body
    assert len(less) < len(body) / 3
    assert "Accept-Encoding" in packed.getheader("Vary") and "Accept-Encoding" in plain.getheader(
        "Vary"
    )
    small, few = ask(connection, "GET", "/healthz", **{"Accept-Encoding": "gzip"})
    assert small.getheader("Content-Encoding") is None and len(few) < GZIP_BYTES_MIN
    with watched.served.client() as client:
        for accept in ("text/event-stream", "application/x-ndjson"):
            address, headers = "/v1/jobs/items/changes?snapshot=true", {"Accept": accept}
            with client.stream("GET", address, headers=headers) as stream:
                assert "gzip" in stream.request.headers["accept-encoding"]
                assert "content-encoding" not in stream.headers
                assert any("group-199" in line for line in stream.iter_lines())


def test_a_slash_too_many_leads_to_the_resource_with_method_query_and_body(
    watched: WatchedTable,
) -> None:
    with watched.served.client() as client:
        moved = client.put("/v1/jobs/slashed/?replace=false", content=SPEC)
        assert (moved.status_code, moved.headers["location"]) == (308, "../slashed?replace=false")
        followed = client.put("/v1/jobs/slashed/", content=SPEC, follow_redirects=True)
        assert (followed.status_code, followed.json()["name"]) == (201, "slashed")
        for path in ("/v1/jobs", "/v1/jobs/items/results/group-7", "/jobs/items", "/topics"):
            found = client.get(f"{path}/", follow_redirects=True)
            assert (found.url.path, len(found.history)) == (path, 1)
            assert found.history[0].status_code == 308
        for path in ("/v1/jobs//", "/nothing/", "/v1/jobs/items/results/a%2Fb/"):
            problem(client.get(path), 404, "not-found")


def test_the_icon_is_where_browsers_look(watched: WatchedTable) -> None:
    with watched.served.client() as client:
        icon = client.get("/favicon.ico", follow_redirects=True)
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.text.startswith("<svg")


def test_a_request_has_its_own_id_or_that_of_the_client(watched: WatchedTable) -> None:
    longest = "r" * REQUEST_ID_CHARACTERS_MAX
    with watched.served.client() as client:
        for path in ("/v1/jobs/items/results/a", "/v1/jobs", "/nowhere", "/v1/jobs/"):
            given = {"X-Request-Id": longest, "traceparent": TRACE}
            taken = client.get(path, headers=given).headers
            assert (taken["x-request-id"], taken["traceparent"]) == (longest, TRACE)
            bad = {"X-Request-Id": f"{longest}r", "traceparent": TRACE.replace("4bf9", "4BF9")}
            made = [client.get(path, headers=bad).headers for _ in range(2)]
            assert len({each["x-request-id"] for each in made} | {longest}) == 3
            assert all(len(each["x-request-id"]) == 32 for each in made)
            assert not any("traceparent" in each for each in made)


def test_lines_of_the_log_have_the_ids_of_their_request() -> None:
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        error = sys.exc_info()
    record = logging.LogRecord("service", logging.ERROR, "x.py", 1, "%s broke", ("it",), error)
    assert TextFormat().format(record).splitlines()[0].endswith(" ERROR it broke")
    enter_request(Headers({"x-request-id": "id-7", "traceparent": TRACE}))
    first, *stack = TextFormat().format(record).splitlines()
    assert first.endswith(f" ERROR it broke request_id=id-7 traceparent={TRACE}")
    assert stack[0].startswith("Traceback")
    line = JsonFormat().format(record)
    assert "\n" not in line
    document = json.loads(line)
    assert document["exception"].endswith("RuntimeError: two\nlines")
    assert (document["level"], document["message"]) == ("ERROR", "it broke")
    assert (document["request_id"], document["traceparent"]) == ("id-7", TRACE)
    for bad in ("id\n7", "id 7", '"', "ä", ""):
        (header,) = enter_request(Headers(raw=[(b"x-request-id", bad.encode("latin-1"))]))
        assert header[1].decode() != bad and len(header[1]) == 32


def test_operations_are_named_as_functions(paths: dict[str, Any]) -> None:
    operations = [each for methods in paths.values() for each in methods.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    verbs = """answer approve audit check clone create delete explain get list login logout make
        move pause put read replay reset restart resume rewind start stop suggest validate"""
    assert {name.partition("_")[0] for name in names} == set(verbs.split())
    problems = {
        json.dumps(answer["content"])
        for each in operations
        for status, answer in each["responses"].items()
        if status[0] in "45" and status != "503"  # of /readyz
    }
    assert problems == {
        json.dumps(
            {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        )
    }


def test_metrics_have_base_units_the_build_and_the_disk(watched: WatchedTable) -> None:
    watched.table.epoch({("a",): (3,)}, event_lag_ms=1_250)
    watched.seen()
    with watched.served.client() as client:
        text: str = client.get("/metrics").text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert samples['retally_job_event_lag_seconds{job="items"}'] == "1.25"
    assert samples['retally_job_event_lag_ms{job="items"}'] == "1250"  # until 0.3
    (build,) = [name for name in samples if name.startswith("retally_build_info{")]
    assert f'python="{sys.version.split()[0]}"' in build
    disk = shutil.disk_usage(watched.served.data)
    assert float(samples["retally_data_disk_bytes"]) == disk.total
    assert abs(float(samples["retally_data_free_bytes"]) - disk.free) < 2**30
