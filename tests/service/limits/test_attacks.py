"""What may be done to a port: too many, too slow, too large, crooked names. Somebody else who asks
meanwhile is answered, and the service is what it was when it is over.

The short form has 1,500 connections; tests/faults/test_attacks.py has 10,000.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from schemas.limits import (
    DESCRIPTORS_WANTED,
    FOLLOWERS_A_TOKEN_SHARE,
    REQUEST_BYTES_MAX,
    REQUEST_HEAD_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    REQUESTS_UNANSWERED_MAX,
)
from service.access.tokens import Tokens
from service.limits.capacity import derive_capacity
from tests.support.faults.attackers import Health, asset_of, pipelined, place_of, request, statuses
from tests.support.faults.tally import FaultTally
from tests.support.service.crowd import GROWTH_BYTES_MAX, PATIENCE_SECONDS, Port, answered, crowd
from tests.support.service.served import SPEC, Served, end_jobs, eventually
from tests.support.service.tables import WatchedTable

CONNECTIONS = 1_500
HEALTH_SECONDS_MAX = 1.0  # while the port is attacked


def test_a_crowd_that_never_asks_keeps_nobody_out(served: Served) -> None:
    tally = FaultTally("service, crowd, short")
    crowd(served, CONNECTIONS, tally)
    tally.close()


def test_with_few_open_files_the_bounds_are_lower_and_nobody_is_kept_out(data: Path) -> None:
    log = data / "stderr"
    with log.open("wb") as errors:
        served = Served.start(data, files_max=(256, 256), errors=errors)
    try:
        output = log.read_text()
        assert "the limit of open files (ulimit -n) is 256" in output and "72 streams" in output
        unread = request(asset_of(served)) * REQUESTS_UNANSWERED_MAX
        with Port(served).many(400, b"GET / "), pipelined(place_of(served), 400, 1, unread):
            for _ in range(5):
                assert answered(served) < PATIENCE_SECONDS
            assert psutil.Process(served.process.pid).num_fds() < 256
    finally:
        assert served.stop() == 0
    assert "Too many open files" not in log.read_text()


def test_who_follows_as_often_as_it_may_leaves_room_for_others(data: Path) -> None:
    tokens = Tokens(data / "service" / "tokens.json")
    admin, viewer = tokens.add("boss", "admin"), tokens.add("eye", "viewer")
    served = Served.start(data, token=admin, files_max=(256, 256))
    most = int(derive_capacity(256).followers * FOLLOWERS_A_TOKEN_SHARE)
    try:
        watched = WatchedTable(served)
        watched.write({"a": (1,)})
        watched.seen()

        def follow(stack: ExitStack, token: str) -> int:
            connection = stack.enter_context(Port(served).connected())
            bearer = f"Authorization: Bearer {token}"
            connection.sendall(request("/v1/jobs/items/changes?since=0", bearer))
            return int(connection.recv(100).split()[1])

        with ExitStack() as stack:
            answers = [follow(stack, viewer) for _ in range(most + 3)]
            assert answers == [200] * most + [429] * 3
            bearer = {"Authorization": f"Bearer {viewer}", "Accept": "application/json"}
            with served.client(**bearer) as client:  # to wait for changes is to follow
                wait = client.get("/v1/jobs/items/changes?since=1&wait=5")
                later = client.get("/v1/jobs/items/results?min_epoch=9&wait=5")
                assert (wait.status_code, later.status_code) == (429, 429)
                assert client.get("/v1/jobs/items/results").status_code == 200
            assert follow(stack, admin) == 200
        eventually(lambda: open_streams(served) == 0)
    finally:
        assert served.stop() == 0
        end_jobs(data)


def open_streams(served: Served) -> int:
    with served.client() as client:
        found = re.search(r"^retally_followers (\d+)$", client.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_a_low_soft_limit_of_open_files_is_raised(data: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    log = data / "stderr"
    with log.open("wb") as errors:
        served = Served.start(data, files_max=(512, hard), errors=errors)
    try:
        answered(served)
        raised = min(hard, DESCRIPTORS_WANTED)
        assert f"raised the limit of open files from 512 to {raised}" in log.read_text()
    finally:
        assert served.stop() == 0


def test_a_head_without_an_end_is_refused_by_its_size(served: Served) -> None:
    port, before = Port(served), Port(served).process.memory_info().rss
    for endless in (b"X: " + b"a" * 70_000, b"X: y\r\n" * 20_000):
        output = port.exchange(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + endless)
        assert output.startswith(b"HTTP/1.1 431 "), output[:100]
    output = port.exchange(b"GET /" + b"a" * (REQUEST_HEAD_BYTES_MAX + 1_000))
    assert output.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")), output[:100]
    for _ in range(20):
        with port.connected() as connection:
            try:
                for _ in range(100):
                    connection.sendall(b"X" * 100_000)
            except ConnectionError:
                pass
    answered(served)
    assert port.process.memory_info().rss - before < GROWTH_BYTES_MAX


def test_a_head_above_the_bound_is_refused_even_when_it_comes_at_once(served: Served) -> None:
    output = Port(served).exchange(request("/healthz", "X: " + "a" * 100_000))
    assert output.startswith(b"HTTP/1.1 431 "), output[:100]


def test_a_connection_has_few_requests_unanswered(served: Served) -> None:
    """Some are answered, the last of them says that it is the last, and the rest is dropped."""
    few = Port(served).exchange(request("/healthz") * REQUESTS_UNANSWERED_MAX)
    assert few.count(b"HTTP/1.1 200 ") == REQUESTS_UNANSWERED_MAX
    assert b"connection: close" not in few
    body = "Content-Length: 4"
    for one in (
        request("/healthz"),
        request("/v1/jobs:validate", body, method="POST") + b"\r\n\r\n",
    ):
        output = Port(served).exchange(one * 60)
        assert output.count(b"HTTP/1.1 ") == REQUESTS_UNANSWERED_MAX, output[:300]
        assert output.count(b"connection: close") == 1


def test_pipelining_keeps_nobody_waiting(served: Served) -> None:
    place, asset = place_of(served), request(asset_of(served))
    with Health(place) as before:
        before.wait_for(20)
    with Health(place) as during, pipelined(place, 100, 60, asset) as attackers:
        during.wait_for(20)
        answers = statuses(attackers)
    assert during.failures == []
    assert during.worst < HEALTH_SECONDS_MAX + before.worst, (before.worst, during.seconds)
    assert answers.total() <= 100 * REQUESTS_UNANSWERED_MAX


@pytest.mark.parametrize("hosts", [0, 2])
def test_a_host_is_named_once(served: Served, hosts: int) -> None:
    head = b"GET /healthz HTTP/1.1\r\n" + b"Host: localhost\r\n" * hosts + b"\r\n"
    found = Port(served).exchange(head)
    assert found.startswith(b"HTTP/1.1 400 ") and b"host-refused" in found


@pytest.mark.slow
def test_a_request_that_does_not_come_is_given_up(served: Served) -> None:
    port = Port(served)
    with port.connected() as silent, port.connected() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        began = time.monotonic()
        while time.monotonic() - began < REQUEST_SECONDS_MAX + 5:
            try:
                slow.sendall(b"X: y\r\n")  # a word now and then changes nothing
            except ConnectionError:
                break
            time.sleep(0.5)
        assert time.monotonic() - began < REQUEST_SECONDS_MAX + 3
        silent.settimeout(5)
        assert silent.recv(100).startswith(b"HTTP/1.1 408 ")


def test_bombs_are_refused_before_they_are_unpacked(served: Served) -> None:
    port, before = Port(served), Port(served).process.memory_info().rss
    with served.client() as client:
        large = client.post("/v1/jobs:validate", content=b" " * (REQUEST_BYTES_MAX + 1))
        assert large.status_code == 413
        declared = port.exchange(
            b"POST /v1/jobs:validate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
            b"100000000000\r\n\r\n"
        )
        assert declared.startswith(b"HTTP/1.1 413 ")
        for bomb in (
            gzip.compress(b" " * 50_000_000),
            b"[" * 100_000,
            b'{"a":' * 50_000,
            json.dumps({"query": "(" * 90_000}).encode(),
            billion_laughs(),
        ):
            for kind in ("application/json", "application/yaml", "text/plain"):
                headers = {"Content-Type": kind}
                if bomb[:2] == b"\x1f\x8b":
                    headers["Content-Encoding"] = "gzip"
                began = time.monotonic()
                status = client.post("/v1/jobs:validate", content=bomb, headers=headers).status_code
                assert 400 <= status < 500 or status == 200, (bomb[:20], kind, status)
                assert time.monotonic() - began < PATIENCE_SECONDS, (bomb[:20], kind)
    assert port.process.memory_info().rss - before < GROWTH_BYTES_MAX


def billion_laughs() -> bytes:
    """YAML whose anchors stand for four of the one before, thirty times."""
    lines = ["a0: &a0 [x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 4)}]" for n in range(1, 30)]
    return "\n".join(lines).encode()


CROOKED = [
    "..", "../x", "..%2fx", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "....//x", "x/../../y",
    "..%5cx", "%00", "x%00y", "x%0d%0aSet-Cookie:%20a=b", "x%0aY", "~", "~root", "C:", "C:%5cx",
    "%c0%ae%c0%ae", "%ff", "x" * 300, "X", "%D0%96", "%EF%BD%89tems", "items%20", "%20items",
    "-items", "_items",
    "items.", "items;ls", "$(ls)", "`ls`", "items|ls", "items'--", 'items"', "items%27%20OR%201=1",
    "<script>", "%3Cscript%3E", "{{7*7}}", "${7*7}", "%252e%252e", "nul.txt", ".git", ".env",
]  # fmt: skip


def test_crooked_names_lead_nowhere(served: Served) -> None:
    port, outside = Port(served), set(os.listdir(served.data.parent))
    inside = {path for path in served.data.rglob("*") if "/service/" not in str(path)}
    for name in CROOKED:
        for method, path in (
            ("GET", f"/v1/jobs/{name}"),
            ("PUT", f"/v1/jobs/{name}"),
            ("GET", f"/v1/jobs/{name}/results"),
            ("DELETE", f"/v1/jobs/{name}"),
            ("GET", f"/v1/jobs/{name}/log"),
            ("POST", f"/v1/jobs/{name}/start"),
            ("GET", f"/assets/x/{name}"),
            ("GET", f"/{name}"),
        ):
            body = SPEC.encode() if method == "PUT" else b""
            output = port.exchange(
                f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                f"Content-Type: application/yaml\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            assert re.match(rb"HTTP/1.1 4\d\d ", output), (method, path, output[:200])
            head, _, rest = output.partition(b"\r\n\r\n")
            assert b"\r\nset-cookie" not in head.lower()
            assert b"root:" not in rest and str(served.data).encode() not in rest
    answered(served)
    assert set(os.listdir(served.data.parent)) == outside
    assert {path for path in served.data.rglob("*") if "/service/" not in str(path)} == inside


def test_a_link_that_was_planted_is_not_followed(data: Path) -> None:
    """Where a job's directory would be lies a link to somebody else's."""
    elsewhere = data / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "log").write_text("canary-elsewhere")
    (data / "jobs").mkdir()
    (data / "jobs" / "items").symlink_to(elsewhere)
    with Served.start(data) as served, served.client() as client:
        for path in ("", "/log", "/results", "/spec"):
            answer = client.get(f"/v1/jobs/items{path}")
            assert answer.status_code == 404, (path, answer.status_code)
            assert "canary" not in answer.text


def test_tokens_are_found_nowhere(data: Path) -> None:
    """Whatever was asked with a token, right or wrong, and wherever a client has put it."""
    token, wrong = Tokens(data / "service" / "tokens.json").add("me", "admin"), "rt_canary-7d1f"
    log = data / "stderr"
    with log.open("wb") as errors:
        served = Served.start(data, "--verbose", errors=errors)
    output = []
    with served.client() as client:
        for secret in (token, wrong):
            bearer = {"Authorization": f"Bearer {secret}"}
            for answer in (
                client.get("/v1/jobs", headers=bearer),
                client.get("/v1/jobs", params={"token": secret, "ticket": secret}, headers=bearer),
                client.get("/v1/jobs", headers={"Cookie": f"retally={secret}; session={secret}"}),
                client.get("/v1/jobs", headers={"X-Api-Key": secret, "Authorization": secret}),
                client.post("/v1/session", json={"token": secret + "x"}),
                client.put("/v1/jobs/items", content=f"password: {secret}", headers=bearer),
                client.get("/v1/audit-log", headers=bearer),
                client.get("/metrics", headers=bearer),
            ):
                output.append(answer.text + str(answer.headers))
    assert served.stop() == 0
    for path in [path for path in data.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        assert token.encode() not in content and wrong.encode() not in content, path
    assert log.stat().st_size > 500  # it was really told what happened
    for text in output:
        assert token not in text and wrong not in text
